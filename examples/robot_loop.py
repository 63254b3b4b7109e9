"""A trained policy in a control loop: load it, warm it up, act at a steady rate.

What a robot needs of motet is the folder of a run. A policy is read without running any code of the folder's, decides
for one observation at a time, and carries its own memory if it has one. Here Gymnasium's pendulum stands in for the
robot; put sensors and motors in its place.

    motet train sac Pendulum-v1 --total-timesteps 20_000 --run-dir runs/pendulum
    python examples/robot_loop.py --run-dir runs/pendulum
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium
import numpy as np
import tyro

import motet


def control(policy: motet.Policy, seconds: float, hertz: float) -> np.ndarray:
    """Act so many times a second -> how long each decision took, in seconds."""
    robot = gymnasium.make("Pendulum-v1")
    observation, _ = robot.reset(seed=0)
    policy(observation)  # The first decision compiles: before the loop begins, not in it.
    policy.reset()
    late, took, total = 0, [], 0.0
    tick = time.monotonic()
    for _ in range(int(seconds * hertz)):
        start = time.monotonic()
        action = policy(observation)
        took.append(time.monotonic() - start)
        observation, reward, *_ = robot.step(action)
        total += float(reward)
        tick += 1 / hertz
        late += time.monotonic() > tick
        time.sleep(max(0.0, tick - time.monotonic()))
    print(f"{len(took)} decisions, {late} of them late; return {total:.1f}")
    return np.array(took)


def main(run_dir: Path | None = None, seconds: float = 10.0, hertz: float = 20.0, steps: int = 20_000) -> None:
    """Drive the robot with the policy in a run's folder; without one, train SAC in so many steps first."""
    with TemporaryDirectory() as folder:
        if run_dir is None:
            run_dir = Path(folder) / "run"
            sac = motet.SAC(learning_starts=min(1_000, steps // 2), hidden=(64, 64))
            motet.train(sac, "Pendulum-v1", total_timesteps=steps, run_dir=run_dir)
        took = control(motet.Policy.load(run_dir, motet.SAC), seconds, hertz)
    print(f"a decision takes {np.median(took) * 1e3:.2f} ms, the slowest took {took.max() * 1e3:.2f} ms")


if __name__ == "__main__":
    tyro.cli(main)
