"""Host environments inside of compiled programs: XLA asks Python for a step and goes on with what it says.

A loop around an environment is then one compiled call, instead of a call or two for every step. It works where XLA
computes in the caller's own memory and thread: on a CPU. JAX's `io_callback` serves every device, but puts all it is
given on one first, which takes twenty times as long.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from motet.engine.host import Stand
from motet.errors import Stopped
from motet.flow.environment import settle
from motet.flow.graph import Cut, Graph, Node
from motet.flow.host import HostStep


@dataclass
class Exchange:
    """Connects the programs of one fragment with its replicas' environments. Replicas on one device have one program
    together, so it says for which of them it asks."""

    stopped: Callable[[], bool]
    """Whether the run is over: no further step is taken then."""
    stands: dict[int, Stand] = field(default_factory=dict)
    """Each replica's environments."""
    failures: dict[int, BaseException] = field(default_factory=dict)
    """What they raised: on its way through XLA, an exception becomes another."""

    def takes(self, node: Node) -> bool:
        """Whether a node of a host environment may be part of a program. XLA may call from threads of its own."""
        if node.host is None or node.host.opens or not self.stands or not POSSIBLE:
            return False
        in_processes = all(stand.opening.workers for stand in self.stands.values())
        return in_processes or not node.host.environment.one_thread

    def step(self, graph: Graph, cut: Cut, node: Node, replica: Any, leaves: list[Any]) -> list[Any]:
        """Traced: the node's inputs -> what it writes."""
        variables = {name.rpartition(".")[2]: graph.variables[name].local(cut.parts) for name in node.writes}
        avals = [variables[name] for name in HostStep._fields]
        length, total, *action = leaves
        flat = iter(ask.bind(replica, *action, call=self.answer, avals=tuple(a for part in avals for a in part)))
        first, last, *rest = ([next(flat) for _ in part] for part in avals)
        return list(settle(HostStep(tuple(first), tuple(last), *(each for (each,) in rest)), length, total, jnp))

    def answer(self, replica: np.ndarray, *action: np.ndarray) -> tuple[np.ndarray, ...]:
        """Called by XLA."""
        number = int(replica)
        stand = self.stands[number]
        assert stand.pool is not None
        try:
            if inside.leaving or self.stopped():
                raise Stopped(f"replica {number} was stopped")
            stand.busy_since = time.monotonic()
            step = stand.pool.step(action)
        except BaseException as error:
            self.failures[number] = error
            raise
        finally:
            stand.busy_since = None
        return (*step.observation, *step.next_observation, *step[2:])

    def run(self, program: Callable[..., Any], arguments: tuple[Any, ...], replica: int) -> Any:
        """Call a program that asks. What the environments raise is raised as it is."""
        try:
            with inside:
                return program(*arguments)
        except Exception:
            failure = self.failures.pop(replica, None)
            if failure is None:
                raise
        raise failure


POSSIBLE = hasattr(mlir.ModuleContext, "add_host_callback")
"""Whether this version of JAX lets a program have such calls. Without, environments are stepped between programs."""

ask = Primitive("host_step")
ask.multiple_results = True


@ask.def_abstract_eval
def _types(*_: Any, call: Any, avals: tuple[jax.ShapeDtypeStruct, ...]) -> list[Any]:
    return [ShapedArray(aval.shape, aval.dtype) for aval in avals]


def _lower(context: mlir.LoweringRuleContext, *operands: Any, call: Callable[..., Any], avals: Any) -> Any:
    expected = [(aval.shape, np.dtype(aval.dtype)) for aval in avals]

    def answer(*arguments: np.ndarray) -> tuple[np.ndarray, ...]:
        leaves = call(*arguments)
        # XLA copies as many bytes as it expects, whatever there is.
        if [(leaf.shape, leaf.dtype) for leaf in leaves] == expected:
            return leaves
        cast = tuple(np.asarray(leaf, dtype) for leaf, (_, dtype) in zip(leaves, expected, strict=True))
        assert [leaf.shape for leaf in cast] == [shape for shape, _ in expected]
        return cast

    context.module_context.add_host_callback(answer)
    place = np.uint64(len(context.module_context.host_callbacks) - 1)
    return jax.ffi.ffi_lowering("xla_ffi_python_cpu_callback", has_side_effect=True)(context, *operands, index=place)


mlir.register_lowering(ask, _lower, platform="cpu")


class _Inside:
    """How many programs that may ask are running. A thread that comes back from XLA into an interpreter that has
    ended takes the whole process down, so whoever ends it waits for them."""

    def __init__(self) -> None:
        self.count, self.leaving, self.changed = 0, False, threading.Condition()

    def __enter__(self) -> None:
        with self.changed:
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.count -= 1
            self.changed.notify_all()

    def leave(self) -> None:
        self.leaving = True
        with self.changed:
            self.changed.wait_for(lambda: not self.count, PATIENCE)


PATIENCE = 5.0
"""Seconds that environments have to finish their step when the interpreter ends."""
inside = _Inside()
atexit.register(inside.leave)
