"""The table's rows of disks and folders: full, gone, taken, not writable. Metrics may be lost, a policy may not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.runs.claim import Claim
from tests.hardening.adds import TIMESTEPS
from tests.hardening.attack import Act, Case, Ended, command, process, training

BIG = ["train", "a2c", "CartPole-v1", "--num-envs", "4", "--num-steps", "5", "--hidden", "64",
       "--total-timesteps", "80", "--preset", "anakin", "--evaluate-episodes", "0", "--run-dir", "run"]  # fmt: skip
NOT_SAVED = "The policy cannot be saved in "
ELSEWHERE = " instead."


def limited(args: list[str], blocks: int) -> Act:
    """Where no file may grow beyond so many blocks of 512 bytes; half a program must not get into a cache either."""
    shell = f'ulimit -f {blocks}; exec "$@"'
    return process(args, shell=shell, env={"JAX_ENABLE_COMPILATION_CACHE": "0"})


def before(prepare: Callable[[Path], object], act: Act) -> Act:
    def both(place: Path) -> Ended:
        prepare(place)
        return act(place)

    return both


def of_a_dead_run(place: Path) -> None:
    """Whoever had the folder was killed before anything was written: the file is there, its lock is not."""
    (place / "run").mkdir()
    (place / "run" / "running").write_text("1\n")


def of_a_dead_run_that_wrote(place: Path) -> None:
    of_a_dead_run(place)
    (place / "run" / "config.json").write_text("{}")


def in_use(place: Path) -> Ended:
    (place / "run").mkdir()
    claim = Claim(place / "run")
    try:
        return command(training())(place)
    finally:
        claim.release()


def mounted(place: Path) -> Ended:
    """On a disk of 32 KB of its own, in a namespace where that is allowed."""
    mount = "mkdir small && mount -t tmpfs -o size=32k none small && cd small"
    if subprocess.run(["unshare", "-rm", "sh", "-c", f"cd {place} && {mount}"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    shutil.rmtree(place / "small")
    shell = f'exec unshare -rm sh -c \'{mount} && exec "$@"\' sh "$@"'
    return process(BIG, shell=shell, env={"JAX_ENABLE_COMPILATION_CACHE": "0", "TMPDIR": str(place)})(place)


def case(thing: str, act: Act, code: int, words: Any, plan: str = "multi_learner(1)", **more: Any) -> Case:
    more = {"learned": "nothing", "policy": False if code else None, **more}
    return Case(thing=f"disk: {thing}", plan=plan, act=act, code=code, words=words, **more)


def in_mid_run(how: str, words: Any, code: int = 2, **more: Any) -> list[Case]:
    """What an environment does to the folder of its own run."""
    plans = ("multi_learner(1)", "coarse(2)", "batched(2)")
    return [
        case(how, command(training(how, plan)), code, words, plan, **{"rare": plan == "coarse(2)", **more})
        for plan in plans
    ]


MANY = [*training(), "--total-timesteps", str(40 * TIMESTEPS)]
CASES = [
    *in_mid_run("remove the run", (NOT_SAVED, "No such file or directory", ELSEWHERE)),
    *in_mid_run("put a file for the run", (NOT_SAVED, ELSEWHERE)),
    *in_mid_run("put a folder for the policy", (NOT_SAVED, "Is a directory", ELSEWHERE)),
    *in_mid_run("remove the metrics", "", 0, policy=True),
    case("nowhere to save", before(lambda place: shutil.rmtree(place / "temporary"),
         command(training("remove the run"))), 2, (NOT_SAVED, "Nor can it elsewhere: No such file or directory")),
    case("policy too large", limited(BIG, 6), 2, (NOT_SAVED, "Nor can it elsewhere: File too large"),
         "anakin"),
    case("metrics too large", limited(MANY, 8), 0, "metrics.jsonl ends early: File too large", policy=True),
    case("a full one", mounted, 2, (NOT_SAVED, "No space left on device", ELSEWHERE), "anakin", rare=True),
    case("a file for a folder", before(lambda place: (place / "run").write_text(""), command(training())), 2,
         "run is a file; name a folder with run_dir"),
    case("below a file", before(lambda place: (place / "file").write_text(""),
         command([*training(), "--run-dir", "file/below"])), 2, "cannot be written: Not a directory"),
    case("where nobody may write", command([*training(), "--run-dir", "/proc/motet"]), 2, "cannot be written"),
    case("a folder with something", before(lambda place: (place / "run" / "mine").mkdir(parents=True),
         command(training())), 2, "already holds something"),
    case("a folder in use", in_use, 2,
         "is in use by the run of process #", policy=None),
    case("a folder of a dead run", before(of_a_dead_run, command(training())), 0, "", policy=True),
    case("a folder of a dead run that wrote", before(of_a_dead_run_that_wrote, command(training())), 2,
         ("already holds something", "motet resume run"), policy=None),
]  # fmt: skip
