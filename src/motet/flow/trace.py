"""`trace` runs an algorithm's loop once, on abstract values, and records it as a graph.

Each call on `Flow` records a node. Afterwards nothing here is needed to run the graph.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm, BadOption
from motet.flow import shuffle
from motet.flow.algorithm import Algorithm, Decision, Spec
from motet.flow.environment import (
    HOST_FIELDS,
    Environment,
    Step,
    advance,
    begin,
    check_environment,
    host_types,
)
from motet.flow.graph import WHOLE, Cut, Graph, Item, Loop, Node, Report, walk
from motet.flow.host import HostCall, HostEnvironment
from motet.flow.record import ADDRESS, Here, Recorder
from motet.flow.replaying import Replaying
from motet.flow.reporting import named
from motet.flow.values import Drawn, Rollout, Value, show, split, strict_aval

PREFILL = 2**31
"""The number of the first round of the prefill, far from every iteration."""


AnyEnvironment = Environment | HostEnvironment


def trace(
    algorithm: Algorithm,
    env: AnyEnvironment,
    *,
    total_timesteps: int = 1_000_000,
    iterations: int | None = None,
    cuts: Iterable[Cut] = (WHOLE,),
) -> Graph:
    """Record `algorithm.loop` on `env`, for a run of `total_timesteps` or of so many `iterations`.

    Cuts that do not divide the environments are left to `check` to report.
    """
    check_environment(env)
    if iterations is not None:
        if iterations < 1:
            raise BadOption(f"iterations must be at least 1, got {iterations}.")
        return _record(algorithm, env, iterations, cuts).finish(iterations)
    counter = _Counter()
    with suppress(_Enough):
        _bind(algorithm, env, 1).loop(counter)  # type: ignore[arg-type]
    steps, prefill = counter.steps, counter.prefill_steps
    while True:
        iterations = count_iterations(algorithm, total_timesteps, steps, prefill)
        flow = _record(algorithm, env, iterations, cuts)
        if (flow.steps, flow.prefill_steps) == (steps, prefill):
            return flow.finish(iterations)
        steps, prefill = flow.steps, flow.prefill_steps  # the loop called something else before its unroll


def _record(algorithm: Algorithm, env: AnyEnvironment, iterations: int, cuts: Iterable[Cut]) -> Flow:
    flow = Flow(_bind(algorithm, env, iterations), env, cuts)
    flow.run()
    return flow


def _bind(algorithm: Algorithm, env: AnyEnvironment, iterations: int) -> Algorithm:
    return algorithm.bind(Spec(env.observation_space, env.action_space, iterations))


def count_iterations(algorithm: Algorithm, total_timesteps: int, steps: int, prefill: int) -> int:
    """How many whole iterations fit into `total_timesteps`, after the prefill."""
    each = steps * algorithm.num_envs
    before = math.ceil(prefill / each) * each
    if total_timesteps < before + each:
        first = f"a prefill of {before:,} steps and " if before else ""
        raise BadOption(
            f"total_timesteps must be at least {before + each:,}, got {total_timesteps:,}: "
            f"{type(algorithm).__name__} needs {first}iterations of {each:,} steps "
            f"({algorithm.num_envs} environments x {steps} steps). Raise total_timesteps, or lower the number of "
            "environments or steps."
        )
    return (total_timesteps - before) // each


class _Enough(Exception):
    """The first unroll was seen."""


class _Counter:
    """Stands in for a flow to learn how long an iteration is, before the loop is traced in earnest.

    Schedules need the number of iterations when the first state is made, and that follows from the loop.
    """

    steps = 1
    prefill_steps = 0

    def prefill(self, steps: int) -> None:
        self.prefill_steps = steps

    def unroll(self, act: Any, *, steps: int) -> Any:
        self.steps = steps
        raise _Enough

    def __getattr__(self, name: str) -> Any:
        raise _Enough


class Flow:
    """What `Algorithm.loop` is written with."""

    def __init__(self, algorithm: Algorithm, env: AnyEnvironment, cuts: Iterable[Cut]):
        self._algorithm, self._env = algorithm, env
        self._record = Recorder(type(algorithm).__name__, algorithm.num_envs, cuts)
        self._replaying = Replaying(self._record)
        self.steps = 0
        self.prefill_steps = 0
        self._start_learner()

    def unroll(self, act: Callable[..., Decision], *, steps: int) -> Rollout:
        """Act and step every environment `steps` times -> a `Rollout` of [T, B] values."""
        record = self._record
        if self.steps:
            raise BadAlgorithm(f"{record.title}.loop calls flow.unroll twice; an iteration has one rollout.")
        decision = self._check_act(act)
        self._start_environments()
        self.steps = steps
        recurrent, extras = "memory" in record.variables, bool(jax.tree.leaves(decision.extras))
        if recurrent:
            record.node("recall", "call", lambda here, memory: (memory,), ["memory"], ["rollout.memory"], site="act")
        with record.loop(record.name("unroll"), steps, "step") as loop:
            reads = ["policy", "step.observation", *(["step.first", "memory"] if recurrent else [])]
            writes = ["decision.action", "decision.observation"]
            writes += ["decision.extras"] if extras else []
            writes += ["decision.first", "memory"] if recurrent else []
            record.node("act", "act", partial(_act, self._algorithm, act, extras), reads, writes)
            self._step_environments()
            for name, inner in self._sums().items():
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
                memory=Value("rollout.memory") if recurrent else (),
            )

    def call(self, method: Callable[..., Any], *values: Any) -> Any:
        """Run `method(weights, *values[, key][, keys])` -> handles of what it returns, one for each element of a tuple.

        What it returns without an environment axis is one result over the batch: how pieces of it combine is found in
        its program, and what no combination gives needs the batch in one piece. A parameter `key` gets one key for
        the whole batch; `keys` gets one for each row of it, [N], the same however the batch is cut.
        """
        name = self._record.name(_label(method))
        handles, arguments = split(values)
        weights = "policy.weights" if "policy.weights" in self._record.views else "policy"
        reads = tuple(dict.fromkeys([weights, *handles]))
        wanted = inspect.signature(method).parameters
        count_rows = self._record.rows(reads) if "keys" in wanted else None
        if "keys" in wanted and count_rows is None:
            raise BadAlgorithm(
                f"{self._record.title}.{name} wants keys, one for each row of its batch, but reads no [N, ...] values: "
                f"it reads {', '.join(reads)}. Give it what flow.sample or flow.minibatches gave, or let it take one "
                "key."
            )

        def run(here: Here, *read: Any) -> tuple[Any, ...]:
            table = dict(zip(reads, read, strict=True))
            random = {"key": here.key} if "key" in wanted else {}
            random |= {"keys": here.row_keys(*count_rows(read))} if count_rows else {}
            result = method(table[weights], *arguments(table), **random)
            return result if type(result) is tuple else (result,)

        def writes(count: int) -> list[str]:
            return [name] if count == 1 else [f"{name}.{position}" for position in range(count)]

        node = self._record.node(name, "call", run, reads, writes, draws=None if "key" in wanted else False)
        results = [Value(write) for write in node.writes]
        return tuple(results) if len(results) > 1 else results[0]

    @contextmanager
    def minibatches(self, batch: Any, *, epochs: int, count: int, sequences: bool = False) -> Iterator[Any]:
        """Go `epochs` times through `batch` ([T, B] values) in `count` shuffled parts, each flattened to [N].

        With `sequences`, time is left as it is: parts are [T, B / count], and values of the start of the rollout,
        [B], become [B / count].
        """
        handles, rebuild = split((batch,))
        permute, select = self._sequences(handles, count) if sequences else self._rows(handles, count)
        record = self._record
        with record.loop(record.name("epochs"), epochs, "update"):
            order = record.name("permute")
            record.node(order, "call", permute, [], [order])
            with record.loop(record.name("minibatches"), count, "update"):
                table = {handle: Value(f"minibatch.{handle.replace('.', '_')}") for handle in handles}
                writes = [value.name for value in table.values()]
                record.node(record.name("select"), "call", select, [order, *handles], writes)
                yield rebuild(table)[0]

    def _rows(self, handles: list[str], count: int) -> tuple[Any, Any]:
        """How to shuffle and pick single steps."""
        time, envs = self._record.batch_shape(handles)
        block = shuffle.block_size(time, envs, count)
        self._record.divisors.append(("minibatches", envs // block))

        def permute(here: Here) -> tuple[jax.Array]:
            return (shuffle.permutation(here.key, time * block, count),)

        def select(here: Here, rows: jax.Array, *read: Any) -> tuple[Any, ...]:
            return tuple(jax.tree.map(partial(shuffle.select, rows[here.index], block), tree) for tree in read)

        return permute, select

    def _sequences(self, handles: list[str], count: int) -> tuple[Any, Any]:
        """How to shuffle and pick whole sequences, one environment of each block at a time."""
        record = self._record
        axes = [record.sequence_axes(handle) for handle in handles]
        blocks = shuffle.sequence_blocks(record.num_envs, count)
        record.divisors.append(("minibatches", blocks))

        def permute(here: Here) -> tuple[jax.Array]:
            mine = here.batch // count
            return (shuffle.sequence_permutations(here.key, here.part * mine + jnp.arange(mine), count),)

        def select(here: Here, order: jax.Array, *read: Any) -> tuple[Any, ...]:
            position = order[:, here.index]
            return tuple(
                jax.tree.unflatten(
                    jax.tree.structure(tree),
                    [
                        shuffle.select_sequences(position, axis, leaf)
                        for axis, leaf in zip(axes_of, jax.tree.leaves(tree), strict=True)
                    ],
                )
                for axes_of, tree in zip(axes, read, strict=True)
            )

        return permute, select

    @contextmanager
    def repeat(self, count: int) -> Iterator[None]:
        """Run the body `count` times in each iteration."""
        with self._record.loop(self._record.name("repeat"), count, "update"):
            yield

    def apply(self, method: Callable[..., Any], *values: Any) -> None:
        """Run `method(state, *values) -> state`: the learner state changes. What it reads with an environment axis
        may change the state by `motet.batch_mean` and the like alone, or else needs the batch in one piece."""
        handles, arguments = split(values)
        reads = tuple(dict.fromkeys(["learner", *handles]))

        def run(here: Here, *read: Any) -> tuple[Any]:
            table = dict(zip(reads, read, strict=True))
            return (method(table["learner"], *arguments(table)),)

        self._record.node(self._record.name(_label(method)), "apply", run, reads, ["learner"])

    def remember(self, values: Any, into: Any) -> None:
        """Add [T, B] values to the replay `into` (see motet.replay)."""
        self._replaying.remember(values, into)

    def sample(self, size: int) -> Drawn:
        """Draw `size` remembered items -> handles on `items`, [N] values of the structure that was remembered, and,
        from a prioritised replay, on their importance `weight` and their `index`."""
        return self._replaying.sample(size)

    def reprioritize(self, sample: Drawn, priorities: Any) -> None:
        """Give the items of `sample` new priorities, [N] numbers from 0 on, before the next draw. A replay without
        priorities has no use for them."""
        self._replaying.reprioritize(sample, priorities)

    def prefill(self, steps: int) -> None:
        """Before the first iteration, act and remember until `steps` environment steps are in the replay."""
        self.prefill_steps = steps

    def report(self, metrics: Value) -> None:
        """Show a dictionary of scalars to whoever watches the run, averaged over each iteration."""
        if not isinstance(metrics, Value):
            raise BadAlgorithm(f"flow.report takes what flow.call returned, got {metrics!r}.")
        shape = self._record.shape(metrics.name)
        if not isinstance(shape, dict) or any(leaf.shape for leaf in jax.tree.leaves(shape)):
            raise BadAlgorithm(
                f"flow.report takes a dictionary of scalars; {metrics.name} is {show(shape)}. "
                "Take the mean of each entry first."
            )
        self._record.stack[-1].reported.append((metrics.name, metrics.name.split(".")[0]))

    # What `trace` calls.

    def run(self) -> None:
        """Record the algorithm's loop."""
        self._algorithm.loop(self)
        if not self.steps:
            raise BadAlgorithm(f"{self._record.title}.loop never calls flow.unroll: nothing would ever act.")

    def finish(self, iterations: int) -> Graph:
        """Close the iteration and assemble the graph."""
        record, (iteration,) = self._record, self._record.stack
        loop = Loop("iteration", 1, tuple(iteration.items), (), "iteration")
        learner = next((item.name for item, _ in walk(loop) if _kind(item) == "apply"), None)
        if learner is None:
            raise BadAlgorithm(f"{record.title}.loop never calls flow.apply: nothing would ever be learned.")
        prefill = self._prefill_loop(iteration.items)
        each = self.steps * record.num_envs
        self._replaying.check_filled(sum(loop.count for loop in prefill) * each + each)
        root = Loop("run", 1, (*record.init, *prefill, loop), (), "run")
        return Graph(
            algorithm=record.title,
            environment=self._env.name,
            num_envs=record.num_envs,
            iterations=iterations,
            steps_per_iteration=each,
            prefill_steps=sum(loop.count for loop in prefill) * each,
            max_lag=self._algorithm.max_lag,
            variables=record.variables,
            views=record.views,
            root=_complete(root, learner, tuple(record.views)),
            reports=named(
                record.title,
                record.variables,
                [
                    *(Report(name, "sum", "env") for name in self._sums()),
                    *(Report(name, "mean", node) for name, node in iteration.reported),
                ],
            ),
            divisors=tuple(dict.fromkeys(record.divisors)),
            cuts=record.cuts,
        )

    def _prefill_loop(self, items: list[Item]) -> list[Loop]:
        """The rounds that fill the replay: the iteration's own acting and remembering, numbered apart."""
        rounds = math.ceil(self.prefill_steps / (self.steps * self._record.num_envs))
        acting = [item for item in items if _kind(item) == "remember" or getattr(item, "rate", "") == "step"]
        if rounds and len(acting) < 2:
            raise BadAlgorithm("flow.prefill needs flow.unroll and flow.remember directly in the loop.")
        return [Loop("prefill", rounds, tuple(acting), (), "run", first=PREFILL)] if rounds else []

    def _start_learner(self) -> None:
        algorithm = self._algorithm
        self._record.start("learner", lambda here: (algorithm.init(here.key),), ["learner"], "apply")
        self._record.view("policy", "learner", algorithm.policy)
        if type(algorithm).weights is not Algorithm.weights:
            self._record.view("policy.weights", "learner", algorithm.weights)

    @property
    def _on_host(self) -> bool:
        return isinstance(self._env, HostEnvironment)

    def _sums(self) -> dict[str, str]:
        """What is reported of the environments, and the step's field that it is the sum of."""
        on_host = {"episodes.count": "step.finished", "restarts": "step.restarts"}
        return _EPISODE_REPORTS | (on_host if self._on_host else {})

    def _step_environments(self) -> None:
        env = self._env
        if isinstance(env, HostEnvironment):

            def types(here: Here, episode: Any, action: Any) -> tuple[Any, ...]:
                state, fields = host_types(env, here.batch)
                return (state, *fields)

            run, names, host = types, HOST_FIELDS, HostCall(env, opens=False)
        else:
            run, names, host = partial(_env, env), tuple(Step.__dataclass_fields__), None
        writes = ["env", *(f"step.{name}" for name in names)]
        self._record.node("env", "env", run, ["env", "decision.action"], writes, host=host)

    def _start_environments(self) -> None:
        env, memory = self._env, self._algorithm.memory()

        def blank(here: Here) -> tuple[Any]:
            return (jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (here.batch, *jnp.shape(leaf))), memory),)

        def types(here: Here) -> tuple[Any, ...]:
            assert isinstance(env, HostEnvironment)
            state, fields = host_types(env, here.batch)
            table = dict(zip(HOST_FIELDS, fields, strict=True))
            return state, table["observation"], table["first"]

        first = ["env", "step.observation", "step.first"]
        if isinstance(env, HostEnvironment):
            self._record.start("env", types, first, "env", HostCall(env, opens=True))
        else:
            self._record.start("env", lambda here: begin(env, here.env_keys()), first, "env")
        if jax.tree.leaves(memory):
            self._record.start("memory", blank, ["memory"], "act")

    def _check_act(self, act: Callable[..., Decision]) -> Decision:
        """Trace `act` on one environment and compare what it returns with the environment's action space."""
        space, memory = self._env.action_space, jax.tree.map(strict_aval, self._algorithm.memory())
        observation = self._env.observation_space.aval
        decision = jax.eval_shape(act, self._record.shape("policy"), memory, observation, ADDRESS[0])
        where = f"{self._record.title}.{_label(act)}"
        if not isinstance(decision, Decision):
            raise BadAlgorithm(f"{where} must return a motet.Decision, got {show(decision)}.")
        wanted, got = space.aval, decision.action
        if not _fits(wanted, got):
            raise BadAlgorithm(
                f"{where} must return an action of {space}, that is {show(wanted)} for one environment; "
                f"got {show(got)}."
            )
        if jax.tree.map(strict_aval, decision.memory) != memory:
            raise BadAlgorithm(
                f"{where} must return memory like {self._record.title}.memory(): expected {show(memory)}, "
                f"got {show(decision.memory)}."
            )
        return decision


_EPISODE_REPORTS = {
    "episodes.count": "step.first",
    "episodes.return": "step.finished_return",
    "episodes.length": "step.finished_length",
}


def _act(
    algorithm: Algorithm,
    act: Callable[..., Decision],
    extras: bool,
    here: Here,
    policy: Any,
    observation: Any,
    first: jax.Array | None = None,
    memory: Any = (),
) -> tuple[Any, ...]:
    """`act` for every environment; a memory starts anew with each episode."""
    if first is not None:

        def renew(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(first.reshape(-1, *(1,) * (old.ndim - 1)), new, old)

        memory = jax.tree.map(renew, algorithm.memory(), memory)
    decision = jax.vmap(partial(act, policy))(memory, observation, here.env_keys())
    optional = [decision.extras] if extras else []
    optional += [first, decision.memory] if first is not None else []
    return (decision.action, observation, *optional)


def _env(env: Environment, here: Here, episode: Any, action: Any) -> tuple[Any, ...]:
    episode, step = advance(env, episode, action, here.env_keys)
    return (episode, *(getattr(step, name) for name in Step.__dataclass_fields__))


def _complete(item: Item, learner: str, views: tuple[str, ...]) -> Any:
    """Say what is known only at the end: who writes the views, and where the learner's first state is made."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(_complete(child, learner, views) for child in item.body))
    if "learner" not in item.writes:
        return item
    site = learner if item.kind == "init" else item.site
    return replace(item, site=site, writes=(*item.writes, *views))


def _kind(item: Item) -> str:
    return item.kind if isinstance(item, Node) else "loop"


def _label(method: Callable[..., Any]) -> str:
    return getattr(method, "__name__", type(method).__name__).strip("_<>") or "call"


def _fits(wanted: Any, got: Any) -> bool:
    """Whether an action has its space's structure, shapes and sorts of number."""
    if jax.tree.structure(wanted) != jax.tree.structure(got):
        return False
    pairs = zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True)
    return all(a.shape == b.shape and jnp.issubdtype(b.dtype, _abstract(a.dtype)) for a, b in pairs)


def _abstract(dtype: Any) -> Any:
    """The sort of number: an action may be of another width than its space's."""
    return jnp.integer if jnp.issubdtype(dtype, jnp.integer) else jnp.floating
