"""`python -m benchmarks.learning [NAME ...]`: train over several seeds and see how good the greedy policies are.

The options below are those that differ from an algorithm's defaults. A claim holds when every seed's mean return over
100 episodes reaches the target.
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
    seeds: tuple[int, ...] = (0, 1, 2)
    options: Mapping[str, Any] = field(default_factory=dict)
    lag: int | None = None
    """None: one fused program. Else two actors act so many iterations behind the learner."""


@dataclass(frozen=True)
class Outcome:
    """What one claim's runs came to."""

    claim: Claim
    returns: tuple[float, ...]
    """The mean return of each seed's policy."""

    @property
    def holds(self) -> bool:
        return min(self.returns) >= self.claim.target


CLAIMS = (
    Claim("ppo_cartpole", "ppo", "CartPole-v1", 475, 300_000, seeds=(0, 1, 2, 3, 4)),
    Claim(
        "ppo_pendulum",
        "ppo",
        "Pendulum-v1",
        -250,
        1_000_000,
        # Rewards are dense and far from 0: look less far ahead, and take more and smaller steps.
        options={
            "update_epochs": 8,
            "num_minibatches": 16,
            "discount": 0.95,
            "entropy_weight": 0.0,
        },
    ),
    Claim("ppo_acrobot", "ppo", "Acrobot-v1", -100, 500_000),
    Claim("a2c_cartpole", "a2c", "CartPole-v1", 450, 500_000),
    Claim("impala_cartpole_lag_1", "impala", "CartPole-v1", 450, 500_000, seeds=(0, 1, 2, 3, 4), lag=1),
    Claim("impala_cartpole_lag_4", "impala", "CartPole-v1", 450, 500_000, seeds=(0, 1, 2, 3, 4), lag=4),
    Claim("dqn_cartpole", "dqn", "CartPole-v1", 450, 200_000),
    Claim("ppo_catch", "ppo", "Catch-v0", 0.9, 300_000),
)


def learn(claim: Claim, seed: int) -> float:
    """Train with one seed -> the mean return of the greedy policy."""
    import motet
    from motet import algorithms

    algorithm = algorithms.find(claim.algorithm)(**claim.options)
    plan = motet.anakin() if claim.lag is None else motet.coarse(2, lag=claim.lag)
    result = motet.train(algorithm, claim.env, plan=plan, total_timesteps=claim.total_timesteps, seed=seed)
    # Episodes of their own: no seed of training is near this one.
    return motet.evaluate(result.policy, motet.make(claim.env), episodes=EPISODES, seed=10_000 + seed).mean


def run(claim: Claim) -> Outcome:
    """Train with every seed, and say how it went."""
    returns = []
    for seed in claim.seeds:
        returns.append(learn(claim, seed))
        print(f"  {claim.name} seed {seed}: {returns[-1]:.2f}", flush=True)
    outcome = Outcome(claim, tuple(returns))
    worst = f"{min(returns):.2f} the worst of {len(returns)} seeds"
    print(f"{claim.name}: {worst}, at least {claim.target:g}, {'ok' if outcome.holds else 'short'}", flush=True)
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
        "from the algorithm's defaults. They were tuned on these same seeds, so other seeds may do worse; IMPALA's",
        "defaults were chosen on others (100 to 113). With a lag, two actors are that many iterations behind.",
        "",
        "| command | environment | steps | options | lag | seeds | returns | target | holds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in records.items():
        options = ", ".join(f"{key} = {value}" for key, value in each["options"].items()) or "defaults"
        returns = ", ".join(f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" for value in each["returns"])
        cells = (
            f"`python -m benchmarks.learning {name}`",
            each["env"],
            f"{each['total_timesteps']:,}",
            options,
            "none" if each.get("lag") is None else str(each["lag"]),
            ", ".join(map(str, each["seeds"])),
            returns,
            f"{each['target']:g}",
            "yes" if each["holds"] else "no",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


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
