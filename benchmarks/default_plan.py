"""`python -m benchmarks.default_plan [ENV ...]`: how fast PPO trains on environments of the host under several plans,
and whether the plan that `train` would choose is anywhere the slowest. Ends with 1 if it is.

Plans take turns, so that what else a machine does meets them all; the speed of a run is measured after compiling. The
table goes to benchmarks/results/default_plan.md.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import motet
from motet.runs.progress import speed
from motet.training import default_plan

ENVS = {"gymnasium/CartPole-v1": 40_000, "LunarLander-v3": 20_000, "HalfCheetah-v5": 12_000}
"""From light to heavy, and how many steps take a few seconds."""
PLANS = {
    "multi_learner(1)": motet.multi_learner(1),
    "multi_learner(1, workers=2)": motet.multi_learner(1, workers=2),
    "batched(2)": motet.batched(2),
    "sebulba(threads=1)": motet.sebulba(threads=1),
}
ROUNDS = 3
ALGORITHM = motet.PPO(num_envs=8, num_steps=64, update_epochs=4, num_minibatches=4)
FILE = Path(__file__).parent / "results" / "default_plan.md"


def steps_per_second(env: str, plan: motet.Plan, steps: int) -> float:
    history = motet.train(ALGORITHM, env, plan, total_timesteps=steps, progress=False).history
    found = speed(history[0], history[-1])
    assert found is not None
    return found


def measured(env: str) -> dict[str, float]:
    """The median speed under each plan."""
    samples: dict[str, list[float]] = {name: [] for name in PLANS}
    for _ in range(ROUNDS):
        for name, plan in PLANS.items():
            samples[name].append(steps_per_second(env, plan, ENVS[env]))
    return {name: statistics.median(found) for name, found in samples.items()}


def chosen(env: str) -> str:
    plan = default_plan(ALGORITHM, motet.make(env))
    return next((name for name, each in PLANS.items() if each == plan), repr(plan))


def main(names: list[str]) -> int:
    lines = [
        f"PPO, {ALGORITHM.num_envs} environments, {os.cpu_count()} cores, medians of {ROUNDS} runs in turn, steps a "
        f"second; load of the machine at the end: {{load:.1f}}. In bold what `train` chooses.",
        "",
        f"| environment | {' | '.join(f'`{name}`' for name in PLANS)} |",
        f"| --- |{' ---: |' * len(PLANS)}",
    ]
    fine = True
    for env in names or ENVS:
        speeds, choice = measured(env), chosen(env)
        fine = fine and speeds[choice] > min(speeds.values())
        cells = (f"**{value:,.0f}**" if name == choice else f"{value:,.0f}" for name, value in speeds.items())
        lines.append(f"| {env} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    FILE.write_text("\n".join(lines).format(load=os.getloadavg()[0]) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
