"""How remembering, drawing and the return of priorities become nodes of a graph.

A replay is a state variable, and what is done to it are nodes like all others, so a plan may put them anywhere. New
priorities belong to an earlier draw: the node that writes them into the replay stands in front of the node that draws
the next batch, and reads what the round before left for it. So they may be late without any change to the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm, BadOption
from motet.flow.graph import Node, resize
from motet.flow.record import GraphRecorder, NodeRun
from motet.flow.replay_call import ReplayCall
from motet.flow.values import Drawn, Swept, Value, split

STATE = "replay"
"""The variable of the replay's state."""


@dataclass
class Replaying:
    """The replay of one loop."""

    record: GraphRecorder
    replay: Any = None
    """The replay's options (see motet.replay)."""
    example: Any = None
    batches: list[tuple[int, int]] = field(default_factory=list)
    """The sizes of batches that are drawn, and in every how-manieth iteration."""

    def remember(self, values: Any, into: Any) -> None:
        """Add [T, B] values to the replay."""
        record = self.record
        if self.replay is not None:
            raise BadAlgorithm(f"{record.title}.loop calls flow.remember twice; a loop has one replay.")
        if any(loop.every > 1 for loop in record.stack):
            raise BadAlgorithm("flow.remember cannot be in flow.every: what is drawn must be there from the start.")
        handles, rebuild = split((values,))
        record.batch_shape(handles)
        example = rebuild({handle: record.shape(handle) for handle in handles})[0]
        self.replay, self.example = into, example

        def first(here: NodeRun) -> tuple[Any]:
            local = jax.tree.map(lambda aval: resize(aval, 1, here.batch), example)
            return (into.empty(local, record.num_envs),)  # whether it fits is asked of the place where it will lie

        def add(here: NodeRun, replay: Any, *read: Any) -> tuple[Any]:
            return (into.add(replay, rebuild(dict(zip(handles, read, strict=True)))[0]),)

        name = record.name("remember")
        record.start("replay", first, ["replay"], name, replay=ReplayCall("open", into, example, STATE))
        reads = ["replay", *handles]
        call = ReplayCall("add", into, example, STATE, takes=rebuild)
        record.node(name, "remember", add, reads, ["replay"], replay=call)

    def sample(self, size: int) -> Drawn:
        """Draw `size` remembered items."""
        if self.replay is None:
            raise BadAlgorithm("flow.sample needs a flow.remember before it: there is nothing to draw from.")
        record, into, envs = self.record, self.replay, self.record.num_envs
        if size > into.capacity:
            raise BadOption(f"A batch of {size} items is larger than the replay, which holds {into.capacity}.")
        self.batches.append((size, record.stack[1].every if len(record.stack) > 1 else 1))
        blocks = math.gcd(size, envs)
        record.divisors.append(("sample", blocks))

        def draw(here: NodeRun, state: Any) -> tuple[Any, ...]:
            slots = size * here.batch // envs
            drawn = into.sample(state, here.key, here.part, slots=slots, blocks=blocks, size=size)
            if not into.prioritised:
                return (drawn.items,)
            held = (into.hold(state, drawn.index),) if into.holds_drawn else ()
            return (drawn.items, drawn.index, drawn.weight, *held)

        name = record.name("sample")
        parts = ["items", "index", "weight"] if into.prioritised else ["items"]
        writes = [f"{name}.{part}" for part in parts]
        held = ["replay"] if into.holds_drawn else []
        call = ReplayCall("sample", into, self.example, STATE, gives=tuple(writes), size=size, blocks=blocks)
        record.node(name, "sample", draw, ["replay"], [*writes, *held], draws=into.prioritised, replay=call)
        return Drawn(*(record.value(write) for write in writes))

    @contextmanager
    def sweep(self, steps: int) -> Iterator[Swept]:
        """See `Flow.sweep`."""
        record, into = self.record, self.replay
        if into is None:
            raise BadAlgorithm("flow.sweep needs a flow.remember before it: there is nothing to go through.")
        if steps < 1:
            raise BadAlgorithm(f"flow.sweep takes a number of steps from 1 on, got {steps}.")

        def read(here: NodeRun, state: Any) -> tuple[Any, ...]:
            swept = into.sweep(state, here.index, steps)
            return swept.items, swept.held

        rounds = math.ceil(into.rows(self.example, record.num_envs) / steps)
        with record.loop(record.name("sweep"), rounds, "update"):
            batch = f"sample.{record.name('swept')}"  # on the link of all that a replay gives
            writes = [f"{batch}.items", f"{batch}.held"]
            call = ReplayCall("sweep", into, self.example, STATE, gives=tuple(writes), size=steps)
            record.node(record.name("read"), "sample", read, ["replay"], writes, draws=False, replay=call)
            yield Swept(*map(record.value, writes))

    def reprioritize(self, drawn: Drawn, priorities: Any) -> None:
        """Give the items of the last draw new priorities, before the next one."""
        record, into = self.record, self.replay
        if into is None or not into.prioritised:
            return  # All items are as likely, whatever is thought of them.
        if not isinstance(drawn, Drawn) or not isinstance(drawn.index, Value) or not isinstance(priorities, Value):
            raise BadAlgorithm(
                "flow.reprioritize takes what flow.sample returned and what flow.call made of it, one number an item; "
                f"got {drawn!r} and {priorities!r}."
            )
        index = record.variables[drawn.index.name]
        (rows,) = {aval.shape[0] for aval in index.avals}

        def none(here: NodeRun) -> tuple[Any]:
            slots = rows * here.batch // record.num_envs
            return ((jnp.full((slots, 2), -1, jnp.int32), jnp.zeros(slots, jnp.float32)),)

        def credit(here: NodeRun, index: Any, priority: Any) -> tuple[Any]:
            return ((index, priority.astype(jnp.float32)),)

        def update(here: NodeRun, replay: Any, news: Any) -> tuple[Any]:
            return (into.update(replay, *news),)

        credited = record.name("credit")
        record.start("priorities", none, ["priorities"], credited)
        record.variables["priorities"] = replace(record.variables["priorities"], late=True)
        record.node(credited, "call", credit, [drawn.index.name, priorities.name], ["priorities"])
        name = record.name("reprioritize")
        news = split((Value("priorities"),))[1]
        call = ReplayCall("update", into, self.example, STATE, takes=news)
        record.node(name, "reprioritize", update, ["replay", "priorities"], ["replay"], replay=call)
        self._move_before_the_draw(drawn.index.name)

    def _move_before_the_draw(self, index: str) -> None:
        items = self.record.stack[-1].items
        draw = next((i for i, item in enumerate(items) if isinstance(item, Node) and index in item.writes), None)
        if draw is None:
            raise BadAlgorithm("flow.reprioritize belongs into the loop of the flow.sample whose items it is for.")
        items.insert(draw, items.pop())

    def check_filled(self, before: int, each: int) -> None:
        """Whether the first batch of every draw finds as many items as it has slots, if `before` steps are remembered
        before the first iteration and `each` in every one."""
        for size, every in self.batches:
            ready = before + every * each - (self.replay.window - 1) * self.record.num_envs
            if ready < size:
                raise BadOption(
                    f"A batch of {size} items is larger than the {max(ready, 0)} that the replay can draw from when "
                    "the first batch is drawn: remember more before (learning_starts), or draw smaller batches."
                )
