"""What a run costs that is watched, recorded and saved, beside the same run without any of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.claims import Claim, Measurement, _child

RUN = """
import json, tempfile, motet
algorithm = motet.{algorithm}(**{options})
more = {{"progress": False}}
with tempfile.TemporaryDirectory() as base:
    if {kept}:
        more = {{"progress": True, "run_dir": base + "/run", "checkpoint_seconds": {seconds}}}
    result = motet.train(algorithm, {env!r}, motet.anakin(), total_timesteps={steps}, **more)
rows = [row for row in result.history if row["steps"] > {steps} // 10]  # the first tenth warms up
print()
print(json.dumps((rows[-1]["steps"] - rows[0]["steps"]) / (rows[-1]["seconds"] - rows[0]["seconds"])))
"""


def upkeep(settings: Mapping[str, Any]) -> Measurement:
    """The speed of a run with everything that is on by default, as a share of its speed with all of it off."""
    samples: dict[str, list[float]] = {"kept": [], "bare": []}
    given = {name: settings[name] for name in ("algorithm", "options", "env", "steps")}
    for _ in range(settings["rounds"]):
        for name in samples:
            code = RUN.format(kept=name == "kept", seconds=settings["checkpoint seconds"], **given)
            samples[name].append(_child(code, TERMINAL))
    ratios = [kept / bare for kept, bare in zip(samples["kept"], samples["bare"], strict=True)]
    return Measurement(statistics.median(ratios), samples, "environment steps/s", {})


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
"""What is shown is shown as on a terminal: the panel, and not lines."""
HOW = "metrics, table, TensorBoard, panel and checkpoints on, beside all of them off; processes in turn, medians"

CLAIMS = (
    Claim(
        "upkeep_ppo",
        {
            "algorithm": "PPO",
            "env": "CartPole-v1",
            "options": {"num_envs": 64, "num_steps": 128, "update_epochs": 4, "num_minibatches": 4, "hidden": (64, 64)},
            "steps": 16_000_000,  # a minute or more, so that there are checkpoints in it
            "checkpoint seconds": 30,
            "rounds": 3,
            "how": HOW,
        },
        upkeep,
        at_least=0.97,
    ),
    Claim(
        "upkeep_dqn",
        {
            "algorithm": "DQN",
            "env": "CartPole-v1",
            "options": {
                "num_envs": 1,
                "train_frequency": 1,
                "gradient_steps": 1,
                "batch_size": 64,
                "buffer_size": 1_000_000,
                "learning_starts": 1_000,
                "target_period": 50,
                "adam_epsilon": 0.01,
                "huber": None,
                "hidden": (64, 64),
            },
            "steps": 1_000_000,  # long enough for a checkpoint, and to fill the replay
            "checkpoint seconds": 30,
            "rounds": 3,
            "how": HOW,
        },
        upkeep,
        at_least=0.97,
    ),
)
