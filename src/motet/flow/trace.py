"""`trace` runs an algorithm's loop once, on abstract values, and records it as a graph.

Each call on `Flow` records a node. A node's function is written for a piece of b environments; it is traced to a
jaxpr for every cut that was asked for, and which dimensions are cut with the environments is found by tracing it
once more with twice as many. Afterwards nothing here is needed to run the graph.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm, BadOption
from motet.flow import shuffle
from motet.flow.algorithm import Algorithm, Decision, Spec
from motet.flow.batch import SHARDS, scope
from motet.flow.environment import Environment, advance, begin, check_environment
from motet.flow.graph import (
    REDUCE,
    WHOLE,
    Cut,
    Graph,
    Item,
    Kind,
    Loop,
    Node,
    Output,
    Rate,
    Report,
    Var,
    View,
    resize,
    walk,
)


@dataclass(frozen=True)
class Value:
    """A handle on a variable, passed from one call on `flow` to the next."""

    name: str


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transitions:
    """What happened in single steps, without what the policy thought of it."""

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    next_observation: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rollout:
    """T steps of B environments. `next_observation` is the true one, also where an episode ended."""

    observation: Any  # [T, B, ...]
    action: Any  # [T, B, ...]
    extras: Any  # [T, B, ...]
    reward: Any  # [T, B]
    terminated: Any  # [T, B]
    truncated: Any  # [T, B]
    next_observation: Any  # [T, B, ...]

    @property
    def transitions(self) -> Transitions:
        return Transitions(self.observation, self.action, self.reward, self.terminated, self.next_observation)


@dataclass
class _Open:
    """A loop that is being recorded."""

    name: str
    count: int
    rate: Rate
    items: list[Item] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    reported: list[tuple[str, str]] = field(default_factory=list)  # (variable, node)


def trace(
    algorithm: Algorithm, env: Environment, *, total_timesteps: int = 1_000_000, cuts: Iterable[Cut] = (WHOLE,)
) -> Graph:
    """Record `algorithm.loop` on `env`. Cuts that do not divide the environments are left to `check` to report."""
    check_environment(env)
    counter = _Counter()
    with suppress(_Enough):
        _bind(algorithm, env, 1).loop(counter)  # type: ignore[arg-type]
    steps, prefill = counter.steps, counter.prefill_steps
    while True:
        iterations = count_iterations(algorithm, total_timesteps, steps, prefill)
        flow = Flow(_bind(algorithm, env, iterations), env, cuts)
        flow.record()
        if (flow.steps, flow.prefill_steps) == (steps, prefill):
            return flow.finish(iterations)
        steps, prefill = flow.steps, flow.prefill_steps  # the loop called something else before its unroll


def _bind(algorithm: Algorithm, env: Environment, iterations: int) -> Algorithm:
    return algorithm.bind(Spec(env.observation_space, env.action_space, iterations))


def count_iterations(algorithm: Algorithm, total_timesteps: int, steps: int, prefill: int) -> int:
    """How many whole iterations fit into `total_timesteps`, after the prefill."""
    each = max(1, steps) * algorithm.num_envs
    before = math.ceil(prefill / each) * each
    if total_timesteps < before + each:
        first = f"a prefill of {before:,} steps and " if before else ""
        raise BadOption(
            f"total_timesteps must be at least {before + each:,}, got {total_timesteps:,}: {type(algorithm).__name__} needs "
            f"{first}iterations of {each:,} steps ({algorithm.num_envs} environments x {steps} steps). Raise "
            "total_timesteps, or lower the number of environments or steps."
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

    def __init__(self, algorithm: Algorithm, env: Environment, cuts: Iterable[Cut]):
        self._algorithm, self._env, self._batch = algorithm, env, algorithm.num_envs
        self._cuts = tuple(dict.fromkeys((WHOLE, *cuts)))
        self._vars: dict[str, Var] = {}
        self._views: dict[str, View] = {}
        self._init: list[Node] = []
        self._stack = [_Open("iteration", 1, "iteration")]
        self._divisors: list[tuple[str, int]] = [("the environments", algorithm.num_envs)]
        self._names: set[str] = set()
        self.prefill_steps = 0
        self.steps = 0
        self._replay: Any = None
        self._start_learner()

    # What an algorithm's author calls.

    def unroll(self, act: Callable[..., Decision], *, steps: int) -> Rollout:
        """Act and step every environment `steps` times -> a `Rollout` of [T, B] values."""
        if self.steps:
            raise BadAlgorithm(f"{self._title}.loop calls flow.unroll twice; an iteration has one rollout.")
        self._check_act(act)
        self._start_environments()
        self.steps = steps
        recurrent = "memory" in self._vars
        extras = jax.tree.leaves(self._decision.extras)
        with self._loop(self._name("unroll"), steps, "step") as loop:
            reads = ("policy", "step.observation", *(("step.first", "memory") if recurrent else ()))
            writes = ["decision.action", "decision.observation"]
            writes += ["decision.extras"] if extras else []
            writes += ["memory"] if recurrent else []
            self._node("act", "act", partial(_act, self._algorithm, act, recurrent, bool(extras)), reads, writes)
            env_writes = ("env", *(f"step.{name}" for name in _STEP_FIELDS))
            self._node("env", "env", partial(_env, self._env), ("env", "decision.action"), env_writes)
            rollout = Rollout(
                observation=self._output(loop, "rollout.observation", "decision.observation"),
                action=self._output(loop, "rollout.action", "decision.action"),
                extras=self._output(loop, "rollout.extras", "decision.extras") if extras else (),
                reward=self._output(loop, "rollout.reward", "step.reward"),
                terminated=self._output(loop, "rollout.terminated", "step.terminated"),
                truncated=self._output(loop, "rollout.truncated", "step.truncated"),
                next_observation=self._output(loop, "rollout.next_observation", "step.next_observation"),
            )
            for name, inner in _EPISODE_REPORTS.items():
                self._output(loop, name, inner, "sum")
        return rollout

    def call(self, method: Callable[..., Any], *values: Any) -> Any:
        """Run `method(weights, *values[, key])` -> handles of what it returns, one for each element of a tuple.

        What it returns without an environment axis is taken to be a mean over the batch.
        """
        name = self._name(_label(method))
        handles, arguments = _split(values)
        reads = tuple(dict.fromkeys([self._weights, *handles]))
        wants_key = "key" in inspect.signature(method).parameters

        def run(batch: int, key: jax.Array, part: jax.Array, index: jax.Array, *read: Any) -> tuple[Any, ...]:
            table = dict(zip(reads, read, strict=True))
            result = method(table[self._weights], *arguments(table), **({"key": key} if wants_key else {}))
            return tuple(result) if _is_tuple(result) else (result,)

        example = self._shape(run, reads)
        writes = [name] if len(example) == 1 else [f"{name}.{position}" for position in range(len(example))]
        self._node(name, "call", run, reads, writes)
        handles_out = tuple(Value(write) for write in writes)
        return handles_out if len(handles_out) > 1 else handles_out[0]

    @contextmanager
    def minibatches(self, batch: Any, *, epochs: int, count: int) -> Iterator[Any]:
        """Go `epochs` times through `batch` ([T, B] values) in `count` shuffled parts, each flattened to [N]."""
        handles, rebuild = _split((batch,))
        time, envs = self._batch_shape(handles)
        block = shuffle.block_size(time, envs, count)
        self._divisors.append(("minibatches", envs // block))
        with self._loop(self._name("epochs"), epochs, "update"):

            def permute(batch: int, key: jax.Array, part: jax.Array, index: jax.Array) -> tuple[Any]:
                return (shuffle.permutation(key, time * block, count),)

            order = self._name("permute")
            self._node(order, "call", permute, (), [order])
            with self._loop(self._name("minibatches"), count, "update"):
                name = self._name("select")
                writes = [f"minibatch.{handle.replace('.', '_')}" for handle in handles]

                def select(b: int, key: jax.Array, part: jax.Array, index: jax.Array, rows: Any, *read: Any) -> Any:
                    return tuple(jax.tree.map(partial(shuffle.select, rows[index], block), tree) for tree in read)

                self._node(name, "call", select, (order, *handles), writes)
                table = {handle: Value(write) for handle, write in zip(handles, writes, strict=True)}
                yield rebuild(table)[0]

    @contextmanager
    def repeat(self, count: int) -> Iterator[None]:
        """Run the body `count` times in each iteration."""
        with self._loop(self._name("repeat"), count, "update"):
            yield

    def apply(self, method: Callable[..., Any], *values: Any) -> None:
        """Run `method(state, *values) -> state`: the learner state changes."""
        handles, arguments = _split(values)
        reads = tuple(dict.fromkeys(["learner", *handles]))

        def run(batch: int, key: jax.Array, part: jax.Array, index: jax.Array, *read: Any) -> tuple[Any]:
            table = dict(zip(reads, read, strict=True))
            return (method(table["learner"], *arguments(table)),)

        self._node(self._name(_label(method)), "apply", run, reads, ["learner"])

    def remember(self, values: Any, into: Any) -> None:
        """Add [T, B] values to the replay `into` (see motet.replay)."""
        handles, rebuild = _split((values,))
        self._replay, self._item = into, rebuild
        self._batch_shape(handles)
        shapes = {handle: self._vars[handle].unpack(self._vars[handle].avals) for handle in handles}
        example = rebuild(shapes)[0]

        def first(batch: int, key: jax.Array, part: jax.Array, index: jax.Array) -> tuple[Any]:
            local = jax.tree.map(lambda aval: resize(aval, 1, batch), example)
            return (into.init(local, self._batch),)

        name = self._name("remember")
        self._start("replay", first, ["replay"], name)

        def run(batch: int, key: jax.Array, part: jax.Array, index: jax.Array, replay: Any, *read: Any) -> tuple[Any]:
            return (into.add(replay, rebuild(dict(zip(handles, read, strict=True)))[0]),)

        self._node(name, "remember", run, ("replay", *handles), ["replay"])

    def sample(self, size: int) -> Value:
        """Draw `size` remembered items -> a handle on [N] values of the structure that was remembered."""
        if self._replay is None:
            raise BadAlgorithm("flow.sample needs a flow.remember before it: there is nothing to draw from.")
        replay, envs = self._replay, self._batch
        self._divisors.append(("sample", math.gcd(size, envs)))

        def run(batch: int, key: jax.Array, part: jax.Array, index: jax.Array, state: Any) -> tuple[Any]:
            return (
                replay.sample(state, key, part, slots=size * batch // envs, blocks=math.gcd(size, envs), size=size),
            )

        name = self._name("sample")
        self._node(name, "sample", run, ("replay",), [name])
        return Value(name)

    def prefill(self, steps: int) -> None:
        """Before the first iteration, act and remember until `steps` environment steps are in the replay."""
        self.prefill_steps = steps

    def report(self, metrics: Value) -> None:
        """Show a dictionary of scalars to whoever watches the run, averaged over each iteration."""
        var = self._vars[metrics.name]
        if not isinstance(var.unpack(var.avals), dict) or any(aval.shape for aval in var.avals):
            raise BadAlgorithm(
                f"flow.report takes a dictionary of scalars; {metrics.name} is "
                f"{_show(var.unpack(var.avals))}. Take the mean of each entry first."
            )
        self._stack[-1].reported.append((metrics.name, metrics.name.split(".")[0]))

    # How it is recorded.

    def record(self) -> None:
        """Run the algorithm's loop."""
        self._algorithm.loop(self)
        if not self.steps:
            raise BadAlgorithm(f"{self._title}.loop never calls flow.unroll: nothing would ever act.")

    def finish(self, iterations: int) -> Graph:
        """Close the iteration and assemble the graph."""
        (iteration,) = self._stack
        if not any(isinstance(item, Node) and item.kind == "apply" for item, _ in self._walk(iteration.items)):
            raise BadAlgorithm(f"{self._title}.loop never calls flow.apply: nothing would ever be learned.")
        rounds = math.ceil(self.prefill_steps / (self.steps * self._batch))
        reports = [Report(name, "sum", "env") for name in _EPISODE_REPORTS]
        reports += [Report(name, "mean", node) for name, node in iteration.reported]
        learner_site = next(node.name for node, _ in self._walk(iteration.items) if _kind(node) == "apply")
        init = [_at_site(node, learner_site if "learner" in node.writes else node.site) for node in self._init]
        body = (
            *init,
            *self._prefill_loop(iteration.items, rounds),
            Loop("iteration", 1, tuple(iteration.items), (), "iteration"),
        )
        return Graph(
            algorithm=self._title,
            environment=self._env.name,
            num_envs=self._batch,
            iterations=iterations,
            steps_per_iteration=self.steps * self._batch,
            prefill_steps=rounds * self.steps * self._batch,
            max_lag=type(self._algorithm).max_lag,
            variables=self._vars,
            views=self._views,
            root=Loop("run", 1, body, (), "run"),
            reports=tuple(reports),
            divisors=tuple(dict.fromkeys(self._divisors)),
            cuts=self._cuts,
        )

    def _prefill_loop(self, items: Sequence[Item], rounds: int) -> list[Loop]:
        if not rounds:
            return []
        acting = [
            item for item in items if _kind(item) == "remember" or (isinstance(item, Loop) and item.rate == "step")
        ]
        if len(acting) < 2:
            raise BadAlgorithm("flow.prefill needs flow.unroll and flow.remember directly in the loop.")
        return [Loop("prefill", rounds, tuple(acting), (), "run", first=PREFILL)]

    @staticmethod
    def _walk(items: Sequence[Item]) -> Iterator[tuple[Item, tuple[Loop, ...]]]:
        for item in items:
            yield from walk(item)

    @property
    def _title(self) -> str:
        return type(self._algorithm).__name__

    def _name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    @contextmanager
    def _loop(self, name: str, count: int, rate: Rate) -> Iterator[_Open]:
        if count < 1:
            raise BadAlgorithm(f"The loop {name!r} has {count} rounds; it needs at least 1.")
        self._stack.append(_Open(name, count, rate))
        yield self._stack[-1]
        done = self._stack.pop()
        for var, node in done.reported:
            # A metric climbs out of its loop as a mean; each loop on the way adds its name.
            self._stack[-1].reported.append((self._output(done, f"{var}/{done.name}", var, "mean").name, node))
        self._stack[-1].items.append(Loop(done.name, done.count, tuple(done.items), tuple(done.outputs), rate))

    def _output(self, loop: _Open, name: str, inner: str, how: Any = "stack") -> Value:
        var = self._vars[inner]
        avals, axes = var.avals, var.axes
        stacked = tuple(jax.ShapeDtypeStruct((loop.count, *aval.shape), aval.dtype) for aval in avals)
        avals = tuple(_strict_aval(jax.eval_shape(REDUCE[how], rows)) for rows in stacked)
        if how == "stack":
            axes = tuple(None if axis is None else axis + 1 for axis in axes)
        outer = self._stack[self._stack.index(loop) - 1] if loop in self._stack else self._stack[-1]
        self._vars[name] = Var(name, var.treedef, avals, axes, var.mean, outer.name)
        loop.outputs.append(Output(name, inner, how))
        return Value(name)

    def _start(self, name: str, run: Callable[..., Any], writes: Sequence[str], site: str) -> None:
        """Record a node that makes the first value of a state, ahead of all iterations."""
        self._init.append(self._make(f"init/{name}", "init", run, (), writes, site, state=True))

    def _node(
        self, name: str, kind: Kind, run: Callable[..., Any], reads: Sequence[str], writes: Sequence[str]
    ) -> None:
        self._names.add(name)
        self._stack[-1].items.append(self._make(name, kind, run, tuple(reads), writes, name))

    def _make(
        self,
        name: str,
        kind: Kind,
        run: Any,
        reads: tuple[str, ...],
        writes: Sequence[str],
        site: str,
        state: bool = False,
    ) -> Node:
        self._check_scope(name, reads)
        code, statistic = {}, False
        shape: Any = None
        for cut in self._cuts:
            if any(count % cut.parts for _, count in self._divisors):
                continue
            with scope(sharded=cut.shards > 1) as around:
                code[cut], out = self._jaxpr(run, reads, cut)
            statistic |= around.used
            shape = out if cut == WHOLE else shape
        varies = kind == "call" and any(self._vars[var].divisible for var in reads)
        double = self._shape(run, reads, scale=2)
        outer = None if state else self._stack[-1].name
        for var, tree, twice in zip(writes, shape, double, strict=True):
            self._declare(name, var, tree, twice, varies, outer)
        views = tuple(view.name for view in self._views.values() if view.of in writes)
        return Node(name, kind, site, reads, (*writes, *views), code, statistic)

    def _jaxpr(self, run: Any, reads: tuple[str, ...], cut: Cut) -> tuple[Any, Any]:
        axis_env = [(SHARDS, cut.shards)] if cut.shards > 1 else None
        flat, shape = self._flat(run, reads, self._batch // cut.parts)
        avals = [aval for var in reads for aval in self._vars[var].local(cut.parts)]
        jaxpr = jax.make_jaxpr(flat, axis_env=axis_env)(*_ADDRESS, *avals)
        return jaxpr, shape()

    def _flat(self, run: Any, reads: tuple[str, ...], batch: int) -> tuple[Callable[..., Any], Callable[[], Any]]:
        """`run` on flat leaves, and a way to ask for the structure it returned when it was last traced."""
        seen: list[Any] = []

        def flat(key: jax.Array, part: jax.Array, index: jax.Array, *leaves: jax.Array) -> list[jax.Array]:
            rest = list(leaves)
            trees = []
            for var in reads:
                count = len(self._vars[var].avals)
                trees.append(self._vars[var].unpack(tuple(rest[:count])))
                rest = rest[count:]
            result = run(batch, key, part, index, *trees)
            seen.append(jax.tree.map(_strict_aval, result))
            return [_strict(leaf) for leaf in jax.tree.leaves(result)]

        return flat, lambda: seen[-1]

    def _shape(self, run: Any, reads: tuple[str, ...], scale: int = 1) -> tuple[Any, ...]:
        """The shapes that `run` returns with `scale` times as many environments."""
        flat, shape = self._flat(run, reads, self._batch * scale)
        avals = []
        for var in (self._vars[name] for name in reads):
            for aval, axis in zip(var.avals, var.axes, strict=True):
                avals.append(aval if axis is None else resize(aval, axis, aval.shape[axis] * scale))
        jax.eval_shape(flat, *_ADDRESS, *avals)
        return shape()

    def _declare(self, node: str, var: str, tree: Any, double: Any, varies: bool, loop: str | None) -> None:
        """Note a variable's type; a state that exists already must keep its own."""
        leaves, treedef = jax.tree.flatten(tree)
        axes = tuple(_split_axis(node, a, b) for a, b in zip(leaves, jax.tree.leaves(double), strict=True))
        new = Var(var, treedef, tuple(leaves), axes, varies and None in axes, loop)
        old = self._vars.get(var)
        if old is None:
            self._vars[var] = new
        elif (old.treedef, old.avals) != (new.treedef, new.avals):
            raise BadAlgorithm(
                f"{self._title}.{node} must return {var} as it came: expected "
                f"{_show(old.unpack(old.avals))}, got {_show(tree)}. {_difference(old, new)}"
            )

    def _check_scope(self, node: str, reads: tuple[str, ...]) -> None:
        open_loops = {loop.name for loop in self._stack}
        for var in reads:
            if var not in self._vars:
                raise BadAlgorithm(f"{self._title}.{node} reads {var!r}, which nothing has written.")
            loop = self._vars[var].loop
            if loop is not None and loop not in open_loops:
                raise BadAlgorithm(
                    f"{self._title}.{node} uses {var!r} outside the loop {loop!r} that made it. Move the call into "
                    "that `with` block."
                )

    def _batch_shape(self, handles: Sequence[str]) -> tuple[int, int]:
        """The T and B that all of `handles` share."""
        shapes = {}
        for handle in handles:
            var = self._vars[handle]
            for aval, axis in zip(var.avals, var.axes, strict=True):
                if axis != 1:
                    raise BadAlgorithm(
                        f"{handle!r} must hold [T, B, ...] values to be cut into minibatches or remembered; it is "
                        f"{_show(var.unpack(var.avals))}, with the environments on dimension {axis}."
                    )
                shapes.setdefault(aval.shape[:2], handle)
        if len(shapes) != 1:
            raise BadAlgorithm(
                f"Values of one batch must share T and B; got {dict((v, k) for k, v in shapes.items())}."
            )
        return next(iter(shapes))

    # The states that every loop has.

    def _start_learner(self) -> None:
        algorithm = self._algorithm

        def first(batch: int, key: jax.Array, part: jax.Array, index: jax.Array) -> tuple[Any]:
            return (algorithm.init(key),)

        self._init.append(self._make("init/learner", "init", first, (), ["learner"], "apply", state=True))
        learner = self._vars["learner"]
        views = {"policy": algorithm.policy}
        if type(algorithm).weights is not Algorithm.weights:
            views["policy.weights"] = algorithm.weights
        self._weights = "policy.weights" if "policy.weights" in views else "policy"
        for name, method in views.items():
            tree = jax.tree.map(_strict_aval, jax.eval_shape(method, learner.unpack(learner.avals)))
            leaves, treedef = jax.tree.flatten(tree)
            code = jax.make_jaxpr(lambda *flat, method=method: jax.tree.leaves(method(learner.unpack(flat))))(
                *learner.avals
            )
            self._vars[name] = Var(name, treedef, tuple(leaves), (None,) * len(leaves))
            self._views[name] = View(name, "learner", code)
        (node,) = self._init
        self._init = [Node(node.name, node.kind, node.site, (), ("learner", *self._views), node.code)]

    def _start_environments(self) -> None:
        if "env" in self._vars:
            return
        env, memory = self._env, self._algorithm.memory()

        def first(batch: int, key: jax.Array, part: jax.Array, index: jax.Array) -> tuple[Any, Any, Any]:
            return begin(env, env_keys(key, part, batch))

        self._start("env", first, ["env", "step.observation", "step.first"], "env")
        if jax.tree.leaves(memory):

            def blank(batch: int, key: jax.Array, part: jax.Array, index: jax.Array) -> tuple[Any]:
                return (jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, *jnp.shape(leaf))), memory),)

            self._start("memory", blank, ["memory"], "act")

    def _check_act(self, act: Callable[..., Decision]) -> None:
        """Trace `act` on one environment and compare what it returns with the environment's action space."""
        policy = self._vars["policy"].unpack(self._vars["policy"].avals)
        space, memory = self._env.action_space, jax.tree.map(_strict_aval, self._algorithm.memory())
        observation = self._env.observation_space.aval
        decision = jax.eval_shape(act, policy, memory, observation, _ADDRESS[0])
        where = f"{self._title}.{_label(act)}"
        if not isinstance(decision, Decision):
            raise BadAlgorithm(f"{where} must return a motet.Decision, got {_show(decision)}.")
        got = decision.action
        if not hasattr(got, "shape") or got.shape != space.aval.shape or _sort(got.dtype) != _sort(space.aval.dtype):
            raise BadAlgorithm(
                f"{where} must return an action of {space}, that is {_show(space.aval)} for one environment; "
                f"got {_show(got)}."
            )
        if jax.tree.map(_strict_aval, decision.memory) != memory:
            raise BadAlgorithm(
                f"{where} must return memory like {self._title}.memory(): expected {_show(memory)}, "
                f"got {_show(decision.memory)}."
            )
        self._decision = decision


def env_keys(key: jax.Array, part: jax.Array, batch: int) -> jax.Array:
    """One key for each environment of a piece, the same whatever piece it is in."""
    return jax.vmap(partial(jax.random.fold_in, key))(part * batch + jnp.arange(batch))


PREFILL = 2**31
"""The number of the first round of the prefill, far from every iteration."""
_STEP_FIELDS = (
    "observation", "next_observation", "reward", "terminated", "truncated", "first", "finished_return", "finished_length",
)  # fmt: skip
_EPISODE_REPORTS = {
    "episodes.count": "step.first",
    "episodes.return": "step.finished_return",
    "episodes.length": "step.finished_length",
}
_ADDRESS = (
    jax.eval_shape(lambda: jax.random.key(0)),
    jax.ShapeDtypeStruct((), jnp.int32),
    jax.ShapeDtypeStruct((), jnp.int32),
)
"""The types of a node's first three arguments: its key, which piece it is, and the round of the loop around it."""


def _act(
    algorithm: Algorithm, act: Any, recurrent: bool, extras: bool, batch: int, key: jax.Array, part: jax.Array,
    index: jax.Array, policy: Any, observation: Any, first: Any = None, memory: Any = (),
) -> tuple[Any, ...]:  # fmt: skip
    if recurrent:
        blank = algorithm.memory()
        memory = jax.tree.map(
            lambda new, old: jnp.where(first.reshape(-1, *(1,) * (old.ndim - 1)), new, old), blank, memory
        )
    keys = env_keys(key, part, batch)
    decision = jax.vmap(partial(act, policy))(memory, observation, keys)
    out = [decision.action, observation]
    out += [decision.extras] if extras else []
    out += [decision.memory] if recurrent else []
    return tuple(out)


def _env(
    env: Environment, batch: int, key: jax.Array, part: jax.Array, index: jax.Array, episode: Any, action: Any
) -> tuple[Any, ...]:
    episode, step = advance(env, episode, action, env_keys(key, part, batch))
    return (episode, *(getattr(step, name) for name in _STEP_FIELDS))


def _split(values: Any) -> tuple[list[str], Callable[[dict[str, Any]], Any]]:
    """The variables inside a tree of handles, and a function that puts values in their places."""
    leaves, treedef = jax.tree.flatten(values, is_leaf=lambda leaf: isinstance(leaf, Value))
    for leaf in leaves:
        if not isinstance(leaf, Value):
            raise BadAlgorithm(
                f"A call on flow takes what earlier calls on flow returned; got {leaf!r} ({type(leaf).__name__}). "
                "Constants belong into the algorithm's fields."
            )
    names = list(dict.fromkeys(leaf.name for leaf in leaves))
    return names, lambda table: jax.tree.unflatten(treedef, [table[leaf.name] for leaf in leaves])


def _split_axis(node: str, once: Any, twice: Any) -> int | None:
    """The dimension that grows with the environments."""
    axes = [axis for axis, (a, b) in enumerate(zip(once.shape, twice.shape, strict=True)) if a != b]
    if len(axes) > 1:
        raise BadAlgorithm(f"{node} returns {_show(once)}, in which {len(axes)} dimensions grow with the environments.")
    return axes[0] if axes else None


def _at_site(node: Node, site: str) -> Node:
    return Node(node.name, node.kind, site, node.reads, node.writes, node.code, node.statistic)


def _kind(item: Item) -> str:
    return item.kind if isinstance(item, Node) else "loop"


def _label(method: Callable[..., Any]) -> str:
    return getattr(method, "__name__", type(method).__name__).strip("_<>") or "call"


def _is_tuple(value: Any) -> bool:
    return type(value) is tuple


def _strict(leaf: Any) -> jax.Array:
    """The leaf as an array of a definite type: a weak one would change a loop's type from round to round."""
    array = jnp.asarray(leaf)
    return jax.lax.convert_element_type(array, array.dtype) if array.weak_type else array


def _strict_aval(leaf: Any) -> jax.ShapeDtypeStruct:
    array = leaf if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else jnp.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _sort(dtype: Any) -> str:
    return (
        "integer"
        if jnp.issubdtype(dtype, jnp.integer)
        else "float"
        if jnp.issubdtype(dtype, jnp.floating)
        else str(dtype)
    )


def _show(tree: Any) -> str:
    def one(leaf: Any) -> str:
        if not hasattr(leaf, "shape"):
            return type(leaf).__name__
        return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"

    leaves = jax.tree.leaves(tree)
    if len(leaves) == 1 and jax.tree.structure(tree) == jax.tree.structure(0):
        return one(leaves[0])
    return f"{type(tree).__name__} of ({', '.join(map(one, leaves[:8]))}{', ...' if len(leaves) > 8 else ''})"


def _difference(old: Var, new: Var) -> str:
    if old.treedef != new.treedef:
        return "Their structures differ."
    paths = jax.tree_util.tree_flatten_with_path(old.unpack(old.avals))[0]
    for (path, before), after in zip(paths, new.avals, strict=True):
        if before != after:
            return f"The first difference is at {jax.tree_util.keystr(path) or 'the value'}: {_show(before)} became {_show(after)}."
    return ""
