"""What a cut would change is refused or combined exactly: algorithms as users write them, whole and in pieces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.run import Outcome, gather
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.flow.values import is_key
from motet.plan.check import violations
from tests.laws.cases import assert_close, run, traced

ENVS, STEPS = 8, 6
WHOLE, SHARDED, CENTRAL, COARSE = motet.anakin(), motet.anakin(2), motet.central(2), motet.coarse(2)
WORKERS = motet.Plan(
    {"workers": motet.Fragment(("*",), replicas=2, shards=2), "server": motet.Fragment(("apply",))}, name="workers"
)
"""Replicas of shards: pieces are joined by a collective first, and then by messages."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    params: jax.Array  # [4, 2]
    seen: Any
    """What the last `learn` returned."""


def average(params: jax.Array, rollout: motet.Rollout) -> jax.Array:
    return jnp.mean(rollout.reward)


@dataclass(frozen=True, kw_only=True)
class Sketch(motet.Algorithm):
    """A linear policy, and one called method whose results are kept."""

    num_envs: int = ENVS
    max_lag = 0
    learn: Callable[..., Any] | None = None
    """What is called; None: the mean of the rewards."""
    minibatches: int = 0

    def init(self, key: jax.Array) -> State:
        params = jax.random.normal(key, (4, 2))
        seen = jax.eval_shape(self.learn or average, params, *self.example(params))
        return State(params, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), seen))

    def example(self, params: jax.Array) -> tuple[Any, ...]:
        """What `learn` gets: a rollout, or a minibatch of observations and keys."""
        shape = (STEPS * ENVS // self.minibatches,) if self.minibatches else (STEPS, ENVS)
        observation, number = jnp.zeros((*shape, 4)), jnp.zeros(shape)
        rollout = motet.Rollout(observation, number.astype(int), number, number, number > 0, number > 0, observation)
        if not self.minibatches:
            return (rollout,)
        return observation, jax.random.split(jax.random.key(0), shape[0])

    def act(self, policy: jax.Array, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        noise = jax.random.normal(key)
        return motet.Decision(jax.random.categorical(key, observation @ policy).astype(jnp.int32), extras=noise)

    def keep(self, state: State, seen: Any) -> State:
        return replace(state, seen=seen, params=state.params * 0.99)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=STEPS)
        flow.apply(self.apply, flow.call(self.study, rollout))

    def study(self, params: jax.Array, rollout: motet.Rollout) -> Any:
        return (self.learn or average)(params, rollout)

    def apply(self, state: State, seen: Any) -> State:
        return self.keep(state, seen)


class Passes(Sketch):
    """In shuffled minibatches, with a key for each row."""

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=STEPS)
        with flow.minibatches(rollout.observation, epochs=1, count=self.minibatches) as observation:
            flow.apply(self.apply, flow.call(self.rows, observation))

    def rows(self, params: jax.Array, observation: jax.Array, keys: jax.Array) -> Any:
        assert self.learn is not None
        return self.learn(params, observation, keys)


@functools.cache
def learned(algorithm: motet.Algorithm, plan: motet.Plan) -> Any:
    """The learner state after three iterations."""
    graph = traced(algorithm, plan)
    outcome, _ = run(graph, plan)
    assert_replicated(graph, outcome)
    return gather(graph, outcome, "learner")


def assert_replicated(graph: Graph, outcome: Outcome) -> None:
    """What has no environment axis is the same on every device that has it, to the last bit."""
    for store in (store for stores in outcome.variables.values() for store in stores):
        for name, leaves in store.items():
            for leaf, axis in zip(leaves, graph.variables[name].axes, strict=True):
                if axis is None and isinstance(leaf, jax.Array):
                    numbers = jax.random.key_data(leaf) if is_key(leaf) else leaf
                    first, *others = [np.asarray(shard.data) for shard in numbers.addressable_shards]
                    for other in others:
                        np.testing.assert_array_equal(other, first)


def complaints(algorithm: motet.Algorithm, plan: motet.Plan) -> list[str]:
    return violations(trace(algorithm, motet.make("CartPole-v1"), iterations=3, cuts=plan.cuts()), plan)


# 1. A state that is changed by values of which every piece has its own.


class OneStep(motet.A2C):
    """Gradients inside of `apply`: right in one piece, and nowhere else."""

    def learn(self, state: Any, rollout: Any) -> Any:
        gradients, _ = self.gradient(state.params, rollout)
        return self.apply(state, gradients)

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.learn, flow.unroll(self.act, steps=self.num_steps))


ONE_STEP = OneStep(num_envs=8, num_steps=5, hidden=(8,))


def test_a_state_changed_by_a_piece_is_refused_by_name() -> None:
    for plan in (SHARDED, motet.multi_learner(2), motet.coarse(2, learners=2)):
        (message,) = complaints(ONE_STEP, plan)
        assert "node 'learn' reads 'rollout', of which" in message and "learner.params" in message
        assert "flow.call" in message and "2 pieces" in message


def test_in_one_piece_it_is_what_it_was() -> None:
    whole, usual = learned(ONE_STEP, WHOLE), learned(motet.A2C(num_envs=8, num_steps=5, hidden=(8,)), SHARDED)
    assert_close(whole, usual)  # the usual form, whose gradients are joined over the pieces
    assert_close(learned(ONE_STEP, CENTRAL), whole)


def test_without_a_plan_it_stays_in_one_piece() -> None:
    """There are four devices; the loop cannot be cut over them."""
    result = motet.train(ONE_STEP, "CartPole-v1", total_timesteps=3 * 40, seed=1)
    assert result.plan == WHOLE


class Centred(Sketch):
    """Changes its state by a statistic of the batch, which all pieces know."""

    def absorb(self, state: State, rollout: motet.Rollout) -> State:
        return replace(state, seen=state.seen + motet.batch_mean(rollout.extras, rollout.reward > 0))

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.absorb, flow.unroll(self.act, steps=STEPS))


def test_a_state_may_be_changed_by_what_all_pieces_know() -> None:
    algorithm = Centred()
    whole = learned(algorithm, WHOLE)
    assert whole.seen != 0
    assert_close(learned(algorithm, motet.anakin(4)), whole)


class Noted(Sketch):
    """Keeps a row for each environment in the state that all pieces share."""

    def note(self, state: State, rollout: motet.Rollout) -> State:
        return replace(state, seen=rollout.reward[-1])

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.note, flow.unroll(self.act, steps=STEPS))


def test_a_state_that_grows_with_the_environments_is_refused_where_it_is_cut() -> None:
    algorithm = Noted(learn=lambda params, rollout: rollout.reward[-1])
    assert learned(algorithm, WHOLE).seen.shape == (ENVS,)
    (message,) = complaints(algorithm, SHARDED)
    assert "learner.seen (which gets one row for each of the piece's environments, on dimension 0)" in message


# 2. Results over the batch.

ROLLOUT = motet.Rollout


def results(params: jax.Array, rollout: ROLLOUT) -> Any:
    """Everything that combines."""
    return {
        "mean": jnp.mean(rollout.extras),
        "max": jnp.max(rollout.extras),
        "min": jnp.min(rollout.extras, 1),
        "sum": jnp.sum(rollout.extras),
        "count": jnp.sum(rollout.extras > 0),
        "histogram": jnp.bincount(rollout.action.reshape(-1), length=2),
        "rows": jnp.asarray(rollout.reward.size),
        "any": jnp.any(rollout.extras > 2.2),
        "all": jnp.all(rollout.extras < 1.9),
        "same": params[0, 0] ** 2,
        "gradient": jax.grad(lambda params: jnp.sum(jnp.tanh(rollout.observation @ params)))(params),
    }


@pytest.mark.parametrize("plan", [SHARDED, CENTRAL, COARSE, WORKERS], ids=lambda plan: plan.name)
def test_results_combine_as_they_were_computed(plan: motet.Plan) -> None:
    algorithm = Sketch(learn=results)
    graph = traced(algorithm, plan)
    combine = graph.variables["study"].unpack(graph.variables["study"].combine)
    assert combine == {
        "mean": "mean", "max": "max", "min": "min", "sum": "sum", "count": "sum", "histogram": "sum", "rows": "sum",
        "any": "any", "all": "all", "same": None, "gradient": "sum",
    }  # fmt: skip
    for ours, theirs in zip(*(jax.tree.leaves(learned(algorithm, each)) for each in (plan, WHOLE)), strict=True):
        assert ours.dtype == theirs.dtype
        if np.issubdtype(ours.dtype, np.floating):
            assert_close(ours, theirs)
        else:
            np.testing.assert_array_equal(ours, theirs)


REFUSED: dict[str, tuple[Callable[[Any, ROLLOUT], Any], str]] = {
    "a masked mean": (
        lambda params, rollout: jnp.sum(rollout.extras * (rollout.extras > 0)) / jnp.sum(rollout.extras > 0),
        "study (a quotient of a sum over the rows and a sum over the rows)",
    ),
    "a norm among metrics": (
        lambda params, rollout: {"fine": jnp.mean(rollout.extras), "norm": jnp.sqrt(jnp.mean(rollout.extras))},
        "study['norm'] (sqrt of a sum over the rows)",
    ),
    "rows normalised by their own mean": (
        lambda params, rollout: jnp.mean(jnp.abs(rollout.extras - jnp.mean(rollout.extras))),
        "study (a difference of rows and a sum over the rows)",
    ),
    "a largest, behind a test of the rows": (
        lambda params, rollout: jax.lax.cond(
            jnp.any(rollout.extras > 0), lambda: jnp.max(rollout.extras), lambda: jnp.zeros(())
        ),
        "study (a branch by a result over the rows; motet.where_any chooses row by row)",
    ),
    "a sum, behind a test of the rows": (
        lambda params, rollout: jax.lax.cond(
            jnp.all(rollout.extras > -9), lambda: jnp.sum(rollout.extras), lambda: jnp.zeros(())
        ),
        "study (a branch by a result over the rows; motet.where_any chooses row by row)",
    ),
    "a statistic over another dimension": (
        lambda params, rollout: motet.batch_mean(rollout.extras, axis=0).mean(),
        "study (batch_sum of rows: it must be taken over the environments' dimension too)",
    ),
    "rows in an order that nobody knows": (
        lambda params, rollout: jnp.mean(motet.batch_ranks(rollout.extras)),
        "study (rows that batch_gather cannot put in order: the environments must be on its `axis`)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_pieces_would_get_wrong_is_refused_by_name(case: str) -> None:
    method, words = REFUSED[case]
    algorithm = Sketch(learn=method)
    for plan in (SHARDED, CENTRAL):
        message = next(each for each in complaints(algorithm, plan) if "node 'study' returns" in each)
        assert words in message and "motet.batch_mean(x, weight)" in message and "per_replica=('study',)" in message
    assert not complaints(algorithm, WHOLE) and not complaints(algorithm, COARSE)


def test_rows_that_depend_on_their_piece_are_refused_too() -> None:
    class Normalised(Sketch):
        def scale(self, params: Any, rollout: motet.Rollout) -> Any:
            return rollout.extras / jnp.std(rollout.extras)

        def average(self, params: Any, scaled: Any) -> Any:
            return jnp.mean(scaled)

        def loop(self, flow: motet.Flow) -> None:
            scaled = flow.call(self.scale, flow.unroll(self.act, steps=STEPS))
            flow.apply(self.apply, flow.call(self.average, scaled))

    (message,) = complaints(Normalised(), SHARDED)
    assert "node 'scale' returns scale (" in message


def test_what_is_refused_may_be_accepted_by_name() -> None:
    algorithm = Sketch(learn=REFUSED["a masked mean"][0])
    accepted = replace(SHARDED, per_replica=("study",))
    assert not complaints(algorithm, accepted)
    ours, whole = learned(algorithm, accepted).seen, learned(algorithm, WHOLE).seen
    assert np.isfinite(ours) and abs(ours - whole) > 1e-4


def test_a_state_that_pieces_change_differently_is_accepted_under_no_name() -> None:
    assert complaints(ONE_STEP, replace(SHARDED, per_replica=("learn",)))


def masked(params: jax.Array, rollout: ROLLOUT) -> Any:
    """A mean of some of the steps, in the three ways in which one may write it."""
    count = rollout.extras > 0
    some = jnp.where(count, rollout.extras, 0)
    return (
        motet.batch_mean(rollout.extras, count),
        jnp.mean(some) / motet.batch_mean(count),
        motet.batch_sum(some) / motet.batch_sum(count),
    )


def test_a_masked_mean_is_exact_with_the_batchs_own() -> None:
    algorithm = Sketch(learn=masked)
    whole = learned(algorithm, WHOLE)
    for mean in whole.seen:
        assert_close(mean, learned(Sketch(learn=REFUSED["a masked mean"][0]), WHOLE).seen)
    for plan in (SHARDED, COARSE):
        assert_close(learned(algorithm, plan), whole)
    assert any("computes a statistic" in each for each in complaints(algorithm, CENTRAL))


UNTOLD: dict[str, Callable[[Any, ROLLOUT], Any]] = {
    "a sum, of rows taken by number": lambda params, rollout: jnp.sum(
        rollout.extras[:, 2 * (jnp.arange(rollout.extras.shape[1]) // 2)]
    ),
    "a mean that depends on the number of rows": lambda params, rollout: (
        jnp.mean(rollout.extras) if rollout.extras.shape[1] == ENVS else jnp.sum(rollout.extras)
    ),
}
"""Of these cannot be told how they come from the rows: averages of the pieces would be something else, or be right by
luck."""


@pytest.mark.parametrize("case", UNTOLD)
def test_what_cannot_be_told_is_not_averaged_silently(case: str) -> None:
    algorithm = Sketch(learn=UNTOLD[case])
    for plan in (SHARDED, CENTRAL):
        (message,) = complaints(algorithm, plan)
        assert "returns study (of which cannot be told how it comes from the rows)" in message
        assert not complaints(algorithm, replace(plan, per_replica=("study",)))
    assert not complaints(algorithm, WHOLE) and not complaints(algorithm, COARSE)


def test_whole_numbers_have_no_average() -> None:
    """Not even where it is accepted that pieces are averaged."""

    def unknown(params: Any, rollout: motet.Rollout) -> Any:
        return jax.lax.cond(jnp.any(rollout.extras > 0), lambda: jnp.int32(1), lambda: jnp.int32(0))

    for plan in (SHARDED, CENTRAL):
        assert "a branch by a result over the rows" in complaints(Sketch(learn=unknown), plan)[0]
        (message,) = complaints(Sketch(learn=unknown), replace(plan, per_replica=("study",)))
        assert "node 'study' returns study of the type int32" in message and "no average" in message


# 3. Keys for the rows of minibatches.


def distilled(params: jax.Array, observation: jax.Array, keys: jax.Array) -> Any:
    """As random network distillation drops features at random: noise of each row's own."""

    def loss(params: jax.Array) -> jax.Array:
        noise = jax.vmap(lambda key: jax.random.normal(key, (4,)))(keys)
        return jnp.mean(jnp.square((observation * noise) @ params))

    return {"gradient": jax.grad(loss)(params), "draws": jnp.sum(jax.vmap(jax.random.normal)(keys))}


@pytest.mark.parametrize(("minibatches", "plans"), [(3, [SHARDED]), (4, [SHARDED, CENTRAL, WORKERS])])
def test_rows_of_minibatches_draw_the_same_in_every_cut(minibatches: int, plans: list[motet.Plan]) -> None:
    """Of 3 minibatches a block is one environment, of 4 it is two."""
    algorithm = Passes(learn=distilled, minibatches=minibatches)
    for plan in plans:
        assert_close(learned(algorithm, plan), learned(algorithm, WHOLE))


def test_ranks_and_rows_of_minibatches_are_in_the_batchs_order() -> None:
    def ordered(params: jax.Array, observation: jax.Array, keys: jax.Array) -> Any:
        rows = motet.batch_gather(observation[:, 0])
        ranks = motet.batch_ranks(observation[:, 1])
        return rows, jnp.mean(ranks * observation[:, 0]), jnp.mean(ranks * jax.vmap(jax.random.normal)(keys))

    algorithm = Passes(learn=ordered, minibatches=4)
    assert_close(learned(algorithm, SHARDED), learned(algorithm, WHOLE))


def test_rows_of_minibatches_do_not_travel_between_cuts() -> None:
    """They lie otherwise in pieces than in the whole batch."""
    algorithm = Passes(learn=distilled, minibatches=4)
    picks = motet.Fragment(("permute", "select"), replicas=2)
    (message,) = complaints(algorithm, motet.Plan({"picks": picks, "rest": motet.Fragment(("*",))}))
    assert "link 'minibatch'" in message and "put what makes them and what reads them into one fragment" in message


# 4. What is reported.


class Reporting(Sketch):
    def first(self, params: Any, rollout: motet.Rollout) -> Any:
        return {"loss": jnp.mean(rollout.extras), "largest": jnp.max(rollout.extras), "return": jnp.sum(rollout.reward)}

    def second(self, params: Any, observation: Any) -> Any:
        return {"loss": jnp.mean(observation), "most": jnp.max(observation), "rows": jnp.sum(observation[:, 0] > 0)}

    def total(self, params: Any, rollout: motet.Rollout) -> Any:
        return jnp.mean(rollout.extras)

    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=STEPS)
        flow.report(flow.call(self.first, rollout))
        with flow.minibatches(rollout.observation, epochs=2, count=3) as observation:
            flow.report(flow.call(self.second, observation))
        flow.apply(self.apply, flow.call(self.total, rollout))


NAMES = ["largest", "first/loss", "first/return", "second/loss", "most", "rows"]


def test_metrics_of_one_name_are_told_apart() -> None:
    graph = traced(Reporting(), WHOLE)
    assert [name for report in graph.reports for name in report.names if "episodes" not in name] == NAMES
    history = motet.train(Reporting(), "CartPole-v1", total_timesteps=200).history
    assert set(NAMES) | {"return", "steps"} <= set(history[0])


def test_metrics_are_the_same_however_the_batch_is_cut() -> None:
    """The mean over the rounds of a loop, of what each round's pieces combine to."""
    rows = {}
    for plan in (WHOLE, SHARDED, WORKERS):
        graph = traced(Reporting(), plan)
        rows[plan] = run(graph, plan)[1].seen
    for found in rows.values():
        assert_close(found, rows[WHOLE])
    counts = np.asarray(rows[WHOLE])[:, -1]
    assert counts.min() > 0 and counts.max() < STEPS * ENVS / 3  # rows of one minibatch


def test_a_result_is_reported_once() -> None:
    class Twice(Reporting):
        def loop(self, flow: motet.Flow) -> None:
            rollout = flow.unroll(self.act, steps=STEPS)
            metrics = flow.call(self.first, rollout)
            flow.report(metrics)
            flow.report(metrics)
            flow.apply(self.apply, flow.call(self.total, rollout))

    with pytest.raises(motet.BadAlgorithm, match=r"Twice\.loop reports 'first/largest' twice"):
        trace(Twice(), motet.make("CartPole-v1"))


# 5. Random keys in the state.


class Keyed(Sketch):
    """Keeps a typed random key, as one does in JAX."""

    def init(self, key: jax.Array) -> State:
        key, sub = jax.random.split(key)
        return State(jax.random.normal(sub, (4, 2)), {"key": key, "noise": jnp.zeros(())})

    def weights(self, state: State) -> Any:
        return state

    def study(self, weights: State, rollout: motet.Rollout) -> Any:
        return jnp.mean(rollout.extras) * jax.random.normal(weights.seen["key"])

    def apply(self, state: State, seen: Any) -> State:
        key, sub = jax.random.split(state.seen["key"])
        return State(state.params, {"key": key, "noise": seen + jax.random.normal(sub)})


class KeyedPolicy(Keyed):
    """And acts with it."""

    def policy(self, state: State) -> Any:
        return state

    def act(self, policy: State, memory: Any, observation: Any, key: jax.Array) -> motet.Decision:
        return super().act(policy.params, memory, observation, jax.random.fold_in(policy.seen["key"], 1))


def plain(state: State) -> Any:
    return state.params, jax.random.key_data(state.seen["key"]), state.seen["noise"]


@pytest.mark.parametrize(("kind", "plans"), [(Keyed, [SHARDED, CENTRAL]), (KeyedPolicy, [COARSE])])
def test_a_state_may_hold_random_keys(kind: type[Keyed], plans: list[motet.Plan]) -> None:
    whole = learned(kind(), WHOLE)
    assert jnp.issubdtype(whole.seen["key"].dtype, jax.dtypes.prng_key)
    for plan in plans:
        assert_close(plain(learned(kind(), plan)), plain(whole))


def test_a_policy_with_random_keys_is_saved_and_read(tmp_path: Any) -> None:
    result = motet.train(KeyedPolicy(), "CartPole-v1", WHOLE, total_timesteps=200, run_dir=tmp_path / "run")
    loaded = motet.Policy.load(tmp_path / "run", KeyedPolicy)
    observation = np.zeros(4, np.float32)
    assert loaded(observation, explore=True) == result.policy(observation, explore=True)
