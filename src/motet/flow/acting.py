"""Acting: how `unroll` becomes a loop of two nodes, one that decides and one that steps the environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm
from motet.flow.algorithm import Algorithm, Decision, besides
from motet.flow.calls import label
from motet.flow.environment import HOST_FIELDS, Environment, Step, advance, begin, host_types
from motet.flow.host import HostCall, HostEnvironment, HostStep
from motet.flow.record import ADDRESS, GraphRecorder, NodeRun
from motet.flow.spaces import Space
from motet.flow.values import Rollout, show, strict_aval

AnyEnvironment = Environment | HostEnvironment


class RolloutRecorder:
    """The rollout of one loop."""

    def __init__(self, record: GraphRecorder, algorithm: Algorithm, env: AnyEnvironment):
        self.record, self.algorithm, self.env = record, algorithm, env
        self.steps = 0

    def unroll(self, act: Callable[..., Decision], steps: int) -> Rollout:
        """See `Flow.unroll`."""
        record = self.record
        if self.steps:
            raise BadAlgorithm(f"{record.title}.loop calls flow.unroll twice; an iteration has one rollout.")
        if len(record.stack) > 1:
            raise BadAlgorithm(f"flow.unroll belongs directly into {record.title}.loop: an iteration has one rollout.")
        wanted = besides(self.algorithm, act)
        decision = self._check_act(act, wanted)
        self._start_environments()
        self._start_besides(wanted, decision.action)
        self.steps = steps
        recurrent, extras = "memory" in record.variables, bool(jax.tree.leaves(decision.extras))
        if recurrent:
            record.node("recall", "call", lambda here, memory: (memory,), ["memory"], ["rollout.memory"], site="act")
        reads = {"policy": "policy", "observation": "step.observation"}
        reads |= {"first": "step.first"} if recurrent or {"reward", "action"} & {*wanted} else {}
        reads |= {"memory": "memory"} if recurrent else {}
        reads |= {name: _BESIDES[name] for name in wanted if name in _BESIDES}
        with record.loop(record.name("unroll"), steps, "step") as loop:
            writes = ["decision.action", "decision.observation"]
            writes += ["decision.extras"] if extras else []
            writes += ["decision.first", "memory"] if recurrent else []
            writes += ["decision.last"] if "action" in wanted else []
            decide = Deciding(self.algorithm, act, tuple(reads), "index" in wanted, extras, self.env.action_space)
            record.node("act", "act", decide, list(reads.values()), writes)
            self._step_environments()
            for name, inner in self.sums().items():
                record.output(loop, name, inner, "sum")
            return Rollout(
                observation=record.output(loop, "rollout.observation", "decision.observation"),
                action=record.output(loop, "rollout.action", "decision.action"),
                extras=record.output(loop, "rollout.extras", "decision.extras") if extras else (),
                reward=record.output(loop, "rollout.reward", "step.reward"),
                terminated=record.output(loop, "rollout.terminated", "step.terminated"),
                truncated=record.output(loop, "rollout.truncated", "step.truncated"),
                next_observation=record.output(loop, "rollout.next_observation", "step.next_observation"),
                valid=record.output(loop, "rollout.valid", "step.valid") if self._on_host else (),
                first=record.output(loop, "rollout.first", "decision.first") if recurrent else (),
                memory=record.value("rollout.memory") if recurrent else (),
            )

    @property
    def _on_host(self) -> bool:
        return isinstance(self.env, HostEnvironment)

    def sums(self) -> dict[str, str]:
        """What is reported of the environments, and the step's field that it is the sum of."""
        on_host = {"episodes.count": "step.finished", "restarts": "step.restarts"}
        return _EPISODE_REPORTS | (on_host if self._on_host else {})

    def _step_environments(self) -> None:
        env = self.env
        if isinstance(env, HostEnvironment):

            def types(here: NodeRun, episode: Any, action: Any) -> tuple[Any, ...]:
                state, fields = host_types(env, here.batch)
                return (state, *fields)

            run, names = types, HOST_FIELDS
            fields = tuple(f"step.{name}" for name in HostStep._fields)
            host = HostCall(env, False, fields, episode="env", action="decision.action")
        else:
            run, names, host = partial(_env, env), tuple(Step.__dataclass_fields__), None
        writes = ["env", *(f"step.{name}" for name in names)]
        self.record.node("env", "env", run, ["env", "decision.action"], writes, host=host)

    def _start_environments(self) -> None:
        env, memory = self.env, self.algorithm.memory()

        def blank(here: NodeRun) -> tuple[Any]:
            return (jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (here.batch, *jnp.shape(leaf))), memory),)

        def types(here: NodeRun) -> tuple[Any, ...]:
            assert isinstance(env, HostEnvironment)
            state, fields = host_types(env, here.batch)
            table = dict(zip(HOST_FIELDS, fields, strict=True))
            return state, table["observation"], table["first"]

        first = ["env", "step.observation", "step.first"]
        if isinstance(env, HostEnvironment):
            self.record.start("env", types, first, "env", HostCall(env, True, ("step.observation",)))
        else:
            self.record.start("env", lambda here: begin(env, here.env_keys()), first, "env")
        if jax.tree.leaves(memory):
            self.record.start("memory", blank, ["memory"], "act")

    def _start_besides(self, wanted: Sequence[str], action: Any) -> None:
        """What the first step is told of the one before it, of which there is none."""

        def reward(here: NodeRun) -> tuple[Any]:
            return (jnp.zeros(here.batch),)

        def actions(here: NodeRun) -> tuple[Any]:
            return (jax.tree.map(lambda leaf: jnp.zeros((here.batch, *leaf.shape), leaf.dtype), action),)

        if "reward" in wanted:
            self.record.start("reward", reward, ["step.reward"], "env")
        if "action" in wanted:
            self.record.start("action", actions, ["decision.last"], "act")

    def _check_act(self, act: Callable[..., Decision], wanted: Sequence[str]) -> Decision:
        """Trace `act` on one environment and compare what it returns with the environment's action space."""
        space, memory = self.env.action_space, jax.tree.map(strict_aval, self.algorithm.memory())
        observation = self.env.observation_space.aval
        types = {"index": ADDRESS[1], "reward": strict_aval(jnp.zeros(())), "action": space.aval}
        more = {name: types[name] for name in wanted}
        decision = jax.eval_shape(act, self.record.shape("policy"), memory, observation, ADDRESS[0], **more)
        where = f"{self.record.title}.{label(act)}"
        if not isinstance(decision, Decision):
            raise BadAlgorithm(f"{where} must return a motet.Decision, got {show(decision)}.")
        expected, got = space.aval, decision.action
        if not _fits(expected, got):
            raise BadAlgorithm(
                f"{where} must return an action of {space}, that is {show(expected)} for one environment; "
                f"got {show(got)}."
            )
        if jax.tree.map(strict_aval, decision.memory) != memory:
            raise BadAlgorithm(
                f"{where} must return memory like {self.record.title}.memory(): expected {show(memory)}, "
                f"got {show(decision.memory)}."
            )
        return decision


_EPISODE_REPORTS = {
    "episodes.count": "step.first",
    "episodes.return": "step.finished_return",
    "episodes.length": "step.finished_length",
}


_BESIDES = {"reward": "step.reward", "action": "decision.last"}
"""Which variables hold what an `act` asks for besides, from the step before. Actions have one that is a state: what is
gathered into a rollout is not."""


@dataclass(frozen=True)
class Deciding:
    """`act` for every environment; a memory, and what is told of the step before, start anew with each episode."""

    algorithm: Algorithm
    act: Callable[..., Decision]
    names: tuple[str, ...]
    """What each value read is."""
    numbered: bool
    """Whether `act` asks for the environment's number."""
    extras: bool
    space: Space

    def __call__(self, here: NodeRun, *read: Any) -> tuple[Any, ...]:
        now = dict(zip(self.names, read, strict=True))
        policy, observation, first = now.pop("policy"), now.pop("observation"), now.pop("first", None)
        recurrent = "memory" in now
        memory = renew(first, self.algorithm.memory(), now.pop("memory")) if recurrent else ()
        if "reward" in now:
            now["reward"] = renew(first, jnp.zeros((), now["reward"].dtype), now["reward"])
        if "action" in now:
            now["action"] = renew(first, *_last_actions(self.space, now["action"]))
        if self.numbered:
            now["index"] = env_numbers(here)
        decision = jax.vmap(partial(self.act, policy))(memory, observation, here.env_keys(), **now)
        optional = [decision.extras] if self.extras else []
        optional += [first, decision.memory] if recurrent else []
        optional += [decision.action] if "action" in now else []
        return (decision.action, observation, *optional)


def renew(first: Any, new: Any, old: Any) -> Any:
    """`old` [B, ...], or `new` where an episode begins ([B])."""

    def one(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(first.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

    return jax.tree.map(one, new, old)


def _last_actions(space: Space, action: Any) -> tuple[Any, Any]:
    """The action before the first, and those before, in the types of their space."""
    types = space.aval
    return (
        jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), types),
        jax.tree.map(lambda aval, leaf: leaf.astype(aval.dtype), types, action),
    )


def env_numbers(here: NodeRun) -> jax.Array:
    """int32 [B]: the numbers of this piece's environments."""
    return (here.part * here.batch + jnp.arange(here.batch)).astype(jnp.int32)


def _env(env: Environment, here: NodeRun, episode: Any, action: Any) -> tuple[Any, ...]:
    episode, step = advance(env, episode, action, here.env_keys)
    return (episode, *(getattr(step, name) for name in Step.__dataclass_fields__))


def _fits(wanted: Any, got: Any) -> bool:
    """Whether an action has its space's structure, shapes and sorts of number."""
    if jax.tree.structure(wanted) != jax.tree.structure(got):
        return False
    pairs = zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True)
    return all(a.shape == b.shape and jnp.issubdtype(b.dtype, _abstract(a.dtype)) for a, b in pairs)


def _abstract(dtype: Any) -> Any:
    """The sort of number: an action may be of another width than its space's."""
    return jnp.integer if jnp.issubdtype(dtype, jnp.integer) else jnp.floating
