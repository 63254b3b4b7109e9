"""`python -m benchmarks.defaults [NAME ...]`: what each library learns with its own defaults, at equal steps.

Nobody chooses an option here: an algorithm, an environment, a number of steps, five seeds. Each run has a process of
its own; two runs of one library go at once, so that both libraries have the same machine. What is done is kept in
results/defaults.json and not done again; results/defaults.md is written from it. Ends with 1 where motet is behind.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers

RESULTS = Path(__file__).with_name("results")
RUNS = RESULTS / "defaults.json"
SEEDS = (1, 2, 3, 4, 5)
EPISODES = 20
SIDES = ("motet", "stable-baselines3")


@dataclass(frozen=True)
class Task:
    """What is learned, and for how long."""

    algorithm: str
    env: str
    steps: int
    chosen_on: bool
    """Whether motet's defaults were chosen by looking at it, with other seeds."""

    @property
    def name(self) -> str:
        return f"{self.algorithm}-{self.env}"


TASKS = {
    task.name: task
    for task in (
        Task("ppo", "CartPole-v1", 100_000, True),
        Task("ppo", "Acrobot-v1", 300_000, False),
        Task("ppo", "LunarLander-v3", 300_000, True),
        Task("ppo", "Pendulum-v1", 300_000, True),
        Task("ppo", "LunarLanderContinuous-v3", 300_000, False),
        Task("dqn", "CartPole-v1", 100_000, True),
        Task("dqn", "Acrobot-v1", 100_000, True),
        Task("dqn", "LunarLander-v3", 200_000, False),
        Task("sac", "Pendulum-v1", 20_000, True),
        Task("sac", "LunarLanderContinuous-v3", 50_000, False),
    )
}


def motet_run(task: Task, seed: int) -> dict[str, Any]:
    """What `motet train ALGORITHM ENV --total-timesteps STEPS --seed SEED` does, evaluated on Gymnasium's own."""
    import motet

    result = motet.train(task.algorithm, task.env, total_timesteps=task.steps, seed=seed, progress=False)
    score = motet.evaluate(result.policy, f"gymnasium/{task.env}", episodes=EPISODES, seed=seed + 1000)
    return {"return": float(score.mean), "seconds": result.seconds, "steps": result.steps, "plan": result.plan.name}


def stable_baselines_run(task: Task, seed: int) -> dict[str, Any]:
    """What its guide does: Model("MlpPolicy", env).learn(steps)."""
    import time

    import gymnasium
    import stable_baselines3
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)  # two runs at once; it is no slower with networks of this size
    start = time.monotonic()
    model = getattr(stable_baselines3, task.algorithm.upper())("MlpPolicy", task.env, seed=seed, device="cpu")
    model.learn(task.steps)
    seconds = time.monotonic() - start
    env = Monitor(gymnasium.make(task.env))
    env.reset(seed=seed + 1000)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=EPISODES, deterministic=True)
    return {"return": float(mean), "seconds": seconds, "steps": model.num_timesteps}


def in_a_process(side: str, task: Task, seed: int) -> dict[str, Any]:
    python = Path(sys.executable) if side == "motet" else peers.python()
    command = [str(python), "-m", "benchmarks.defaults", "--run", side, task.name, str(seed)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=os.environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def missing(names: list[str], found: dict[str, Any]) -> Iterator[tuple[str, Task, int]]:
    for task in (TASKS[name] for name in names):
        for side in SIDES:
            for seed in SEEDS:
                if key(side, task, seed) not in found:
                    yield side, task, seed


def key(side: str, task: Task, seed: int) -> str:
    return f"{side} {task.name} {task.steps} {seed}"


def measure(names: list[str], found: dict[str, Any]) -> None:
    """Make the runs that are missing, two of a side at once, and keep each."""
    wanted = list(missing(names, found))
    for side in SIDES:
        mine = [each for each in wanted if each[0] == side]
        with ThreadPoolExecutor(2) as pool:
            for each, result in zip(mine, pool.map(lambda each: in_a_process(*each), mine), strict=True):
                found[key(*each)] = result
                print(key(*each), result, flush=True)
                RUNS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


def rows(found: dict[str, Any]) -> Iterator[tuple[Task, dict[str, list[float]], dict[str, float]]]:
    """Of each task that is done: returns and the median seconds of both sides."""
    for task in TASKS.values():
        sides = {side: [found.get(key(side, task, seed)) for seed in SEEDS] for side in SIDES}
        if all(run for runs in sides.values() for run in runs):
            returns = {side: [run["return"] for run in runs] for side, runs in sides.items()}  # type: ignore[index]
            seconds = {side: statistics.median(run["seconds"] for run in runs) for side, runs in sides.items()}  # type: ignore[index]
            yield task, returns, seconds


def table(found: dict[str, Any]) -> str:
    lines = [
        "# Learning with defaults",
        "",
        "Made by `make defaults`: both libraries with their own defaults, the same number of steps, five seeds, two",
        f"runs at once; the greedy policy's mean return over {EPISODES} episodes of Gymnasium's environment.",
        "`chosen on` says whether motet's defaults were chosen by looking at the task, with other seeds.",
        "",
        "| algorithm | environment | steps | motet: mean (worst) | Stable-Baselines3 | seconds of each | chosen on |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for task, returns, seconds in rows(found):
        scores = [f"{statistics.mean(returns[side]):.0f} ({min(returns[side]):.0f})" for side in SIDES]
        times = " / ".join(f"{seconds[side]:.0f}" for side in SIDES)
        chosen = "yes" if task.chosen_on else "no"
        lines.append(
            f"| {task.algorithm} | {task.env} | {task.steps:,} | {scores[0]} | {scores[1]} | {times} | {chosen} |"
        )
    return "\n".join(lines) + "\n"


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.defaults", description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(TASKS))
    parser.add_argument("--run", action="store_true", help="one run: SIDE NAME SEED")
    options = parser.parse_args(args)
    if options.run:
        side, name, seed = options.names
        run = motet_run if side == "motet" else stable_baselines_run
        print(json.dumps(run(TASKS[name], int(seed))))
        return 0
    unknown = [name for name in options.names if name not in TASKS]
    if unknown:
        parser.error(f"no task is called {', '.join(unknown)}; there are {', '.join(TASKS)}")
    found = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    measure(options.names or list(TASKS), found)
    text = table(found)
    (RESULTS / "defaults.md").write_text(text)
    print(text)
    behind = [
        task.name
        for task, returns, seconds in rows(found)
        if statistics.mean(returns["motet"]) < statistics.mean(returns["stable-baselines3"])
        or seconds["motet"] > seconds["stable-baselines3"]
    ]
    print(f"behind: {', '.join(behind) or 'nowhere'}")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
