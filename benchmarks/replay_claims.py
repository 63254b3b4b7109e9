"""What motet claims about the speed of learning from a replay."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks import peers
from benchmarks.claims import NOTE, Claim, Measurement, compare
from benchmarks.replay_sides import WARM
from benchmarks.sides import Side
from benchmarks.sum_tree import BATCH, CALLS, LEAVES

DQN = {
    "num_envs": 1,
    "train_frequency": 1,
    "gradient_steps": 1,
    "batch_size": 64,
    "buffer_size": 50_000,
    "learning_starts": WARM,
    "target_period": 1_000,
    "learning_rate": 5e-4,
    "adam_epsilon": 0.01,
    "huber": None,
    "max_gradient_norm": 10.0,
    "exploration": 0.3,
    "last_epsilon": 0.05,
    "hidden": (64, 64),
    "n_step": 1,
    "double": False,
}
"""One environment, one gradient step for each of its steps; what the peers do not do is off."""
DDPG = {
    "num_envs": 1,
    "train_frequency": 1,
    "gradient_steps": 1,
    "batch_size": 64,
    "buffer_size": 50_000,
    "learning_starts": WARM,
    "learning_rate": 1e-3,
    "hidden": (256, 256),
}
REJAX = {
    "num_envs": 1,
    "num_epochs": 1,
    "batch_size": 64,
    "buffer_size": 50_000,
    "fill_buffer": WARM,
    "target_update_freq": 1_000,
    "learning_rate": 5e-4,
    "ddqn": False,
    "agent_kwargs": {"activation": "relu"},
}
"""The same DQN in rejax's words; its network is always 64-64."""
ALONE = {"name": "multi_learner", "learners": 1}
"""One thread: with one environment, handing every step to another thread takes longer than the step."""


def _steps(settings: Mapping[str, Any]) -> int:
    options = settings["options"]
    return settings["iterations"] * options["train_frequency"] * options["num_envs"]


def vs_library(settings: Mapping[str, Any]) -> Measurement:
    """A whole run beside one of Stable-Baselines3 or SBX, in the same environment."""
    env = settings["env"].removeprefix("gymnasium/")
    ours = {name: settings[name] for name in ("algorithm", "env", "options", "plan", "iterations")}
    theirs = {"library": settings["library"], "kind": settings["algorithm"].upper(), "env": env}
    theirs |= {"options": settings["options"], "steps": _steps(settings)}
    python = peers.python()
    return compare(
        lambda: Side("trained", ours),
        lambda: Side("off_policy", theirs, python),
        settings["rounds"],
        _steps(settings),
    )


def vs_rejax(settings: Mapping[str, Any]) -> Measurement:
    ours = {name: settings[name] for name in ("algorithm", "env", "options", "iterations")}
    theirs = {"options": settings["rejax options"], "steps": _steps(settings)}
    python = peers.python()
    return compare(
        lambda: Side("motet", ours), lambda: Side("rejax_dqn", theirs, python), settings["rounds"], _steps(settings)
    )


def vs_tianshou(settings: Mapping[str, Any]) -> Measurement:
    """How many times as fast as Tianshou's the tree is, one hundred calls a sample."""
    python = peers.python()
    measured = compare(
        lambda: Side("sum_tree", {"place": "host", "what": settings["what"], "fan_out": settings["fan out"]}),
        lambda: Side("sum_tree", {"place": "tianshou", "what": settings["what"]}, python),
        settings["rounds"],
        CALLS,
    )
    return Measurement(measured.value, measured.samples, "calls/s", measured.versions)


def prefetch(settings: Mapping[str, Any]) -> Measurement:
    """The same plan with and without a batch drawn ahead, behind slow links."""
    shared = {name: settings[name] for name in ("algorithm", "env", "options", "iterations", "latency")}
    plans = [{**settings["plan"], "prefetch": depth} for depth in (1, 0)]
    return compare(
        lambda: Side("trained", {**shared, "plan": plans[0]}),
        lambda: Side("trained", {**shared, "plan": plans[1]}),
        settings["rounds"],
        _steps(settings),
    )


def table(settings: Mapping[str, Any]) -> Measurement:
    """All trees at all fan-outs, in microseconds; the value is the host's best sample."""
    from benchmarks import sum_tree

    found = sum_tree.measure(sum_tree.sides(("host", "xla", "opencl")), settings["rounds"])
    samples = {f"{name} {what}": [1e3 * value] for name, row in found.items() for what, value in row.items()}
    best = min(values[0] for name, values in samples.items() if name.startswith("host") and name.endswith("sample"))
    for name, row in found.items():
        print(f"  {name:>12}  update {1e3 * row['update']:8.1f} us  sample {1e3 * row['sample']:8.1f} us")
    return Measurement(statistics.median([best]), samples, "microseconds", {})


HOSTED_DQN = {
    "algorithm": "dqn",
    "env": "gymnasium/CartPole-v1",
    "options": DQN,
    "plan": ALONE,
    "iterations": 1_000,
    "rounds": 7,
}
HOSTED_DDPG = {
    "algorithm": "ddpg",
    "env": "gymnasium/Pendulum-v1",
    "options": DDPG,
    "plan": ALONE,
    "iterations": 300,
    "rounds": 7,
}
TREE = {"leaves": LEAVES, "items": BATCH, "fan out": 16, "rounds": 21}

CLAIMS = (
    Claim(
        "dqn_vs_sb3",
        {**HOSTED_DQN, "library": "stable_baselines3", "how": f"motet / Stable-Baselines3's DQN; {NOTE}"},
        vs_library,
        at_least=5,
    ),
    Claim(
        "dqn_vs_sbx",
        {**HOSTED_DQN, "library": "sbx", "how": f"motet / SBX's DQN; {NOTE}"},
        vs_library,
        at_least=8,
    ),
    Claim(
        "dqn_vs_rejax",
        {
            "algorithm": "dqn",
            "env": "CartPole-v1",
            "options": DQN,
            "rejax options": REJAX,
            "iterations": 5_000,
            "rounds": 7,
            "how": f"motet's anakin / rejax's DQN, its train_iteration in a compiled loop; {NOTE}",
        },
        vs_rejax,
        at_least=7,
    ),
    Claim(
        "ddpg_vs_sb3",
        {**HOSTED_DDPG, "library": "stable_baselines3", "how": f"motet / Stable-Baselines3's DDPG; {NOTE}"},
        vs_library,
        at_least=3,
    ),
    Claim(
        "ddpg_vs_sbx",
        {**HOSTED_DDPG, "library": "sbx", "how": f"motet / SBX's DDPG; {NOTE}"},
        vs_library,
        at_least=1.8,
    ),
    Claim(
        "tree_update_vs_tianshou",
        {**TREE, "what": "update", "how": f"the host's sum tree / Tianshou's, another batch in each call; {NOTE}"},
        vs_tianshou,
        at_least=1,
    ),
    Claim(
        "tree_sample_vs_tianshou",
        {**TREE, "what": "sample", "how": f"the host's sum tree / Tianshou's, another batch in each call; {NOTE}"},
        vs_tianshou,
        at_least=1,
    ),
    Claim(
        "tree_table",
        {"leaves": LEAVES, "items": BATCH, "rounds": 15, "how": "the best of all rounds; the value is the host's"},
        table,
        unit=" us",
    ),
    Claim(
        "prefetch",
        {
            "algorithm": "dqn",
            "env": "CartPole-v1",
            "options": {**DQN, "num_envs": 4, "gradient_steps": 4, "prioritised": True},
            "plan": {"name": "pearl", "lag": 1},
            "latency": {"rollout": 0.002, "sample": 0.002, "priorities": 0.002},
            "iterations": 50,
            "rounds": 7,
            "how": f"pearl with prefetch 1 / with prefetch 0, every link of the replay 2 ms long; {NOTE}",
        },
        prefetch,
        at_least=1.3,
    ),
)
