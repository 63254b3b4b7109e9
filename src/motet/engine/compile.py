"""From a program to what an engine interprets: every run of steps that XLA can take becomes one compiled call.

What is left between those calls is sends, receives and the loops that contain them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine import cache, dispatch
from motet.engine.clone import Made, template
from motet.engine.evaluate import Evaluator, Store, node_keys
from motet.engine.host import HostStep, Stand
from motet.engine.inside import Exchange
from motet.engine.place import Place
from motet.engine.shelf import Shelf
from motet.engine.stored import StoreStep, Vault
from motet.flow.batch import SHARDS
from motet.flow.graph import Cut, Graph, Node, Output
from motet.plan.project import Program, Rounds, Send, Step


@dataclass(frozen=True)
class Loop:
    """Rounds that the engine goes through itself, because something is sent or received in them."""

    name: str
    count: int
    body: tuple[Any, ...]
    outputs: tuple[Output, ...]
    first: int
    every: int = 1


@dataclass
class Clock:
    """Seconds that one replica spent compiling."""

    compiling: float = 0.0


@dataclass
class Block:
    """Steps that run as one compiled function. State that it replaces is donated."""

    alone: ClassVar[bool] = False
    """Whether nobody else wants the cores meanwhile."""

    evaluator: Evaluator
    place: Place
    replica: int
    steps: tuple[Step, ...]
    outs: tuple[str, ...]
    donated: tuple[str, ...]
    announce: Callable[[str], None]
    shelf: Shelf
    clock: Clock = field(default_factory=Clock)
    compiled: Any = None

    def __post_init__(self) -> None:
        reads = self.evaluator.exposed(self.steps)
        replaced = frozenset().union(*(self.evaluator.writes(step) for step in self.steps))
        self.donated = tuple(sorted(reads & replaced & set(self.donated)))
        self.kept = tuple(sorted(reads - set(self.donated)))

    @cached_property
    def asks(self) -> bool:
        """Whether it steps host environments."""
        return asks(self.steps)

    @property
    def label(self) -> str:
        return " + ".join(step.name for step in self.steps if isinstance(step, (Node, Rounds)))

    def __call__(self, store: Store, root: jax.Array, path: tuple[int, ...]) -> Store:
        """Run on the variables of `store` -> the variables that something else needs."""
        moved = {name: store[name] for name in self.donated}
        kept = {name: store[name] for name in self.kept}
        arguments = (moved, kept, root, self._first, np.asarray(path, np.uint32))
        if self.compiled is None:
            self.compiled = self._compile(self._traced, arguments, self._specs(self.outs))
        return self._run(arguments)

    def _run(self, arguments: tuple[Any, ...]) -> Any:
        exchange = self.evaluator.exchange
        if self.asks and exchange is not None:
            return exchange.run(self.compiled, arguments, self.replica)
        return self.compiled(*arguments)

    def _compile(self, function: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        """The function for this block's devices: other replicas may have traced it already, or even compiled it."""
        start = time.perf_counter()
        self.announce(f"compiling {self.label}")
        # A program that asks environments knows those of its own run.
        name = (type(self), self.steps, self.outs, self.donated, id(self.evaluator.exchange) if self.asks else None)
        devices = self.place.devices

        def make() -> Made:
            # Which devices a sharded function is for is part of it.
            function_of = ("function", name, devices if self.place.sharded else ())
            jitted = self.shelf.get(function_of, lambda: self._jitted(function, arguments, out_specs))
            before = cache.hits()
            with jax.default_device(devices[0]), self._cache():
                with self.shelf.tracing:
                    traced = jitted.trace(*arguments)
                options = self._compiler_options(traced.jaxpr.jaxpr)
                return Made(traced.lower().compile(options), devices[0], options, cache.hits() == before)

        def share() -> Any:
            first = self.shelf.get(("template", name), lambda: template(make()))
            if first.made.device == devices[0]:
                return first.made.program
            copy = first.clone(devices[0])
            return make().program if copy is None else copy

        own = share if self._shared else lambda: make().program
        program = self.shelf.get(("program", name, devices), own)
        self.clock.compiling += time.perf_counter() - start
        self.announce(f"running {self.label}")
        return program

    @property
    def _shared(self) -> bool:
        """Whether one program is to serve several devices. It cannot if it calls Python or spans devices."""
        alike = self.place.devices[0].platform == "cpu" and not self.place.sharded and not self.asks
        return alike and self.shelf.places > 1

    def _jitted(self, function: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        if self.place.sharded:
            plain = tuple(jax.tree.map(lambda _: self.place.spec(None), each) for each in arguments[2:])
            function = jax.shard_map(
                function,
                mesh=self.place.mesh,
                in_specs=(self._specs(self.donated), self._specs(self.kept), *plain),
                out_specs=out_specs,
                check_vma=False,
            )
        return jax.jit(function, donate_argnums=(0,))

    def _cache(self) -> AbstractContextManager[None]:
        return cache.bypassed() if self.place.sharded and self.place.devices[0].platform == "cpu" else nullcontext()

    def _compiler_options(self, jaxpr: Any) -> dict[str, str | bool]:
        if self.place.devices[0].platform != "cpu":
            return {}
        return dispatch.cpu_options(jaxpr, self.alone and not self.asks)

    def _traced(self, moved: Store, kept: Store, root: jax.Array, first: jax.Array, path: jax.Array) -> Store:
        indices = list(path)
        keys = node_keys(root, self.evaluator.keyed(self.steps), indices)
        index = indices[-1].astype(jnp.int32) if indices else jnp.zeros((), jnp.int32)
        live = frozenset(map(self.evaluator.local, self.outs))
        after = self.evaluator.run(self.steps, {**moved, **kept}, keys, self._part(first), index, live)
        return {name: self.evaluator.read(after, name) for name in self.outs}

    @property
    def _first(self) -> np.int32:
        """The first of this replica's pieces: told to the function, so that one serves all replicas."""
        return np.int32(self.replica * len(self.place.devices))

    def _part(self, first: jax.Array) -> Any:
        return first + jax.lax.axis_index(SHARDS) if self.place.sharded else first

    def _specs(self, names: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        variables = self.evaluator.graph.variables
        return {name: tuple(self.place.spec(axis) for axis in variables[name].axes) for name in names}


@dataclass(frozen=True)
class Plain:
    """One node, run without compilation."""

    evaluator: Evaluator
    replica: int
    node: Node

    def __call__(self, store: Store, root: jax.Array, path: tuple[int, ...]) -> Store:
        keys = node_keys(root, self.evaluator.keyed([self.node]), path)
        index = np.uint32(path[-1]).astype(np.int32) if path else np.int32(0)
        written = self.evaluator.node(self.node, store, keys, np.int32(self.replica), index)
        views = (name for name in self.node.writes if name in self.evaluator.graph.views)
        return {**written, **{name: self.evaluator.read({**store, **written}, name) for name in views}}


CHUNK = 256
"""The most iterations in one call of a fused program, so that the memory for their metrics is bounded."""


class Fused(Block):
    """A whole iteration as one block; one call runs many and returns a row of metrics for each."""

    reports: tuple[tuple[str, str], ...] = ()  # (variable, how)
    alone: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "the training loop"

    def many(self, store: Store, root: jax.Array, first: int, count: int) -> tuple[Store, np.ndarray]:
        """Run `count` iterations from number `first` -> what they wrote, and [count, metrics]."""
        moved = {name: store[name] for name in self.donated}
        kept = {name: store[name] for name in self.kept}
        arguments = (moved, kept, root, self._first, np.uint32(first), np.int32(count))
        if self.compiled is None:
            outs = self._specs(self.donated)
            self.compiled = self._compile(self._many, arguments, (outs, self.place.spec(None)))
        after, rows = self._run(arguments)
        return after, np.asarray(rows)[:count]

    def _many(
        self, moved: Store, kept: Store, root: jax.Array, piece: Any, first: Any, count: Any
    ) -> tuple[Store, jax.Array]:
        evaluator, part = self.evaluator, self._part(piece)
        live = frozenset(self.donated) | {var for var, _ in self.reports}
        names = evaluator.keyed(self.steps)

        def body(round_: Any, carry: tuple[Store, jax.Array]) -> tuple[Store, jax.Array]:
            state, rows = carry
            iteration = first + round_.astype(jnp.uint32)
            keys = node_keys(root, names, [iteration])
            after = evaluator.run(self.steps, {**kept, **state}, keys, part, iteration.astype(jnp.int32), live)
            rows = jax.lax.dynamic_update_index_in_dim(rows, self._row(after), round_, 0)
            return {name: after[name] for name in self.donated}, rows

        rows = jnp.zeros((CHUNK, self.width), jnp.result_type(float))
        return jax.lax.fori_loop(0, count, body, (moved, rows))

    @property
    def width(self) -> int:
        return sum(len(self.evaluator.graph.variables[var].avals) for var, _ in self.reports)

    def _row(self, store: Store) -> jax.Array:
        """One iteration's metrics, reduced over the environments."""
        row = []
        for var, how in self.reports:
            for leaf in store[var]:
                one = (jnp.sum(leaf) if how == "sum" else jnp.mean(leaf)).astype(jnp.result_type(float))
                row.append(jax.lax.psum(one, SHARDS) if how == "sum" and self.place.sharded else one)
        return jnp.stack(row) if row else jnp.zeros((0,))


@dataclass(frozen=True)
class Executable:
    """A program for one replica, ready to be interpreted."""

    start: tuple[Any, ...]
    body: tuple[Any, ...]
    fused: Fused | None
    clock: Clock
    stand: Stand
    vault: Vault


def compile_program(
    graph: Graph,
    program: Program,
    place: Place,
    replica: int,
    cut: Cut,
    announce: Callable[[str], None],
    stand: Stand,
    exchange: Exchange,
    shelf: Shelf,
    compiled: bool = True,
) -> Executable:
    """Cut a program into blocks for one replica. Nothing is compiled before a block is first called.

    With `compiled` false every node is a step of its own, run as it stands: slow, but a debugger can follow it.
    """
    steps = (*program.start, *program.body)
    if stand.inside and not stand.shared and not place.sharded and place.devices[0].platform == "cpu":
        exchange.stands[replica] = stand
    evaluator = Evaluator(graph, cut, steps, exchange)
    clock = Clock()
    sent = _sent(steps)
    state = (evaluator.exposed(program.body) & evaluator.owned) - sent

    vault = Vault(place.store)
    made: dict[Any, Block] = {}

    def compilable(step: Step) -> bool:
        if isinstance(step, Rounds):
            return all(map(compilable, step.body))
        if not isinstance(step, Node) or step.host is not None:
            return isinstance(step, Node) and exchange.takes(step)
        return step.replay is None or not vault.where

    def block(kind: type[Block], run: Sequence[Step], outs: Iterable[str]) -> Block:
        """A block; one that was made before, as the prefill's are, is compiled once."""
        name = (kind, tuple(run), frozenset(outs))
        return made.setdefault(name, make(kind, run, outs))

    def make(kind: type[Block], run: Sequence[Step], outs: Iterable[str]) -> Block:
        return kind(evaluator, place, replica, tuple(run), tuple(sorted(outs)), tuple(state), announce, shelf, clock)

    def blocks(items: Sequence[Step], after: frozenset[str]) -> tuple[Any, ...]:
        """Group `items`; `after` is what is read once they are done, a next round included."""
        out: list[Any] = []
        run: list[Step] = []

        def close(rest: Sequence[Step]) -> None:
            if run:
                written = frozenset().union(*(evaluator.raw_writes(step) for step in run))
                wanted = after | evaluator.exposed(rest)
                out.append(block(Block, run, written & wanted))
                run.clear()

        for position, item in enumerate(items):
            if isinstance(item, Node) and item.host is not None and not (compiled and compilable(item)):
                close(items[position:])
                out.append(HostStep(graph, item, place, stand))
                continue
            if isinstance(item, Node) and item.replay is not None and vault.where:
                close(items[position:])
                out.append(StoreStep(graph, item, vault))
                continue
            if isinstance(item, Node) and not compiled:
                out.append(Plain(evaluator, replica, item))
                continue
            if compiled and compilable(item):
                run.append(item)
                continue
            close(items[position:])
            if isinstance(item, Rounds):
                inner_after = after | evaluator.exposed(items[position + 1 :])
                needed = inner_after | evaluator.exposed(item.body) | {o.inner for o in item.outputs}
                inside = blocks(item.body, needed)
                out.append(Loop(item.name, item.count, inside, item.outputs, item.first, item.every))
            else:
                out.append(item)
        close(())
        return tuple(out)

    reports = [(report.var, report.how) for report in graph.reports if report.var in program.reports]
    around = evaluator.exposed(program.body) | state
    fused = None
    if compiled and program.body and all(map(compilable, program.body)):
        fused = block(Fused, program.body, ())
        assert isinstance(fused, Fused)
        fused.reports = tuple(reports)
    around |= {var for var, _ in reports}
    return Executable(blocks(program.start, around), blocks(program.body, around), fused, clock, stand, vault)


def asks(steps: Sequence[Step]) -> bool:
    """Whether some of the steps are a host environment's."""
    return any(asks(step.body) if isinstance(step, Rounds) else isinstance(step, Node) and step.host for step in steps)


def _sent(steps: Sequence[Step]) -> frozenset[str]:
    """Variables whose buffers another fragment may still hold, so that they must not be donated."""
    found: frozenset[str] = frozenset()
    for step in steps:
        if isinstance(step, Send):
            found |= set(step.wire.vars)
        elif isinstance(step, Rounds):
            found |= _sent(step.body)
    return found
