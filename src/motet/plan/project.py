"""Endpoint projection: from one loop and a plan to one program for each fragment.

The loop nest is walked from the outside in. At each loop, after each child that writes a variable, look at every
other fragment that reads it:

- forward: it reads the value in a later child of the same round, before it is written again: the writer sends
  right after that child, the reader receives at the same point;
- carried: else, it reads the value early in the next round: the writer sends after that child in every round but
  the last, the reader receives at the start of every round but the first.

A child loop reads what it reads before writing, and writes what it writes, so the same two cases serve every
level. The outermost loop has no last round as far as its programs know; there a lag of k lets the reader keep the
value it had at the start for k rounds more, so k + 1 messages are in flight between two rounds.

A loop that runs in some iterations alone leaves what it writes as it is in all others. Its writer sends behind it in
every iteration, and nobody else is taken to hold what was sent inside.

A loop inside the iteration may lag too, where a value goes back to a fragment that reads it in that loop alone, as
new priorities go back to the replay. Its rounds then count on from iteration to iteration (`through`), so that the
reader is k rounds behind everywhere. Whoever may run k rounds ahead of its reader, as a replay does that draws before
it is asked, gets the reader's answers k rounds late: a lag on a link forward is a lag on what is answered to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from motet.flow.graph import Graph, Item, Loop, Node, Output, written
from motet.plan.plan import Lag, Plan
from motet.plan.protocol import Wire, lag_at, lag_of, late_in


@dataclass(frozen=True)
class Send:
    wire: Wire


@dataclass(frozen=True)
class Receive:
    wire: Wire


@dataclass(frozen=True)
class Rounds:
    """A loop of a program."""

    name: str
    count: int
    body: tuple[Statement, ...]
    outputs: tuple[Output, ...] = ()
    rate: str = "update"
    first: int = 0
    every: int = 1


Statement = Node | Rounds | Send | Receive


@dataclass(frozen=True)
class Program:
    """What one fragment does: first `start`, once, then `body` in every iteration."""

    fragment: str
    start: tuple[Statement, ...]
    body: tuple[Statement, ...]
    reports: tuple[str, ...] = field(default=())


def project(graph: Graph, plan: Plan) -> dict[str, Program]:
    """The program of every fragment of a plan that `check` accepts."""
    owned = Ownership(graph, plan)
    programs = {}
    for name in plan.fragments:
        *start, iteration = owned.steps(graph.root, name, keep_empty=True)
        assert isinstance(iteration, Rounds)
        reports = tuple(report.var for report in graph.reports if owned.owner[report.var] == name)
        programs[name] = Program(name, tuple(start), iteration.body, reports)
    return programs


def wires(steps: Iterable[Statement], around: tuple[Rounds, ...] = ()) -> Iterator[tuple[Wire, tuple[Rounds, ...]]]:
    """Every wire that a program sends on, with the loops around the sending."""
    for step in steps:
        if isinstance(step, Send):
            yield step.wire, around
        elif isinstance(step, Rounds):
            yield from wires(step.body, (*around, step))


class Ownership:
    """Who runs which node, owns which variable, and what therefore has to be sent."""

    def __init__(self, graph: Graph, plan: Plan):
        self.graph, self.plan = graph, plan
        self.home = plan.homes(graph)
        self.owner: dict[str, str] = {}
        # What was asked before; the graph keeps its loops and nodes, so that no other has their number. Plans that put
        # the same nodes into the same fragments, over the same links, have the same wires, in however many copies.
        alike = (
            tuple(self.home.items()),
            tuple(plan.fragments),
            tuple((name, each.lag) for name, each in plan.links.items()),
        )
        known = vars(graph).setdefault("_wires_of_plans", {}).setdefault(alike, ({}, {}, {}))
        self._wires: dict[int, list[Wire]] = known[0]
        self._writes: dict[int, frozenset[str]] = known[1]
        self._wants: dict[tuple[int, str], frozenset[str]] = known[2]
        self._own(graph.root)

    def steps(self, loop: Loop, fragment: str, keep_empty: bool = False) -> list[Statement]:
        """One round of `loop`, as far as it concerns `fragment`."""
        table = self.wires_of(loop)
        steps: list[Statement] = [Receive(wire) for wire in table if wire.carried and wire.target == fragment]
        for position, child in enumerate(loop.body):
            steps += self._child(child, fragment, keep_empty)
            here = [wire for wire in table if wire.child == position]
            steps += [Send(wire) for wire in here if wire.source == fragment]
            steps += [Receive(wire) for wire in here if wire.target == fragment and not wire.carried]
        return steps

    def _child(self, child: Item, fragment: str, keep_empty: bool) -> list[Statement]:
        if isinstance(child, Node):
            return [child] if self.home[child.name] == fragment else []
        body = self.steps(child, fragment)
        outputs = tuple(out for out in child.outputs if self.owner[out.inner] == fragment)
        whole = keep_empty and child is self.graph.iteration
        rounds = Rounds(child.name, child.count, tuple(body), outputs, child.rate, child.first, child.every)
        return [rounds] if body or whole else []

    def wires_of(self, loop: Loop) -> list[Wire]:
        """What must be sent in one round of `loop`, at this level of the nest."""
        if id(loop) not in self._wires:
            self._wires[id(loop)] = self._find_wires(loop)
        return self._wires[id(loop)]

    def _find_wires(self, loop: Loop) -> list[Wire]:
        found: dict[tuple[str, str, str, int, bool], list[str]] = {}
        for position, child in enumerate(loop.body):
            for var in sorted(self._written(child)):
                source = self.owner[var]
                for target in self.plan.fragments:
                    if target == source or self._holds(target, var, child):
                        continue
                    forward = self._forward(loop, position, target, var)
                    if forward or self._carried(loop, position, target, var):
                        link = self.graph.variables[var].link
                        found.setdefault((link, source, target, position, not forward), []).append(var)
        return [
            self._wire(loop, *key, tuple(names))
            for key, names in found.items()
            if not (key[-1] and self._goes_through(loop, key[2], key[3], names))
        ]

    def _wire(
        self, loop: Loop, link: str, source: str, target: str, position: int, carried: bool, names: tuple[str, ...]
    ) -> Wire:
        late = self._lateness(loop, source, target, names[0]) if carried else 0
        lag = lag_at(self.graph, loop, carried, lag_of(self.plan, link), late)
        through = loop.count if late and loop is not self.graph.iteration and lag != "latest" else 0
        return Wire(link, source, target, names, loop.name, position, carried, lag, through)

    def _lateness(self, loop: Loop, source: str, target: str, var: str) -> int:
        """How many rounds late `target` reads `var` in a loop inside the iteration: by the value's own link, or by
        the one that it answers."""
        if not late_in(self.graph, loop, (var,)):
            return 0
        lags = [lag_of(self.plan, self.graph.variables[var].link), *self._ahead(loop, source, target)]
        return max((lag for lag in lags if isinstance(lag, int)), default=0)

    def _ahead(self, loop: Loop, source: str, target: str) -> Iterator[Lag]:
        """The lags of what `target` sends to `source` in a round of `loop`."""
        for position, child in enumerate(loop.body):
            for var in self._written(child):
                if self.owner[var] == target and self._forward(loop, position, source, var):
                    yield lag_of(self.plan, self.graph.variables[var].link)

    def _goes_through(self, loop: Loop, target: str, position: int, names: list[str]) -> bool:
        """Whether a loop inside carries these values on to the next iteration by itself."""
        child = loop.body[position]
        if loop is not self.graph.iteration or not isinstance(child, Loop):
            return False
        return set(names) <= {var for w in self.wires_of(child) if w.through and w.target == target for var in w.vars}

    def _own(self, item: Item) -> None:
        if isinstance(item, Node):
            self.owner.update(dict.fromkeys(item.writes, self.home[item.name]))
            return
        for child in item.body:
            self._own(child)
        self.owner.update({out.name: self.owner[out.inner] for out in item.outputs})

    def _written(self, item: Item) -> frozenset[str]:
        if id(item) not in self._writes:
            self._writes[id(item)] = written(item)
        return self._writes[id(item)]

    def _reads(self, item: Item, fragment: str) -> frozenset[str]:
        """What `fragment` reads in `item` that comes from before `item`."""
        if isinstance(item, Node):
            return frozenset(item.reads) if self.home[item.name] == fragment else frozenset()
        if (id(item), fragment) not in self._wants:
            self._wants[id(item), fragment] = self._loop_reads(item, fragment)
        return self._wants[id(item), fragment]

    def _loop_reads(self, item: Loop, fragment: str) -> frozenset[str]:
        reads: set[str] = set()
        done: set[str] = set()
        for child in item.body:
            reads |= self._reads(child, fragment) - done
            done |= self._written(child)
        return frozenset(reads)

    def _sees(self, children: Iterable[Item], fragment: str, var: str) -> bool:
        """Whether `fragment` reads `var` in one of `children` before any of them has written it."""
        for child in children:
            if var in self._reads(child, fragment):
                return True
            if var in self._written(child):
                return False
        return False

    def _forward(self, loop: Loop, position: int, fragment: str, var: str) -> bool:
        return self._sees(loop.body[position + 1 :], fragment, var)

    def _carried(self, loop: Loop, position: int, fragment: str, var: str) -> bool:
        late = self._lateness(loop, self.owner[var], fragment, var)
        goes_round = loop.count > 1 or loop is self.graph.iteration or late > 0
        last_write = not any(var in self._written(child) for child in loop.body[position + 1 :])
        return goes_round and last_write and self._sees(loop.body[: position + 1], fragment, var)

    def _holds(self, fragment: str, var: str, item: Item) -> bool:
        """Whether, after `item`, `fragment` was already sent the last value of `var` inside it. Not if it may not run:
        then there is another value behind it, the one from before."""
        if isinstance(item, Node) or item.every > 1 or var in {out.name for out in item.outputs}:
            return False
        position = max(place for place, child in enumerate(item.body) if var in self._written(child))
        return self._forward(item, position, fragment, var) or self._holds(fragment, var, item.body[position])
