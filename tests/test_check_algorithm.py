"""`check_algorithm` names the method that breaks a rule of batches, the rule and the array, and lets others pass."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import motet
from motet import cli
from motet.envs.gymnasium import Gymnasium
from tests.flow.probe import Learner, Probe
from tests.laws import host_envs
from tests.laws.cases import ALGORITHMS
from tests.published.curious import RandomNetworkDistillation
from tests.published.walk import Walk

pytestmark = pytest.mark.apart

WALK = Walk()
SHARDED = {"anakin(2)": motet.anakin(2)}


class OneStep(Probe):
    """Computes gradients where the state is changed."""

    def learn(self, state: Learner, rollout: motet.Rollout) -> Learner:  # type: ignore[override]
        return self.apply(state, self.gradient(state.params, rollout)[0])

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.learn, flow.unroll(self.act, steps=self.steps))


class MaskedMean(Probe):
    """A mean over the steps that count, as one would write it for a batch in one piece."""

    def gradient(self, params: Any, batch: Any) -> Any:
        def loss(params: Any) -> jax.Array:
            log_p = jax.nn.log_softmax(self.logits(params, batch.observation))
            mask = (batch.observation[..., 0] > 0).astype(log_p.dtype)
            return jnp.sum(mask * log_p[..., 0] * batch.reward) / jnp.sum(mask)

        value, gradient = jax.value_and_grad(loss)(params)
        return gradient, {"loss": value}


class Scaled(Probe):
    """Divides rewards by the largest of the batch."""

    def gradient(self, params: Any, batch: Any) -> Any:
        return super().gradient(params, replace(batch, reward=self.scale(params, batch)))

    def scale(self, params: Any, batch: Any) -> jax.Array:
        return batch.reward / jnp.max(jnp.abs(batch.reward))


class ScaledBefore(Scaled):
    """In a method of its own, so that there are rows that differ."""

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        reward = flow.call(self.scale, rollout)
        gradient, metrics = flow.call(Probe(num_envs=self.num_envs).gradient, replace(rollout, reward=reward))
        flow.apply(self.apply, gradient)
        flow.report(metrics)


class OneKey(Probe):
    """Draws for all rows with the key of the batch."""

    def gradient(self, params: Any, batch: Any, key: jax.Array) -> Any:  # type: ignore[override]
        noise = jax.random.normal(key, batch.reward.shape)
        return super().gradient(params, replace(batch, reward=batch.reward + noise))


class OwnKey(Probe):
    """Draws for all rows with a key of its own, which nothing knows of."""

    def gradient(self, params: Any, batch: Any) -> Any:
        noise = jax.random.normal(jax.random.key(7), batch.reward.shape)
        return super().gradient(params, replace(batch, reward=batch.reward + noise))


class Doubled(Probe):
    """Doubles all rewards if one is large."""

    def double(self, params: Any, rollout: motet.Rollout) -> jax.Array:
        return jnp.where(jnp.any(rollout.reward > 0.97), 2 * rollout.reward, rollout.reward)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        self.learn(flow, replace(rollout, reward=flow.call(self.double, rollout)))


class Summed(Probe):
    """A sum and a largest value over the batch, which pieces add up and compare."""

    def gradient(self, params: Any, batch: Any) -> Any:
        gradient, _ = super().gradient(params, batch)
        return gradient, {"sum": jnp.sum(batch.reward), "largest": jnp.max(batch.reward)}


class RowKeys(Probe):
    """Draws for each row of a minibatch with the row's own key."""

    def gradient(self, params: Any, batch: Any, keys: jax.Array) -> Any:  # type: ignore[override]
        noise = jax.vmap(jax.random.normal)(keys)
        return super().gradient(params, replace(batch, reward=batch.reward + noise))

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.steps)
        with flow.minibatches(rollout, epochs=1, count=2) as minibatch:
            Probe.learn(self, flow, minibatch)


BROKEN = {
    "an update from rows": (OneStep(), "learn", "a state changes by results over the whole batch", "learner.params"),
    "a masked mean": (MaskedMean(), "gradient", "what has no row for each environment", "gradient.0"),
    "a largest value": (Scaled(), "gradient", "what has no row for each environment", "gradient.0"),
    "rows by a statistic": (ScaledBefore(), "scale", "statistics that rows are computed with", "scale"),
    "one key for all rows": (OneKey(), "gradient", "random numbers for rows come from `keys`", "gradient.0"),
    "a key of its own": (OwnKey(), "gradient", "random numbers for rows come from `keys`", "gradient.0"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named_with_the_method_and_what_differs(name: str) -> None:
    algorithm, method, rule, leaf = BROKEN[name]
    report = motet.check_algorithm(algorithm, WALK, plans={}, iterations=2)
    assert not report.ok
    first = report.broken[0]
    assert first.method == method and rule in first.rule
    assert leaf in {each.leaf.partition("[")[0] for each in first.differences}
    assert all(each.largest > 1e-6 for each in first.differences)
    said = str(report)
    assert said.splitlines()[0] == f"{type(algorithm).__name__} on Walk, 2 iterations in double precision"
    assert f"The rule: {rule}" in said and "It breaks a rule of batches." in said


@pytest.mark.parametrize(
    "algorithm", [Summed(), RowKeys(), RandomNetworkDistillation()], ids=lambda a: type(a).__name__
)
def test_what_pieces_add_up_to_breaks_no_rule(algorithm: motet.Algorithm) -> None:
    report = motet.check_algorithm(algorithm, WALK, plans={}, iterations=2)
    assert report.ok and report.broken == (), report
    assert "gradient" in report.methods and "act" in report.methods


def test_a_difference_that_a_plan_accepts_shows_in_what_the_plan_learns() -> None:
    accepted = {name: replace(plan, per_replica=("double",)) for name, plan in SHARDED.items()}
    report = motet.check_algorithm(Doubled(), WALK, plans=accepted, iterations=3)
    (sharded,) = report.plans
    assert not sharded.same and sharded.difference is not None
    assert "learns another learner.params" in str(report)


def test_what_plans_refuse_is_said_with_the_reason() -> None:
    report = motet.check_algorithm(OneStep(), WALK, plans=SHARDED, iterations=2)
    (sharded,) = report.plans
    assert sharded.same and "node 'learn' reads" in sharded.refused[0]
    assert "anakin(2)  refused: node 'learn' reads" in str(report)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_ours_keep_the_rules_under_every_plan(name: str) -> None:
    report = motet.check_algorithm(ALGORITHMS[name], "CartPole-v1", iterations=2)
    assert report.ok, report
    refused = {plan.plan for plan in report.plans if plan.refused}
    assert refused == ({"central(2)"} if name == "ppo" else set())
    assert len(report.plans) == (4 if name == "ppo" else 5)
    assert jnp.zeros(()).dtype == jnp.result_type(float)  # the precision is as it was


class Single(MaskedMean):
    """Has parameters in single precision, as networks of a library do."""

    masked = False

    def init(self, key: jax.Array) -> Learner:
        return Learner(0.1 * jax.random.normal(key, (3, 2), jnp.float32), jnp.zeros((), jnp.int32))

    def gradient(self, params: Any, batch: Any) -> Any:
        return (MaskedMean if self.masked else Probe).gradient(self, params, batch)


class Insistent(Single):
    """Computes in single precision, come what may."""

    def logits(self, params: jax.Array, observation: jax.Array) -> jax.Array:
        return super().logits(params.astype(jnp.float32), observation.astype(jnp.float32))

    def apply(self, state: Learner, gradient: jax.Array) -> Learner:
        after = super().apply(state, gradient)
        return replace(after, params=after.params.astype(jnp.float32))


@pytest.mark.parametrize("kind", [Single, Insistent])
def test_rounding_in_single_precision_breaks_no_rule(kind: type[Single]) -> None:
    report = motet.check_algorithm(kind(), WALK, plans=SHARDED, iterations=4)
    assert report.ok, report
    broken = type(kind.__name__, (kind,), {"masked": True})()
    report = motet.check_algorithm(broken, WALK, plans={}, iterations=2)
    assert [each.method for each in report.broken] == ["gradient"]


class Blind(Probe):
    """For observations of one number."""

    def init(self, key: jax.Array) -> Learner:
        return Learner(0.1 * jax.random.normal(key, (2, 2)), jnp.zeros((), jnp.int32))


def test_host_environments_are_checked_with_plans_that_take_them() -> None:
    report = motet.check_algorithm(Blind(), Gymnasium(host_envs.Numbered), iterations=2)
    assert report.ok, report
    assert [plan.plan for plan in report.plans] == ["multi_learner(2)", "coarse(2)", "fine(2)", "central(2)"]
    assert not any(plan.refused for plan in report.plans)


def test_a_loop_that_cannot_be_traced_is_reported() -> None:
    class Idle(Probe):
        def loop(self, flow: motet.Flow) -> None:
            flow.unroll(self.act, steps=2)

    report = motet.check_algorithm(Idle(), WALK)
    assert not report.ok and "never calls flow.apply" in str(report)


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check-algorithm", "a2c", "CartPole-v1", *SMALL]) == 0
    assert "It keeps the rules of batches." in capsys.readouterr().out


SMALL = ["--num-envs", "4", "--num-steps", "3", "--hidden", "4", "--iterations", "1"]
ASTRAY = """
from dataclasses import dataclass

import motet


@dataclass(frozen=True, kw_only=True)
class Astray(motet.A2C):
    def loop(self, flow):
        flow.apply(self.learn, flow.unroll(self.act, steps=self.num_steps))

    def learn(self, state, rollout):
        return self.apply(state, self.gradient(state.params, rollout)[0])
"""


@pytest.mark.parametrize("name", ["astray:Astray", "astray.py:Astray"])
def test_the_command_checks_an_algorithm_of_ones_own(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of its module, or of its file."""
    (tmp_path / "astray.py").write_text(ASTRAY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "astray", raising=False)
    assert cli.main(["check-algorithm", name, "CartPole-v1", *SMALL]) == 1
    said = capsys.readouterr().out
    assert said.startswith("Astray on CartPole-v1") and "\nlearn\n" in said and "It breaks a rule of batches." in said


def test_bad_options_are_told() -> None:
    with pytest.raises(motet.BadOption, match="iterations must be at least 1"):
        motet.check_algorithm(Probe(), WALK, iterations=0)
    with pytest.raises(motet.BadOption, match="algorithm must be a name"):
        motet.check_algorithm(Probe, WALK)  # type: ignore[arg-type]
