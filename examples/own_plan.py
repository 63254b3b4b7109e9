"""A plan of your own: who runs which part of the loop, and how late values may be.

A plan is a small value. This one gives acting, remembering and learning a fragment each, lets the acting policy be one
iteration old, and has the replay draw a batch before the learner asks for it. It names kinds of nodes, never an
algorithm, and so serves each one that has a replay. `docs/writing-a-plan.md` has the whole story.

    python examples/own_plan.py --steps 20_000
    motet plan dqn CartPole-v1 --plan warehouse.json        (after --save warehouse.json)
"""

from __future__ import annotations

from pathlib import Path

import tyro

import motet
from motet import Fragment, Link, Plan


def warehouse(actors: int = 2, lag: int = 1, ahead: int = 1) -> Plan:
    """Actors, a replay and a learner, each in a place of its own."""
    return Plan(
        {
            "actors": Fragment(("act", "env"), replicas=actors),
            "warehouse": Fragment(("remember", "sample", "reprioritize")),
            "learner": Fragment(("*",)),
        },
        {"policy": Link(lag), "sample": Link(ahead)},
        name="warehouse",
    )


def main(steps: int = 20_000, save: Path | None = None) -> None:
    """Train DQN and SAC in so many steps under the plan; write it to a file if one is named."""
    plan = warehouse()
    if save is not None:
        save.write_text(plan.to_json())
    dqn = motet.DQN(num_envs=8, train_frequency=4, gradient_steps=4, learning_starts=min(1_000, steps // 2))
    sac = motet.SAC(num_envs=8, gradient_steps=1, learning_starts=min(1_000, steps // 2), hidden=(64, 64))
    for algorithm, env in ((dqn, "CartPole-v1"), (sac, "Pendulum-v1")):
        result = motet.train(algorithm, env, plan, total_timesteps=steps)
        print(f"{type(algorithm).__name__} on {env}, {result.steps:,} steps")
        for link in result.links:
            ends = f"{link.source:>9} -> {link.target:<9}"
            print(f"  {link.link:<8} {ends} {link.messages:>7,} messages {link.bytes:>12,} bytes")


if __name__ == "__main__":
    tyro.cli(main)
