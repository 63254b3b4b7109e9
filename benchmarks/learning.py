"""`python -m benchmarks.learning [NAME ...]`: train over several seeds and see how good the greedy policies are.

The options below are those that differ from an algorithm's defaults. A claim holds when every seed's mean return over
100 episodes reaches the target. Nothing was chosen by looking at these seeds.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
EPISODES = 100


@dataclass(frozen=True)
class Claim:
    """An algorithm that reaches a return on an environment within some steps, whatever the seed."""

    name: str
    algorithm: str
    env: str
    target: float
    total_timesteps: int
    seeds: tuple[int, ...] = (1000, 1001, 1002)
    options: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=lambda: {"name": "anakin"})
    """A preset's name and its options."""
    shown: tuple[int, ...] | None = None
    """Which numbers of an observation are shown; None: all."""
    fails: bool = False
    """True: it must NOT reach the target, or the task would not need what another claim shows."""

    def meets(self, value: float) -> bool:
        return (value >= self.target) is not self.fails


@dataclass(frozen=True)
class Outcome:
    """What one claim's runs came to."""

    claim: Claim
    returns: tuple[float, ...]
    """The mean return of each seed's policy."""

    @property
    def holds(self) -> bool:
        return all(map(self.claim.meets, self.returns))


FIVE = (1000, 1001, 1002, 1003, 1004)
QUICK = {
    # Few and long steps, for environments that cost nothing.
    "num_envs": 64,
    "num_steps": 64,
    "update_epochs": 4,
    "num_minibatches": 8,
    "learning_rate": 2e-3,
    "anneal": True,
    "value_weight": 0.5,
    "entropy_weight": 0.01,
}
SQUARED = {"batch_size": 128, "target_period": 50, "adam_epsilon": 0.01, "huber": None}
ONE_UPDATE_FOR_8 = {**SQUARED, "gradient_steps": 1, "n_step": 5}
PENDULUM = {
    # Rewards are dense and far from 0: look less far ahead, and take more and smaller steps.
    **QUICK,
    "update_epochs": 8,
    "num_minibatches": 16,
    "discount": 0.95,
    "entropy_weight": 0.0,
}
MOUNTAIN_CAR = {
    # The one reward is far away, and random pushes cancel out unless they last.
    "random_hold": 20,
    "learning_rate": 3e-4,
    "learning_starts": 8_000,
    "hidden": (64, 64),
}
LUNAR_LANDER = {
    **QUICK,
    "num_envs": 16,
    "num_steps": 512,
    "num_minibatches": 64,
    "gae_lambda": 0.98,
    "discount": 0.999,
    "learning_rate": 5e-4,
}
SEBULBA = {"name": "sebulba", "threads": 2, "workers": 1}
BATCHED = {"name": "batched", "workers": 2}


def lagging(lag: int) -> dict[str, Any]:
    """Two actors, so many iterations behind the learner."""
    return {"name": "coarse", "actors": 2, "lag": lag}


CLAIMS = (
    Claim("ppo_cartpole", "ppo", "CartPole-v1", 475, 300_000, seeds=FIVE, options=QUICK),
    Claim(
        "ppo_pendulum",
        "ppo",
        "Pendulum-v1",
        -250,
        1_000_000,
        options=PENDULUM,
    ),
    Claim("ppo_acrobot", "ppo", "Acrobot-v1", -100, 500_000, options=QUICK),
    Claim("a2c_cartpole", "a2c", "CartPole-v1", 450, 500_000),
    Claim("impala_cartpole_lag_1", "impala", "CartPole-v1", 450, 500_000, seeds=FIVE, plan=lagging(1)),
    Claim("impala_cartpole_lag_4", "impala", "CartPole-v1", 450, 500_000, seeds=FIVE, plan=lagging(4)),
    # What its options are was decided after seeds below 6000 had been looked at.
    Claim(
        "dqn_cartpole",
        "dqn",
        "CartPole-v1",
        475,
        200_000,
        seeds=(6000, 6001, 6002, 6003, 6004),
        options=ONE_UPDATE_FOR_8,
    ),
    Claim(
        "dqn_prioritised",
        "dqn",
        "CartPole-v1",
        475,
        200_000,
        seeds=(6000, 6001, 6002),
        options={**ONE_UPDATE_FOR_8, "prioritised": True},
    ),
    Claim(
        "dqn_acrobot",
        "dqn",
        "Acrobot-v1",
        -100,
        300_000,
        seeds=(8000, 8001, 8002),
        options={**ONE_UPDATE_FOR_8, "n_step": 1},
    ),
    Claim(
        "dqn_lunar_lander",
        "dqn",
        "gymnasium/LunarLander-v3",
        150,
        250_000,
        seeds=(7000, 7001, 7002),
        options={**SQUARED, "buffer_size": 100_000, "gradient_steps": 2, "hidden": (256, 256), "n_step": 3},
        plan={"name": "multi_learner", "learners": 1},
    ),
    Claim("ddpg_pendulum", "ddpg", "Pendulum-v1", -200, 15_000),
    Claim("td3_pendulum", "td3", "Pendulum-v1", -200, 15_000),
    Claim(
        "sac_pendulum",
        "sac",
        "Pendulum-v1",
        -180,
        15_000,
        options={"learning_starts": 1_000, "learning_rate": 3e-4},
    ),
    Claim("sac_mountain_car", "sac", "MountainCarContinuous-v0", 85, 30_000, options=MOUNTAIN_CAR),
    Claim("ppo_catch", "ppo", "Catch-v0", 0.9, 300_000, options=QUICK),
    Claim("ppo_hosted_sebulba", "ppo", "gymnasium/CartPole-v1", 475, 300_000, options=QUICK, plan=SEBULBA),
    Claim("ppo_hosted_batched", "ppo", "gymnasium/CartPole-v1", 475, 300_000, options=QUICK, plan=BATCHED),
    Claim("ppo_hosted_pendulum", "ppo", "gymnasium/Pendulum-v1", -250, 1_000_000, options=PENDULUM, plan=SEBULBA),
    Claim("ppo_lunar_lander", "ppo", "gymnasium/LunarLander-v3", 200, 1_500_000, options=LUNAR_LANDER, plan=SEBULBA),
    Claim("ppo_memory_gru", "ppo", "CartPole-v1", 450, 1_000_000, options={**QUICK, "core": "gru"}, shown=(0, 2)),
    Claim("ppo_memory_none", "ppo", "CartPole-v1", 150, 1_000_000, options=QUICK, shown=(0, 2), fails=True),
)


def learn(claim: Claim, seed: int) -> float:
    """Train with one seed -> the mean return of the greedy policy."""
    import motet
    from motet import algorithms
    from motet.envs.wrappers import SelectObservation
    from motet.plan.presets import preset

    algorithm = algorithms.find(claim.algorithm)(**claim.options)
    env: Any = motet.make(claim.env)
    if claim.shown is not None:
        env = SelectObservation(env, claim.shown)
    result = motet.train(algorithm, env, plan=preset(**claim.plan), total_timesteps=claim.total_timesteps, seed=seed)
    # Episodes of their own: no seed of training is near this one.
    return motet.evaluate(result.policy, env, episodes=EPISODES, seed=10_000 + seed).mean


def run(claim: Claim) -> Outcome:
    """Train with every seed, and say how it went."""
    returns = []
    for seed in claim.seeds:
        returns.append(learn(claim, seed))
        print(f"  {claim.name} seed {seed}: {returns[-1]:.2f}", flush=True)
    outcome = Outcome(claim, tuple(returns))
    worst, bound = (max, "below") if claim.fails else (min, "at least")
    said = f"{worst(returns):.2f} the worst of {len(returns)} seeds"
    print(f"{claim.name}: {said}, {bound} {claim.target:g}, {'ok' if outcome.holds else 'short'}", flush=True)
    return outcome


def record(outcome: Outcome) -> dict[str, Any]:
    versions = {name: importlib.metadata.version(name) for name in ("motet", "jax", "jaxlib", "flax", "optax")}
    return {**asdict(outcome.claim), "returns": outcome.returns, "holds": outcome.holds, "versions": versions}


def save(outcomes: Sequence[Outcome]) -> None:
    """Write the outcomes into the results; those of other claims stay."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "learning.json"
    old = json.loads(path.read_text()) if path.is_file() else {}
    new = {**old, **{outcome.claim.name: record(outcome) for outcome in outcomes}}
    ordered = {claim.name: new[claim.name] for claim in CLAIMS if claim.name in new}
    path.write_text(json.dumps(ordered, indent=2) + "\n")
    (RESULTS / "learning.md").write_text(table(ordered))


def table(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The results as Markdown."""
    rows = [
        "# What motet learns",
        "",
        f"The mean return of the greedy policy over {EPISODES} episodes, for each seed. Options are those that differ",
        "from the algorithm's defaults. None of them was chosen by looking at these seeds.",
        "",
        "| command | environment | plan | steps | options | seeds | returns | target | holds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in records.items():
        options = ", ".join(f"{key} = {value}" for key, value in each["options"].items()) or "defaults"
        returns = ", ".join(f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" for value in each["returns"])
        cells = (
            f"`python -m benchmarks.learning {name}`",
            each["env"] + (f", numbers {each['shown']} shown" if each["shown"] else ""),
            _call(each["plan"]),
            f"{each['total_timesteps']:,}",
            options,
            ", ".join(map(str, each["seeds"])),
            returns,
            f"{'below' if each['fails'] else 'at least'} {each['target']:g}",
            "yes" if each["holds"] else "no",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _call(plan: Mapping[str, Any]) -> str:
    options = ", ".join(f"{key}={value}" for key, value in plan.items() if key != "name")
    return f"{plan['name']}({options})"


def main(names: Sequence[str]) -> int:
    known = {claim.name: claim for claim in CLAIMS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no claim is called {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    outcomes = [run(known[name]) for name in names or known]
    save(outcomes)
    return 0 if all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
