"""Under what costs are written down: the same line for what does the same in several plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from motet.flow.graph import Graph, Node
from motet.plan.project import Rounds, Statement
from motet.plan.protocol import Wire
from motet.plan.schedule import Call

LEARNER, OTHERS = "learner", "others"
"""Who reports: a learner has more to tell, and what it has learnt is looked at."""


def signature(statements: Sequence[Statement]) -> str:
    """What a call does, as one line: the same for calls of several plans that do the same."""
    words = []
    for each in statements:
        if isinstance(each, Node):
            words.append(each.name)
        elif isinstance(each, Rounds):
            words.append(f"{each.name}*{each.count / each.every:g}({signature(each.body)})")
    return "+".join(words)


def split(done: str) -> list[str]:
    """The signatures of the nodes and loops of a signature."""
    return [f"{name}*{count:g}({inner})" if inner else name for name, count, inner in terms(done)]


def asked(statements: Sequence[Statement]) -> float:
    """How many steps of host environments a call asks for."""
    total = 0.0
    for each in statements:
        if isinstance(each, Rounds):
            total += each.count / each.every * asked(each.body)
        elif isinstance(each, Node) and each.host is not None:
            total += 1
    return total


def terms(done: str) -> Iterator[tuple[str, float, str]]:
    """A signature taken apart: of each node (name, 1, ""), of each loop (name, rounds, what is in it)."""
    depth = start = 0
    for place, letter in enumerate(done + "+"):
        depth += (letter == "(") - (letter == ")")
        if letter == "+" and not depth and place > start:
            name, _, rest = done[start:place].partition("(")
            loop, _, count = name.rpartition("*")
            yield (loop, float(count), rest[:-1]) if rest else (name, 1.0, "")
        if letter == "+" and not depth:
            start = place + 1


def call_key(kind: str, call: Call, shards: int, whole: bool) -> str:
    """Under what a call is measured: on which kind of device, over how many of them, alone or beside others."""
    return f"{kind} x{shards} {'whole' if whole else 'call'} {signature(call.body)}"


def reports_as(graph: Graph, state: Sequence[str]) -> str:
    """As who somebody with this state reports."""
    return LEARNER if graph.roles.learner and graph.roles.learner in state else OTHERS


def message_key(what: str, wire: Wire, ends: int) -> str:
    """Under what messages are measured: to `send` or to `receive` what goes over a wire, to or from so many."""
    return f"{ends} {what} {wire.link} {','.join(wire.vars)}"
