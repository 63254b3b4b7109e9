"""Every violation of a plan is found, named and explained before anything starts."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

import motet
from motet.flow.trace import trace
from motet.plan.check import check, violations
from motet.plan.plan import Fragment, Link, Plan
from tests.laws.cases import ALGORITHMS

REST = Fragment(("*",))
CASES: dict[str, tuple[str, Plan, tuple[str, ...]]] = {
    "a node in no fragment": (
        "ppo", Plan({"a": Fragment(("act", "env"))}),
        ("'targets' is in no fragment", "'apply' is in no fragment"),
    ),
    "a node in two fragments": (
        "ppo", Plan({"a": Fragment(("act", "env")), "b": Fragment(("act",)), "c": REST}),
        ("'act' is in 2 fragments (a, b)",),
    ),
    "a node that does not exist": (
        "ppo", Plan({"a": Fragment(("targts",)), "b": REST}), ("'targts'", "did you mean 'targets'"),
    ),
    "environments that do not divide": (
        "ppo", motet.coarse(3), ("8 environments do not divide by 3 replicas x 1 shards = 3",),
    ),
    "replicas of one learner": (
        "ppo", Plan({"all": Fragment(("*",), replicas=2)}), ("state 'learner'", "use shards"),
    ),
    "a statistic over replicas": (
        "ppo", motet.central(2), ("node 'gradient' computes a statistic", "per_replica=('gradient',)"),
    ),
    "a lag beyond the algorithm's": ("a2c", motet.coarse(2, lag=1), ("its lag is 1", "at most 0")),
    "a lag without bound": ("ppo", motet.coarse(2, lag="latest"), ("has no bound", "at most 4")),
    "a lag on a link that cannot": (
        "dqn", Plan({"a": Fragment(("act", "env")), "b": REST}, {"rollout": Link(1)}), ("'rollout' cannot lag",),
    ),
    "a lag where nothing is cut": (
        "dqn", Plan({"all": REST}, {"policy": Link(1)}), ("'policy' is cut nowhere",),
    ),
    "a link of nothing": (
        "dqn", Plan({"a": Fragment(("act", "env")), "b": REST}, {"polcy": Link(0)}), ("'polcy' is for no value",),
    ),
    "more devices than there are": ("ppo", motet.anakin(8), ("needs 8 devices, but there are 4", "--devices 8")),
    "a place beyond the last device": (
        "ppo", Plan({"all": Fragment(("*",), place="cpu:7")}), ("takes devices 7 to 7, but there are 4",),
    ),
    "a place that is none": ("ppo", Plan({"all": Fragment(("*",), place="gpu")}), ('look like "cpu:0"',)),
    "a place of another kind": (
        "ppo", Plan({"all": Fragment(("*",), place="tpu:0")}), ("'tpu:0'", "of the kind 'cpu'"),
    ),
    "draws for a share of a batch": (
        "noisy", motet.anakin(2), ("node 'gradient' draws random numbers", "per_replica=('gradient',)"),
    ),
    "no fragment": ("ppo", Plan({}), ("no fragment",)),
    "no replica": ("ppo", Plan({"all": Fragment(("*",), replicas=0)}), ("replicas must be a whole number",)),
    "a negative lag": (
        "dqn", Plan({"a": Fragment(("act", "env")), "b": REST}, {"policy": Link(-1)}), ("lag must be 0",),
    ),
    "per_replica for no node": (
        "ppo", Plan({"all": REST}, per_replica=("gradiant",)), ("per_replica names 'gradiant'",),
    ),
    "two writers of one state": (
        "two_writers", Plan({"a": Fragment(("apply_2",)), "b": REST}), ("'learner' is written in 2 fragments",),
    ),
    "a lag of the environments": (
        "ppo", Plan({"e": Fragment(("env",)), "b": REST}, {"step": Link(1)}), ("'step' cannot lag", "'policy'"),
    ),
    "a lag of what a policy remembers": (
        "recurrent", Plan({"a": Fragment(("act",)), "b": REST}, {"decision": Link(1)}), ("'decision' cannot lag",),
    ),
    "the latest of what is read at once": (
        "dqn", Plan({"a": Fragment(("act", "env")), "b": REST}, {"rollout": Link("latest")}),
        ("'rollout' cannot take the latest value", "give this link a number"),
    ),
    "a lag of what comes back after every update": (
        "dqn", motet.central(2, lag=1), ("'policy' cannot lag", "in the loop 'repeat'"),  # type: ignore[arg-type]
    ),
    "the latest priorities": (
        "dqn-prioritised", Plan(motet.pearl().fragments, {"priorities": Link("latest")}),
        ("every value of 'priorities' counts",),
    ),
    "a program that must be whole and is cut": (
        "dqn", Plan({"a": Fragment(("act", "env"), fused=True), "b": REST}), ("'a' must be one compiled program",),
    ),
    "an update from a share of the batch": (
        "one_step", motet.anakin(2), ("node 'learn' reads", "in a method for flow.call"),
    ),
    "a masked mean of a share of the batch": (
        "masked", motet.anakin(2), ("node 'gradient' returns gradient", "motet.batch_mean(x, weight)"),
    ),
    "a result of which nothing can be told": (
        "untold", motet.anakin(2), ("of which cannot be told how it comes from the rows", "keep the node in one piece"),
    ),
    "an average of whole numbers": (
        "whole_numbers", dataclasses.replace(motet.anakin(2), per_replica=("gradient",)),
        ("of the type int32", "such values have no average"),
    ),
    "shuffled rows on their way": (
        "ppo", Plan({"a": Fragment(("act", "env", "targets", "permute", "select"), replicas=2), "b": REST}),
        ("the rows of", "are shuffled within each piece", "into one fragment"),
    ),
    "the latest samples and the latest priorities": (
        "dqn-prioritised",
        Plan(motet.pearl().fragments, {"sample": Link("latest"), "priorities": Link("latest")}),
        ("every value of 'priorities' counts", "'sample'"),
    ),
    "first ready without processes": (
        "ppo", motet.sebulba(first_ready=True), ("set workers to at least 1",),
    ),
    "blocks of a replay": (
        "dqn-one", motet.anakin(2), ("1 environments do not divide", "node 'sample' draws from 1 block"),
    ),
}  # fmt: skip


class TwoWriters(motet.A2C):
    def loop(self, flow: motet.Flow) -> None:
        rollout = flow.unroll(self.act, steps=self.num_steps)
        for _ in range(2):
            gradients, _ = flow.call(self.gradient, rollout)
            flow.apply(self.apply, gradients)


class Noisy(motet.A2C):
    def gradient(self, params, rollout, key):
        scale = jax.random.uniform(key, rollout.reward.shape)
        return super().gradient(params, dataclasses.replace(rollout, reward=rollout.reward * scale))


class OneStep(motet.A2C):
    def learn(self, state, rollout):
        return self.apply(state, self.gradient(self.policy(state), rollout)[0])

    def loop(self, flow: motet.Flow) -> None:
        flow.apply(self.learn, flow.unroll(self.act, steps=self.num_steps))


class Masked(motet.A2C):
    def gradient(self, params, rollout):
        gradients, metrics = super().gradient(params, rollout)
        late = rollout.truncated
        return gradients, metrics | {"late": jnp.sum(rollout.reward * late) / jnp.maximum(jnp.sum(late), 1)}


class Untold(motet.A2C):
    def gradient(self, params, rollout):
        gradients, metrics = super().gradient(params, rollout)
        ended = jnp.sum(rollout.reward[:, 2 * (jnp.arange(rollout.reward.shape[1]) // 2)])
        return gradients, metrics | {"ended": ended}


class WholeNumbers(motet.A2C):
    def gradient(self, params, rollout):
        gradients, metrics = super().gradient(params, rollout)
        return gradients, metrics | {"best": jnp.argmax(jnp.sum(rollout.reward, 0)).astype(jnp.int32)}


MORE = {
    "masked": Masked(num_envs=8),
    "untold": Untold(num_envs=8),
    "whole_numbers": WholeNumbers(num_envs=8),
    "one_step": OneStep(num_envs=8),
    "recurrent": motet.PPO(num_envs=8, core="gru"),
    "noisy": Noisy(num_envs=8),
    "two_writers": TwoWriters(num_envs=8),
    "dqn-one": motet.DQN(num_envs=1),
}


ASKING = {
    "shards": (Fragment(("*",), shards=2, inside=True), "it has several shards, which would each ask"),
    "a shared thread": (
        Fragment(("*",), per_device=2, workers=1, first_ready=True, inside=True), "its replicas share a thread",
    ),
    "another platform": (Fragment(("*",), place="cuda:0", inside=True), "programs on 'cuda' cannot call Python"),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKING)
def test_programs_that_cannot_ask_environments_are_not_told_to(case: str) -> None:
    fragment, why = ASKING[case]
    plan = Plan({"all": fragment})
    graph = trace(ALGORITHMS["a2c"], motet.Gymnasium("CartPole-v1"), cuts=plan.cuts())
    (message,) = (each for each in violations(graph, plan) if "from inside of its programs" in each)
    assert why in message and "set inside to False" in message
    left = Plan({"all": dataclasses.replace(fragment, inside=None)})
    assert not any("from inside" in each for each in violations(graph, left))


def test_what_is_yes_or_no_is_nothing_else() -> None:
    text = Plan({"all": REST}).to_json().replace('"inside": null', '"inside": "no"')
    text = text.replace('"first_ready": false', '"first_ready": 1').replace('"fused": false', '"fused": null')
    graph = trace(ALGORITHMS["a2c"], motet.make("CartPole-v1"))
    found = "\n".join(violations(graph, Plan.from_json(text)))
    assert "inside must be true, false or left out, got 'no'" in found
    assert "first_ready must be true or false, got 1" in found and "fused must be true or false, got None" in found


@pytest.mark.parametrize("case", CASES)
def test_violation_is_named_with_its_remedy(case: str) -> None:
    name, plan, messages = CASES[case]
    algorithm = {**ALGORITHMS, **MORE}[name]
    graph = trace(algorithm, motet.make("CartPole-v1"), cuts=[c for c in plan.cuts() if c.parts > 0])
    with pytest.raises(motet.BadPlan) as caught:
        check(graph, plan, devices=4, platform="cpu")
    for message in messages:
        assert message in str(caught.value)


def test_all_violations_come_at_once() -> None:
    plan = Plan(
        {"a": Fragment(("act", "env"), replicas=3, place="cpu:2"), "b": REST},
        {"policy": Link("latest"), "rollout": Link(2)},
    )
    graph = trace(ALGORITHMS["ppo"], motet.make("CartPole-v1"), cuts=plan.cuts())
    found = violations(graph, plan, devices=4)
    assert len(found) == 5, found
    assert len(set(found)) == len(found)


def test_a_bad_plan_starts_nothing(tmp_path) -> None:
    with pytest.raises(motet.BadPlan):
        motet.train(ALGORITHMS["ppo"], "CartPole-v1", motet.coarse(3), total_timesteps=1000, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("plan", [motet.anakin(2), motet.coarse(2, lag=1), motet.central(2, per_replica=("gradient",))])
def test_plans_survive_json(plan: Plan) -> None:
    assert Plan.from_json(plan.to_json()) == plan
    assert hash(Plan.from_json(plan.to_json())) == hash(plan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", '"fragments"'),
        ('{"fragments": {"a": {"nodes": []}}}', 'needs "nodes"'),
        ('{"fragments": {"a": {"nodes": ["*"], "replica": 2}}}', "unknown key 'replica'"),
        ('{"fragments": {"a": {"nodes": ["*"]}}, "link": {}}', "unknown key 'link'"),
        ('{"fragments": {"a": {"nodes": ["*"]}}, "links": {"policy": 1}}', "link 'policy' must be an object"),
    ],
)
def test_a_malformed_plan_file_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(motet.BadPlan, match=message):
        Plan.from_json(text)
