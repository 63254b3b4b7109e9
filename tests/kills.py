"""`python -m tests.kills [COUNT] [REPORT]`: end runs with SIGKILL at random moments, and see that nothing is lost.

A run is killed while it starts, resumes, trains, saves and removes what it saved before, taken up again and killed
again. After each kill every checkpoint that is there must be whole, the newest no older than an interval, and rows of
metrics in order. The run that comes to its end like this must be the run that was never
killed, bit for bit: every array of its last checkpoint, every row. Ends with 1 if something is wrong; REPORT is a file
for what was counted.

Runs are the commands that a user gives, each in a process of its own. To make them cheap they are forked from this one,
which has imported everything and never uses JAX itself.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from motet import cli
from motet.runs import checkpoints, folder
from motet.runs.folder import read_rows
from motet.saving import Saving

INTERVAL = 1.0
"""Seconds between two checkpoints."""
LATE = 1.0
"""Seconds by which threads may be late where tests beside this one use the cores."""
PATIENCE = 300.0
PLANS = {"anakin": ((), 60_000), "coarse, lag 1": (("--preset", "coarse", "--actors", "2", "--lag", "1"), 6_000)}
"""Plan -> its options, and so many iterations of a run that takes long enough to be killed often."""
OPTIONS = ("--num-envs", "4", "--num-steps", "8", "--update-epochs", "1", "--num-minibatches", "2", "--hidden", "8")
SAVING = ("--checkpoint-seconds", str(INTERVAL), "--keep", "2", "--evaluate-episodes", "0")
STEPS = 32
"""Of an iteration."""
STARTING, RESUMING, TRAINING, SAVING_NOW, REMOVING, OVER = range(6)
PHASES = {
    STARTING: "starting, before it was first saved and trained",
    RESUMING: "resuming, before the first iteration",
    TRAINING: "training",
    SAVING_NOW: "in the middle of writing a checkpoint",
    REMOVING: "in the middle of removing older checkpoints",
}
TRAINED = 0.8
"""Seconds of training for each kill, at least: a little less than an interval."""
STARTS = 8
"""Of the kills of a run, one in so many comes before it was first saved."""
WANTED = (SAVING_NOW, RESUMING, TRAINING, SAVING_NOW, REMOVING, TRAINING, RESUMING, TRAINING)
"""In which phases to kill afterwards, in turn."""


ENOUGH = 100
"""So many kills must be of all kinds."""


class Board:
    """What a run and who kills it both see: the phase it is in, and how far back it would fall."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, 24)

    def begin(self, phase: int) -> None:
        self.memory[:] = bytes(24)
        self.put(phase)

    def put(self, phase: int) -> None:
        self.memory[0] = phase

    @property
    def phase(self) -> int:
        return self.memory[0]

    def trains(self) -> None:
        """The first row is there: all before was no training."""
        self.put(TRAINING)
        self._note(8, time.monotonic())

    def cut(self) -> None:
        """What the next checkpoint holds ends now."""
        self._note(16, time.monotonic())

    def kept(self) -> None:
        """That checkpoint is written."""
        self.memory[8:16] = self.memory[16:24]

    def lost(self, now: float) -> float:
        """Seconds of training that are in no checkpoint."""
        (since,) = struct.unpack("d", self.memory[8:16])
        return now - since if since else 0.0

    def _note(self, place: int, moment: float) -> None:
        self.memory[place : place + 8] = struct.pack("d", moment)


def followed(board: Board) -> None:
    """Make this process tell in which phase it is."""

    def during(phase: int, function: Callable[..., Any], after: Callable[[], None]) -> Callable[..., Any]:
        def told(*given: Any, **more: Any) -> Any:
            before = board.phase
            board.put(phase)
            try:
                result = function(*given, **more)
                after()
                return result
            finally:
                board.put(before)

        return told

    def row(writer: folder.Writer, row: Any, write: Any = folder.Writer.row) -> None:
        if board.phase in (STARTING, RESUMING):
            board.trains()
        write(writer, row)

    def cut(saving: Saving, cut: Any, save: Any = Saving.save) -> None:
        board.cut()
        save(saving, cut)

    folder.Writer.row = row  # type: ignore[method-assign]
    Saving.save = cut  # type: ignore[method-assign]
    checkpoints.save = during(SAVING_NOW, checkpoints.save, board.kept)
    checkpoints.prune = during(REMOVING, checkpoints.prune, lambda: None)


def forked(arguments: list[str], board: Board, errors: Path, starts: bool) -> int:
    """Give a command in a process of its own, which begins a run or goes on with one -> its number."""
    board.begin(STARTING if starts else RESUMING)
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with open(os.devnull, "w") as nowhere, errors.open("w") as told:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(told.fileno(), 2)
            followed(board)
            code = cli.main(arguments)
            board.put(OVER)
    finally:
        os._exit(code)


@dataclass
class Run:
    """A run that is killed and taken up again until it has come to its end."""

    place: Path
    plan: str
    seed: int
    length: float = 1.0
    """As a part of the usual one."""
    board: Board = field(default_factory=Board)
    lost: float = 0.0
    """Seconds of training that the last kill lost."""

    def command(self) -> list[str]:
        """What begins the run, or goes on with it if there is anything to go on with."""
        if (self.place / "config.json").exists():
            return ["resume", str(self.place), *SAVING]
        plan, iterations = PLANS[self.plan]
        length = ("--total-timesteps", str(STEPS * round(iterations * self.length)), "--seed", str(self.seed))
        return ["train", "ppo", "CartPole-v1", *OPTIONS, *length, "--run-dir", str(self.place), *plan, *SAVING]

    def go(self, phase: int | None, chance: random.Random, took: dict[int, float]) -> int | None:
        """Go on, and kill it somewhere in that phase -> in which phase it was; None: it came to its end."""
        errors = self.place.with_suffix(".errors")
        child = forked(self.command(), self.board, errors, not checkpoints.all_of(self.place))
        deadline, moment, before = time.monotonic() + PATIENCE, None, None
        passed = chance.randrange(3) if phase in (SAVING_NOW, REMOVING) else 0  # whole intervals lie between them
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                break
            now, here = time.monotonic(), self.board.phase
            passed -= before == phase != here
            before = here
            if phase is not None and moment is None and here == phase and passed <= 0:
                moment = now + chance.random() * took[phase]
            left = here != phase and phase != TRAINING  # which goes on around what is saved
            if moment is not None and (now >= moment or left):
                self.lost = self.board.lost(time.monotonic())
                os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                break
            if now > deadline:
                os.kill(child, signal.SIGKILL)
                raise SystemExit(f"the run did not come to {PHASES.get(phase or TRAINING)} in {PATIENCE:.0f} s")
            time.sleep(0.0003 if phase in (SAVING_NOW, REMOVING) else 0.005)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            return self.board.phase
        if code:
            raise SystemExit(f"the run ended with {code}:\n{errors.read_text()[-2000:]}")
        return None


def trouble(run: Path) -> Iterator[str]:
    """What is wrong with the folder of a run that was killed."""
    found = checkpoints.all_of(run)
    for path in found:
        try:
            checkpoints.read(path)
        except Exception as error:
            yield f"{path.name} cannot be read: {error}"
    numbers = [row["iteration"] for row in read_rows(run)]
    if numbers != sorted(set(numbers)):  # type: ignore[type-var]
        yield "its rows go back in time"


def difference(one: Path, other: Path) -> str | None:
    """How the ends of two runs differ."""
    left, right = (checkpoints.read(checkpoints.all_of(run)[-1]) for run in (one, other))
    if left.path.name != right.path.name or left.arrays.keys() != right.arrays.keys():
        return "they did not come to the same end"
    unlike = [name for name, array in left.arrays.items() if not np.array_equal(array, right.arrays[name])]
    if unlike:
        return f"{', '.join(unlike)} differ"
    policies = [(run / "policy.safetensors").read_bytes() for run in (one, other)]
    rows = [[{**row, "seconds": 0, "steps_per_second": 0} for row in read_rows(run)] for run in (one, other)]
    if policies[0] != policies[1]:
        return "their policies differ"
    unlike = [(a, b) for a, b in zip(*rows, strict=False) if a != b]
    if unlike or len(rows[0]) != len(rows[1]):
        return f"their rows differ: {len(rows[0])} and {len(rows[1])}, {unlike[:1]}"
    return None


@dataclass
class Count:
    """What was seen."""

    phases: Counter[int] = field(default_factory=Counter)
    saved_before: int = 0
    """Kills of runs that had been saved."""
    halves: int = 0
    """Kills that left half of a checkpoint, where nobody reads it."""
    most: float = 0.0
    """Seconds of training that the worst kill lost."""
    ends: Counter[str] = field(default_factory=Counter)
    """Plan -> runs that came to the same end as undisturbed."""

    @property
    def kills(self) -> int:
        return sum(self.phases.values())

    def lacking(self) -> list[str]:
        """What must have been seen too, for the count of many kills to mean anything."""
        if self.kills < ENOUGH:
            return []
        few = max(1, self.kills // 20)
        found = [f"too few kills while {PHASES[each]}" for each in PHASES if self.phases[each] < few]
        found += ["most kills came before the first checkpoint"] if 2 * self.saved_before < self.kills else []
        return found + (["no kill left half of a checkpoint"] if not self.halves else [])


def undisturbed(place: Path, plan: str, seed: int, kills: int, chance: random.Random, took: dict[int, float]) -> Run:
    """A run that takes long enough to be killed so often on its way, whatever the machine."""
    length, needed = min(1.0, max(0.2, kills / 50)), min(kills, 50) * TRAINED
    while True:
        run = Run(place, plan, seed, length)
        run.go(None, chance, took)
        rows = read_rows(place)
        trained = float(rows[-1]["seconds"] or 0.0) - float(rows[0]["seconds"] or 0.0)
        if trained >= needed:
            return run
        length *= 1.2 * needed / max(trained, 0.1)
        shutil.rmtree(place)


def killed_to_the_end(run: Run, left: int, count: Count, chance: random.Random, took: dict[int, float]) -> None:
    """Run to the end, killed at most so often on the way."""
    done, most = 0, INTERVAL + (0.0 if left >= ENOUGH / 4 else LATE)
    while True:
        phase = None
        if done < left:
            phase = STARTING if done <= left // STARTS else WANTED[done % len(WANTED)]
        if phase == RESUMING and not checkpoints.all_of(run.place):
            phase = STARTING
        before, halves = bool(checkpoints.all_of(run.place)), set(checkpoints.halves(run.place))
        hit = run.go(phase, chance, took)
        if hit is None:
            return
        done += 1
        count.phases[hit] += 1
        count.saved_before += before or bool(checkpoints.all_of(run.place))
        count.halves += bool(set(checkpoints.halves(run.place)) - halves)
        count.most = max(count.most, run.lost)
        wrong = list(trouble(run.place)) + ([f"more than {most:g} s"] if run.lost > most else [])
        print(
            f"kill {count.kills}, {PHASES.get(hit, 'at the end')}: {'; '.join(wrong) or 'well'}, {run.lost:.2f} s lost",
            flush=True,
        )
        if wrong:
            raise SystemExit(1)
        if (run.place / "policy.safetensors").exists():
            return  # it had come to its end: what was killed was on its way out


def imported() -> None:
    """Load all that commands load, so that every one of them need not."""
    import tensorboardX  # noqa: F401

    import motet.algorithms.ppo
    import motet.cli.report
    import motet.cli.resume
    import motet.cli.train
    import motet.envs.cartpole
    import motet.runs.display
    import motet.session  # noqa: F401


def main(wanted: int, report: Path | None = None) -> int:
    imported()
    began, chance, count, seed = time.monotonic(), random.Random(0), Count(), 0
    took = {STARTING: 1.5, RESUMING: 1.5, TRAINING: 2.5 * INTERVAL, SAVING_NOW: 0.02, REMOVING: 0.005}
    with tempfile.TemporaryDirectory() as base:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{base}/programs")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
        while count.kills < wanted:
            plan, seed = list(PLANS)[seed % len(PLANS)], seed + 1
            share = min(wanted - count.kills, max(5, wanted // 4))
            whole = undisturbed(Path(base) / f"whole-{seed}", plan, seed, share, chance, took)
            run = Run(Path(base) / f"killed-{seed}", plan, seed, whole.length)
            killed_to_the_end(run, share, count, chance, took)
            wrong = difference(whole.place, run.place)
            print(f"{count.kills} kills; {plan}: {wrong or 'the same end, bit for bit'}", flush=True)
            if wrong:
                return 1
            count.ends[plan] += 1
            for each in (whole, run):
                shutil.rmtree(each.place)
    text = told(count, time.monotonic() - began)
    print(text)
    if report is not None:
        report.write_text(text)
    return 1 if count.lacking() else 0


def told(count: Count, seconds: float) -> str:
    ends = ", ".join(f"{number} under {plan}" for plan, number in count.ends.items())
    rows = "".join(f"| {PHASES[each]} | {count.phases[each]} |\n" for each in PHASES)
    lacking = "".join(f"\nNot enough: {each}.\n" for each in count.lacking())
    return (
        "# Killed at random moments\n\n"
        "Made by `make kills`: runs of PPO on CartPole-v1 that are saved every "
        f"{INTERVAL:g} s were ended with SIGKILL, taken up again with `motet resume` and killed again.\n\n"
        f"| where the run was | kills |\n|---|---|\n{rows}| **together** | **{count.kills}** |\n\n"
        f"- Of these, {count.saved_before} came after the first checkpoint, and {count.halves} left half of a "
        "checkpoint behind, which nothing reads.\n"
        "- After every kill all checkpoints were whole, rows of metrics were in order, and no more than an interval "
        f"was lost: at most {count.most:.2f} s of training.\n"
        f"- {sum(count.ends.values())} runs came to their end ({ends}): every array of the last checkpoint, the policy "
        "and every row of metrics are those of the run that was never killed, bit for bit.\n"
        f"- {seconds / 60:.0f} minutes, {seconds / max(1, count.kills):.1f} s a kill.\n{lacking}"
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, Path(sys.argv[2]) if len(sys.argv) > 2 else None))
