"""`python -m tests.oracle [REPORT]`: every algorithm that is resumed under every plan that can run it, bit for bit.

One process trains to the end and leaves checkpoints on its way. Another one goes on from the middle one, in a copy of
the folder that has neither later checkpoints nor a policy, but later rows, as after a kill. Both must come to the same
end: parameters, optimiser, replay and messages, as the last checkpoint has them, the policy, and every row of metrics.
What law 14's tests show in one process for chosen pairs is shown here for all of them. Ends with 1 if something
differs, or if a plan refuses what it used to run.

Processes are forked from one that has imported everything and never uses JAX itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax

import motet
from motet.flow.algorithm import Algorithm
from motet.plan.plan import Plan
from motet.runs import checkpoints
from tests.kills import difference, imported
from tests.laws import cases

ROUNDS, EVERY = 9, 2
"""Iterations of a run, and between two checkpoints."""
GRU = replace(cases.ALGORITHMS["ppo"], core="gru", core_size=8, normalize_observation=True)  # type: ignore[call-arg]
ALGORITHMS: dict[str, Algorithm] = {
    "PPO": cases.ALGORITHMS["ppo"],
    "PPO, advantages as they are": cases.ALGORITHMS["ppo-unnormalised"],
    "recurrent PPO": GRU,
    "recurrent PPO, advantages as they are": replace(GRU, normalize_advantage=False),  # type: ignore[call-arg]
    "IMPALA": cases.ALGORITHMS["impala"],
    "DQN, prioritised, 3 steps": cases.ALGORITHMS["dqn-prioritised"],
    "SAC": motet.SAC(**cases.REPLAY),
}
PLANS: dict[str, Plan] = {
    "anakin": motet.anakin(),
    "anakin(2)": motet.anakin(2),
    "coarse(2)": motet.coarse(2),
    "coarse(2, lag=1)": motet.coarse(2, lag=1),
    "fine(2)": motet.fine(2),
    "central(2)": motet.central(2),
    "sebulba(lag=1)": motet.sebulba(lag=1),
    "pearl(2, lag=1, prefetch=2)": motet.pearl(2, lag=1, prefetch=2),
    "pearl, host memory": motet.pearl(lag=1, prefetch=2, replay="host"),
    "pearl, OpenCL": motet.pearl(lag=1, prefetch=2, replay="opencl:0"),
}
SAME = "the same end"
REFUSED = 3
ENOUGH = 50
"""So many pairs can run: what is refused shows nothing."""


def forked(does: Callable[[], object], said: Path) -> int:
    """Do it in a process of its own -> its exit code."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    jax.config.update("jax_num_cpu_devices", 4)
    try:
        does()
        code = 0
    except (motet.BadPlan, motet.BadAlgorithm) as error:
        said.write_text(str(error))
        code = REFUSED
    except BaseException:
        said.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def goes_on(algorithm: str, plan: str, base: Path) -> str:
    """Train under a plan, go on from the middle once more -> what came of it."""
    whole, again, said = base / "whole", base / "again", base / "said"
    base.mkdir()
    made, env = ALGORITHMS[algorithm], "Pendulum-v1" if algorithm == "SAC" else "CartPole-v1"
    steps = made.num_envs * getattr(made, "num_steps", getattr(made, "train_frequency", 1))  # type: ignore[attr-defined]
    total = getattr(made, "learning_starts", 0) + steps * ROUNDS
    how = {"progress": False, "checkpoint_steps": steps * EVERY, "keep": ROUNDS}
    train = lambda: motet.train(made, env, PLANS[plan], total_timesteps=total, seed=3, run_dir=whole, **how)  # noqa: E731
    code = forked(train, said)
    if code:
        return f"refused: {said.read_text()}" if code == REFUSED else f"it failed: {said.read_text()}"
    numbers = [int(path.name) for path in checkpoints.all_of(whole)]
    middle = numbers[len(numbers) // 2 - 1]
    if len(numbers) < 3 or middle == numbers[-1]:
        return f"too few checkpoints: {numbers}"
    shutil.copytree(whole, again)
    (again / "policy.safetensors").unlink()
    for path in checkpoints.all_of(again):
        if int(path.name) > middle:
            shutil.rmtree(path)
    if forked(lambda: motet.resume(again, progress=False, checkpoint_steps=steps * EVERY, keep=ROUNDS), said):
        return f"it did not go on: {said.read_text()}"
    return difference(whole, again) or SAME


def main(report: Path | None = None) -> int:
    imported()
    began = time.monotonic()
    pairs = [(algorithm, plan) for algorithm in ALGORITHMS for plan in PLANS]
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(2) as pool:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{base}/programs")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

        def one(numbered: tuple[int, tuple[str, str]]) -> str:
            number, pair = numbered
            found = goes_on(*pair, Path(base) / str(number))
            print(f"{', '.join(pair)}: {found}", flush=True)
            return found

        found = dict(zip(pairs, pool.map(one, enumerate(pairs)), strict=True))
    text = told(found, time.monotonic() - began)
    if report is not None:
        report.write_text(text)
    print(text)
    same, refused = (sum(each.startswith(word) for each in found.values()) for word in (SAME, "refused"))
    return 0 if same >= ENOUGH and same + refused == len(found) else 1


def told(found: dict[tuple[str, str], str], seconds: float) -> str:
    count = sum(each == SAME for each in found.values())
    lines = [
        "# Taken up again in another process",
        "",
        f"Made by `make oracle` in {seconds / 60:.0f} minutes: a run goes to its end and leaves checkpoints; a process "
        "of its own goes on from the middle one. `same`: every array of the last checkpoint (parameters, optimiser, "
        "replay, messages, environments), the policy and every row of metrics are the same, bit for bit. `-`: the plan "
        f"cannot run the algorithm, and is refused before anything starts. **{count} pairs are the same, "
        f"{sum(each != SAME and not each.startswith('refused') for each in found.values())} are not.**",
        "",
        f"| | {' | '.join(f'`{plan}`' if '(' in plan else plan for plan in PLANS)} |",
        f"|---|{'---|' * len(PLANS)}",
    ]
    cells = lambda algorithm: [found[algorithm, plan] for plan in PLANS]  # noqa: E731
    short = lambda each: "same" if each == SAME else "-" if each.startswith("refused") else "**differs**"  # noqa: E731
    lines += [f"| {algorithm} | {' | '.join(map(short, cells(algorithm)))} |" for algorithm in ALGORITHMS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
