"""Which variables a fragment's statements read and write: what must be kept, sent, carried and may be given away.

A fragment that owns a state does not keep the state's views (such as the policy): it takes them from the state where
a node reads them. So a read of a view counts there as a read of the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from motet.flow.graph import Graph, Node
from motet.plan.project import Receive, Rounds, Send, Statement


class Liveness:
    """Reads and writes of one fragment."""

    def __init__(self, graph: Graph, statements: Sequence[Statement]):
        self.graph = graph
        self.owned = frozenset().union(*(self.raw_writes(each) for each in statements)) - set(graph.views)

    def held_as(self, var: str) -> str:
        """The variable that holds `var` here: its own, or the state that it is a view of."""
        view = self.graph.views.get(var)
        return view.of if view and view.of in self.owned else var

    def raw_writes(self, statement: Statement) -> frozenset[str]:
        """What it writes, views of its states included."""
        if isinstance(statement, Node):
            return frozenset(statement.writes)
        if isinstance(statement, Rounds):
            inside = frozenset().union(*(self.raw_writes(child) for child in statement.body))
            return inside | {out.name for out in statement.outputs}
        return frozenset(statement.wire.vars) if isinstance(statement, Receive) else frozenset()

    def writes(self, statement: Statement) -> frozenset[str]:
        return frozenset(var for var in self.raw_writes(statement) if self.held_as(var) == var)

    def reads(self, statement: Statement, *, sure: bool = False) -> frozenset[str]:
        """What it needs from before it."""
        if isinstance(statement, Node):
            return frozenset(map(self.held_as, statement.reads))
        if isinstance(statement, Rounds):
            return self.exposed(statement.body, sure=sure) | self._left_alone(statement)
        return frozenset(statement.wire.vars) if isinstance(statement, Send) else frozenset()

    def _left_alone(self, loop: Rounds) -> frozenset[str]:
        """The states that a loop leaves as they are when it does not run."""
        if loop.every == 1:
            return frozenset()
        return frozenset(var for var in self.writes(loop) if self.graph.variables[var].loop is None)

    def exposed(self, statements: Iterable[Statement], *, sure: bool = False) -> frozenset[str]:
        """What is read before any of the statements, run in order, has written it.

        With `sure`, a value that is received only in some rounds (one that is carried, or the latest) does not count
        as written: what was held before may be read.
        """
        reads: set[str] = set()
        done: set[str] = set()
        for statement in statements:
            reads |= self.reads(statement, sure=sure) - done
            if not (sure and isinstance(statement, Receive) and statement.wire.carried):
                done |= self.writes(statement)
        return frozenset(reads)


def sent(statements: Iterable[Statement]) -> frozenset[str]:
    """Variables whose arrays another fragment may still hold, so that they must not be given away."""
    found: frozenset[str] = frozenset()
    for statement in statements:
        if isinstance(statement, Send):
            found |= set(statement.wire.vars)
        elif isinstance(statement, Rounds):
            found |= sent(statement.body)
    return found
