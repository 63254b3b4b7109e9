"""A call of a schedule as a compiled program of one place. Nothing is compiled before it is first wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine import cache
from motet.engine.cpu.clone import Made, template
from motet.engine.cpu.hashes import lowering
from motet.engine.cpu.options import cpu_options
from motet.engine.lowering import Lowering, node_keys
from motet.engine.place import Place
from motet.engine.programs import ProgramCache
from motet.engine.variables import Variables
from motet.flow.batch import SHARDS
from motet.plan.schedule import Call


@dataclass
class Home:
    """Where the calls of one replica are compiled and run."""

    lowering: Lowering
    place: Place
    replica: int
    programs: ProgramCache
    announce: Callable[[str], None]
    compiling: float = 0.0
    """Seconds that this replica spent compiling."""


@dataclass
class CompiledCall:
    """A call. The state that it replaces is donated."""

    alone: ClassVar[bool] = False
    """Whether nobody else wants the cores meanwhile."""

    call: Call
    home: Home
    compiled: Any = None

    def __post_init__(self) -> None:
        self.asks = self.call.asks

    @property
    def label(self) -> str:
        return self.call.label

    def __call__(self, values: Variables, root: jax.Array, path: tuple[int, ...]) -> Variables:
        """Run on `values` -> what something else needs of what it wrote."""
        call = self.call
        moved = {name: values[name] for name in call.donated}
        kept = {name: values[name] for name in call.kept}
        arguments = (moved, kept, root, self._first, np.asarray(path, np.uint32))
        if self.compiled is None:
            self.compiled = self._compile(self._traced, arguments, self._specs(call.writes))
        return self._run(arguments)

    def _run(self, arguments: tuple[Any, ...]) -> Any:
        bridge = self.home.lowering.bridge
        if self.asks and bridge is not None:
            return bridge.run(self.compiled, arguments, self.home.replica)
        return self.compiled(*arguments)

    def _compile(self, function: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        """The function for this place: other replicas may have traced it already, or even compiled it."""
        start = time.perf_counter()
        home, programs = self.home, self.home.programs
        home.announce(f"compiling {self.label}")
        # A program that asks environments knows those of its own run.
        name = (type(self), self.call, id(home.lowering.bridge) if self.asks else None)
        devices = home.place.devices

        def make() -> Made:
            # Which devices a sharded function is for is part of it.
            function_of = ("function", name, devices if home.place.sharded else ())
            jitted = programs.get(function_of, lambda: self._jitted(function, arguments, out_specs))
            with jax.default_device(devices[0]), self._cache(), cache.watched() as is_new:
                with programs.tracing:
                    traced = jitted.trace(*arguments)
                options, way = self._compiler_options(traced.jaxpr.jaxpr), lowering() if self._on_cpu else {}
                return Made(traced.lower(**way).compile(options), devices[0], options, is_new())

        def share() -> Any:
            first = programs.get(("template", name), lambda: template(make()))
            if first.made.device == devices[0]:
                return first.made.program
            copy = first.clone(devices[0])
            return make().program if copy is None else copy

        program = programs.get(("program", name, devices), share if self._shared else lambda: make().program)
        home.compiling += time.perf_counter() - start
        home.announce(f"running {self.label}")
        return program

    @property
    def _on_cpu(self) -> bool:
        return self.home.place.devices[0].platform == "cpu"

    @property
    def _shared(self) -> bool:
        """Whether one program is to serve several devices. It cannot if it calls Python or spans devices."""
        return self._on_cpu and not self.home.place.sharded and not self.asks and self.home.programs.places > 1

    def _jitted(self, function: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        place = self.home.place
        if place.sharded:
            plain = tuple(jax.tree.map(lambda _: place.spec(None), each) for each in arguments[2:])
            function = jax.shard_map(
                function,
                mesh=place.mesh,
                in_specs=(self._specs(self.call.donated), self._specs(self.call.kept), *plain),
                out_specs=out_specs,
                check_vma=False,
            )
        return jax.jit(function, donate_argnums=(0,))

    def _cache(self) -> AbstractContextManager[None]:
        return cache.bypassed() if self.home.place.sharded and self._on_cpu else nullcontext()

    def _compiler_options(self, jaxpr: Any) -> dict[str, str | bool]:
        # Shards have a core each: to share their operations out again would make them wait for each other.
        has_all_cores = self.alone and not self.home.place.sharded
        return cpu_options(jaxpr, has_all_cores) if self._on_cpu else {}

    def _traced(self, moved: Variables, kept: Variables, root: jax.Array, first: jax.Array, path: jax.Array) -> Any:
        values, low = {**moved, **kept}, self.home.lowering
        return low.outcome(self.call, values, root, list(path), self._part(first))

    @property
    def _first(self) -> np.int32:
        """The first of this replica's pieces: told to the function, so that one serves all replicas."""
        return np.int32(self.home.replica * len(self.home.place.devices))

    def _part(self, first: jax.Array) -> Any:
        return first + jax.lax.axis_index(SHARDS) if self.home.place.sharded else first

    def _specs(self, names: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        variables = self.home.lowering.graph.variables
        return {name: tuple(self.home.place.spec(axis) for axis in variables[name].axes) for name in names}


@dataclass
class PlainCall:
    """A call that is run as it stands, one operation at a time: slow, but a debugger can follow it."""

    call: Call
    home: Home

    def __call__(self, values: Variables, root: jax.Array, path: tuple[int, ...]) -> Variables:
        rounds = [np.uint32(each) for each in path]
        return self.home.lowering.outcome(self.call, values, root, rounds, np.int32(self.home.replica))


CHUNK = 256
"""The most iterations in one call of a whole iteration, so that the memory for their metrics is bounded."""


@dataclass
class CompiledIterations(CompiledCall):
    """A whole iteration as one call; it runs many and returns a row of metrics for each."""

    alone: ClassVar[bool] = True

    reports: tuple[tuple[str, str], ...] = ()  # (variable, how)

    @property
    def label(self) -> str:
        return "the training loop"

    def many(self, values: Variables, root: jax.Array, first: int, count: int) -> tuple[Variables, np.ndarray]:
        """Run `count` iterations from number `first` -> what they wrote, and [count, metrics]."""
        call = self.call
        moved = {name: values[name] for name in call.donated}
        kept = {name: values[name] for name in call.kept}
        arguments = (moved, kept, root, self._first, np.uint32(first), np.int32(count))
        if self.compiled is None:
            outs = self._specs(call.donated)
            self.compiled = self._compile(self._many, arguments, (outs, self.home.place.spec(None)))
        after, rows = self._run(arguments)
        return after, np.asarray(rows)[:count]

    def _many(self, moved: Variables, kept: Variables, root: Any, piece: Any, first: Any, count: Any) -> Any:
        low, part, call = self.home.lowering, self._part(piece), self.call
        live = frozenset(call.donated) | {var for var, _ in self.reports}
        names = low.keyed(call.body)

        def body(round_: Any, carry: tuple[Variables, jax.Array]) -> tuple[Variables, jax.Array]:
            state, rows = carry
            iteration = first + round_.astype(jnp.uint32)
            keys = node_keys(root, names, [iteration])
            after = low.run(call.body, {**kept, **state}, keys, part, iteration.astype(jnp.int32), live)
            rows = jax.lax.dynamic_update_index_in_dim(rows, self._row(after), round_, 0)
            return {name: after[name] for name in call.donated}, rows

        rows = jnp.zeros((CHUNK, self.width), jnp.result_type(float))
        return jax.lax.fori_loop(0, count, body, (moved, rows))

    @property
    def width(self) -> int:
        return sum(len(self.home.lowering.graph.variables[var].avals) for var, _ in self.reports)

    def _row(self, values: Variables) -> jax.Array:
        """One iteration's metrics, reduced over the environments."""
        row = []
        for var, how in self.reports:
            for leaf in values[var]:
                one = (jnp.sum(leaf) if how == "sum" else jnp.mean(leaf)).astype(jnp.result_type(float))
                row.append(jax.lax.psum(one, SHARDS) if how == "sum" and self.home.place.sharded else one)
        return jnp.stack(row) if row else jnp.zeros((0,))
