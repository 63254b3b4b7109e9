"""Calls: how a method that learning calls, or that changes the learner state, becomes a node."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from motet.errors import BadAlgorithm
from motet.flow.record import Here, Recorder
from motet.flow.values import Value, split


@dataclass
class Calling:
    """The called methods of one loop."""

    record: Recorder

    def call(self, method: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """See `Flow.call`."""
        name = self.record.name(label(method))
        handles, arguments = split(values)
        weights = "policy.weights" if "policy.weights" in self.record.views else "policy"
        reads = tuple(dict.fromkeys([weights, *handles]))
        wanted = inspect.signature(method).parameters
        count_rows = self.record.rows(reads) if "keys" in wanted else None
        if "keys" in wanted and count_rows is None:
            raise BadAlgorithm(
                f"{self.record.title}.{name} wants keys, one for each row of its batch, but reads no [N, ...] values: "
                f"it reads {', '.join(reads)}. Give it what flow.sample or flow.minibatches gave, or let it take one "
                "key."
            )

        def run(here: Here, *read: Any) -> tuple[Any, ...]:
            table = dict(zip(reads, read, strict=True))
            random = {"key": here.key} if "key" in wanted else {}
            random |= {"keys": here.row_keys(count_rows(read))} if count_rows else {}
            result = method(table[weights], *arguments(table), **random)
            return result if type(result) is tuple else (result,)

        def writes(count: int) -> list[str]:
            return [name] if count == 1 else [f"{name}.{position}" for position in range(count)]

        node = self.record.node(name, "call", run, reads, writes, draws=None if "key" in wanted else False)
        results = [Value(write) for write in node.writes]
        return tuple(results) if len(results) > 1 else results[0]

    def apply(self, method: Callable[..., Any], values: tuple[Any, ...]) -> None:
        """See `Flow.apply`."""
        handles, arguments = split(values)
        reads = tuple(dict.fromkeys(["learner", *handles]))

        def run(here: Here, *read: Any) -> tuple[Any]:
            table = dict(zip(reads, read, strict=True))
            return (method(table["learner"], *arguments(table)),)

        self.record.node(self.record.name(label(method)), "apply", run, reads, ["learner"])


def label(method: Callable[..., Any]) -> str:
    """What a node that calls `method` is named."""
    return getattr(method, "__name__", type(method).__name__).strip("_<>") or "call"
