"""Calls: how a method that learning calls, or that changes a state, becomes a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from motet.errors import BadAlgorithm
from motet.flow.coding import Function, NodeRun
from motet.flow.graph import Kind
from motet.flow.record import GraphRecorder
from motet.flow.values import split

OWN_NAMES = frozenset((
    "act", "action", "apply", "call", "credit", "decision", "env", "episodes", "epochs", "every", "init", "iteration",
    "learner", "memory", "minibatch", "minibatches", "permute", "policy", "prefill", "priorities", "read", "recall",
    "remember", "repeat", "replay", "reprioritize", "restarts", "reward", "rollout", "run", "sample", "select", "step",
    "sweep", "swept", "unroll",
))  # fmt: skip
"""What motet calls its own nodes, loops, variables and links."""


@dataclass
class Calling:
    """The called methods of one loop."""

    record: GraphRecorder

    def call(self, method: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """See `Flow.call`."""
        name = name_of(self.record, method, "call")
        handles, arguments = split(values)
        weights = "policy.weights" if "policy.weights" in self.record.views else "policy"
        reads = tuple(dict.fromkeys([weights, *handles]))
        wanted = inspect.signature(method).parameters
        count_rows = self._count_rows(name, reads) if "keys" in wanted else None

        def run(here: NodeRun, *read: Any) -> tuple[Any, ...]:
            table = dict(zip(reads, read, strict=True))
            random = {"key": here.key} if "key" in wanted else {}
            random |= {"keys": here.row_keys(*count_rows(read))} if count_rows else {}
            result = method(table[weights], *arguments(table), **random)
            return result if type(result) is tuple else (result,)

        def writes(count: int) -> list[str]:
            return [name] if count == 1 else [f"{name}.{position}" for position in range(count)]

        node = self.record.node(name, "call", run, reads, writes, draws=None if "key" in wanted else False)
        results = [self.record.value(write) for write in node.writes]
        return tuple(results) if len(results) > 1 else results[0]

    def _count_rows(self, name: str, reads: Sequence[str]) -> Callable[[Sequence[Any]], tuple[int, int]]:
        count_rows = self.record.rows(reads)
        if count_rows is None:
            raise BadAlgorithm(
                f"{self.record.title}.{name} wants keys, one for each row of its batch, but reads no [N, ...] values: "
                f"it reads {', '.join(reads)}. Give it what flow.sample or flow.minibatches gave, or let it take one "
                "key."
            )
        return count_rows

    def apply(self, method: Callable[..., Any], values: tuple[Any, ...]) -> None:
        """See `Flow.apply`."""
        name = name_of(self.record, method, "apply")
        reads, run = changing("learner", method, values)
        self.record.node(name, "apply", run, reads, ["learner"])


def changing(state: str, method: Callable[..., Any], values: tuple[Any, ...]) -> tuple[tuple[str, ...], Function]:
    """What `method(state, *values[, key]) -> state` reads, and what it runs. Its key is one for each update."""
    handles, arguments = split(values)
    reads = tuple(dict.fromkeys([state, *handles]))
    keyed = "key" in inspect.signature(method).parameters

    def run(here: NodeRun, *read: Any) -> tuple[Any]:
        table = dict(zip(reads, read, strict=True))
        random = {"key": here.key} if keyed else {}
        return (method(table[state], *arguments(table), **random),)

    return reads, run


def name_of(record: GraphRecorder, method: Callable[..., Any], kind: Kind) -> str:
    """The name of a node that calls `method`: the method's own, unless that means something else here."""
    name = label(method)
    return record.name(f"{name}_{kind}" if name in OWN_NAMES - {kind} else name)


def label(method: Callable[..., Any]) -> str:
    """What a method is called."""
    return getattr(method, "__name__", type(method).__name__).strip("_<>") or "call"
