"""A call of a schedule as a compiled program of one place. Nothing is compiled before it is first wanted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine import cache
from motet.engine.cpu.clone import CompiledProgram, template
from motet.engine.cpu.options import by_eigen, compiled, cpu_options
from motet.engine.cpu.rules import lowering
from motet.engine.lowering import Lowering, node_keys
from motet.engine.place import Place
from motet.engine.programs import ProgramCache
from motet.engine.variables import Variables
from motet.errors import Disconnected
from motet.flow.batch import SHARDS
from motet.plan.schedule import Call

COLLECTIVE = re.compile("gloo|nccl|coordination service|connection", re.IGNORECASE)
"""What JAX says when hosts do not reach each other any more."""


@dataclass
class Home:
    """Where the calls of one member are compiled and run."""

    lowering: Lowering
    place: Place
    replica: int
    """The member's number."""
    members: int
    """How many there are of the fragment."""
    programs: ProgramCache
    announce: Callable[[str], None]
    compiling: float = 0.0
    """Seconds that this replica spent compiling."""

    @property
    def spans(self) -> bool:
        """Whether its programs span hosts."""
        return bool(self.place.everywhere)


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
        moved, kept = self._entered(call.donated, values), self._entered(call.kept, values)
        arguments = (moved, kept, root, self._first, np.asarray(path, np.uint32))
        if self.compiled is None:
            self.compiled = self._compile(self._traced, arguments, self._specs(call.writes))
        return self._left(self._run(arguments))

    def _run(self, arguments: tuple[Any, ...]) -> Any:
        bridge = self.home.lowering.bridge
        if self.asks and bridge is not None:
            return bridge.run(self.compiled, arguments, self.home.replica)
        if self.home.spans:
            return self._run_with_others(arguments)
        return self.compiled(*arguments)

    def _run_with_others(self, arguments: tuple[Any, ...]) -> Any:
        """A program that spans hosts, to its end: of two that are under way, hosts might begin different ones first,
        and wait for each other for ever."""
        try:
            return jax.block_until_ready(self.compiled(*arguments))
        except jax.errors.JaxRuntimeError as error:
            if not COLLECTIVE.search(str(error)):
                raise
            raise Disconnected(f"lost touch with the others in {self.label}: {error}") from error

    def _entered(self, names: Sequence[str], values: Variables) -> Variables:
        """Variables as the program wants them."""
        if not self.home.spans:
            return {name: values[name] for name in names}
        return self._each(self.home.place.enter, {name: values[name] for name in names})

    def _left(self, written: Variables) -> Variables:
        """Variables of the program, as the worker holds them."""
        return self._each(self.home.place.leave, written) if self.home.spans else written

    def _each(self, change: Callable[[Any, int | None], Any], values: Variables) -> Variables:
        variables = self.home.lowering.graph.variables
        return {name: tuple(map(change, leaves, variables[name].axes)) for name, leaves in values.items()}

    def _compile(self, function: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        """The function for this place: other replicas may have traced it already, or even compiled it."""
        start = time.perf_counter()
        home, programs = self.home, self.home.programs
        home.announce(f"compiling {self.label}")
        # A program that asks environments knows those of its own run.
        name = (type(self), self.call, id(home.lowering.bridge) if self.asks else None)
        devices = home.place.devices

        def make() -> CompiledProgram:
            # Which devices a sharded function is for is part of it.
            function_of = ("function", name, devices if home.place.whole.sharded else ())
            jitted = programs.get(function_of, lambda: self._jitted(function, arguments, out_specs))
            with jax.default_device(devices[0]), self._cache(), cache.watched() as is_new:
                with programs.tracing:
                    traced = jitted.trace(*arguments)
                options = self._compiler_options(traced.jaxpr.jaxpr)
                way = lowering(by_eigen(options)) if self._on_cpu else {}
                program, options = compiled(traced.lower(**way), options)
                return CompiledProgram(program, devices[0], options, is_new())

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
        return self._on_cpu and not self.home.place.whole.sharded and not self.asks and self.home.programs.places > 1

    def _jitted(self, function: Callable[..., Any], arguments: Any, out_specs: Any) -> Any:
        place = self.home.place.whole
        if place.sharded:
            plain = tuple(_spec(place, each) for each in arguments[2:])
            function = jax.shard_map(
                function,
                mesh=place.mesh,
                in_specs=(self._specs(self.call.donated), self._specs(self.call.kept), *plain),
                out_specs=out_specs,
                check_vma=False,
            )
        return jax.jit(function, donate_argnums=(0,))

    def _cache(self) -> AbstractContextManager[None]:
        return cache.bypassed() if self.home.place.whole.sharded and self._on_cpu else nullcontext()

    def _compiler_options(self, jaxpr: Any) -> dict[str, str | bool]:
        # Shards have a core each: to share their operations out again would make them wait for each other.
        has_all_cores = self.alone and not self.home.place.whole.sharded
        return cpu_options(jaxpr, has_all_cores, self.call.once) if self._on_cpu else {}

    def _traced(self, moved: Variables, kept: Variables, root: jax.Array, first: jax.Array, path: jax.Array) -> Any:
        values, low = {**moved, **kept}, self.home.lowering
        return low.outcome(self.call, values, root, list(path), self._part(first))

    @property
    def _first(self) -> np.int32:
        """The first of this replica's pieces: told to the function, so that one serves all replicas."""
        replica = 0 if self.home.spans else self.home.replica
        return np.int32(replica * len(self.home.place.whole.devices))

    def _part(self, first: jax.Array) -> Any:
        return first + jax.lax.axis_index(SHARDS) if self.home.place.whole.sharded else first

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


CHUNK = 4096
"""The most iterations in one call of a whole iteration, so that the memory for their metrics is bounded. Between two
calls Python's lock is needed, which whatever shows the run may hold: short iterations need many in a call."""


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
        call, plain = self.call, self.home.place.spec(None)
        moved, kept = self._entered(call.donated, values), self._entered(call.kept, values)
        arguments = (moved, kept, root, self._first, np.uint32(first), self._wanted(count))
        if self.compiled is None:
            self.compiled = self._compile(self._many, arguments, (self._specs(call.donated), plain, plain))
        after, rows, done = self._run(arguments)
        return self._left(after), np.asarray(rows)[: int(done)]

    def _wanted(self, count: int) -> Any:
        """How many iterations are to come. Hosts may want different numbers of them, each by its own clock."""
        if not self.home.spans:
            return np.int32(count)
        return self.home.place.enter(np.full(len(self.home.place.devices), count, np.int32), 0)

    def _many(self, moved: Variables, kept: Variables, root: Any, piece: Any, first: Any, count: Any) -> Any:
        low, part, call = self.home.lowering, self._part(piece), self.call
        live = frozenset(call.donated) | {var for var, _ in self.reports}
        names = low.keyed(call.body)
        if self.home.spans:
            count = jax.lax.pmin(count[0], SHARDS)  # what one of them decides on, all do

        def body(round_: Any, carry: tuple[Variables, jax.Array]) -> tuple[Variables, jax.Array]:
            state, rows = carry
            iteration = first + round_.astype(jnp.uint32)
            keys = node_keys(root, names, [iteration])
            after = low.run(call.body, {**kept, **state}, keys, part, iteration.astype(jnp.int32), live)
            rows = jax.lax.dynamic_update_index_in_dim(rows, self._row(after), round_, 0)
            return {name: after[name] for name in call.donated}, rows

        rows = jnp.zeros((CHUNK, self.width), jnp.result_type(float))
        return (*jax.lax.fori_loop(0, count, body, (moved, rows)), count)

    @property
    def width(self) -> int:
        return sum(len(self.home.lowering.graph.variables[var].avals) for var, _ in self.reports)

    def _row(self, values: Variables) -> jax.Array:
        """One iteration's metrics, reduced over the environments."""
        row = []
        for var, how in self.reports:
            for leaf in values[var]:
                one = (jnp.sum(leaf) if how == "sum" else jnp.mean(leaf)).astype(jnp.result_type(float))
                row.append(jax.lax.psum(one, SHARDS) if how == "sum" and self.home.place.whole.sharded else one)
        return jnp.stack(row) if row else jnp.zeros((0,))


def _spec(place: Place, argument: Any) -> Any:
    """How an argument that is no variable lies on the devices of a program: the same everywhere, if nothing else is
    said."""
    sharding = getattr(argument, "sharding", None)
    return sharding.spec if isinstance(sharding, jax.sharding.NamedSharding) else place.spec(None)
