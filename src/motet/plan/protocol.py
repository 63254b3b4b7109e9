"""The rules of a wire, in one place: which links may lag, who sends in which round, which round's value is due, and how
many messages may be under way.

`check` asks them before a run, projection and `traffic` when they count, every driver while it runs. Nothing here knows
a device, a clock or a thread.

A value may be read late only where an older one will do:

- *views* of the learner state, such as the policy, at the start of an iteration;
- variables that are marked `late`, such as new priorities, in a loop directly inside the iteration too. That loop's
  rounds then count on from one iteration to the next (`Wire.through`);
- what is sent ahead, such as drawn batches, if all that the reader answers in that loop may be late.

A link may lag if everything that recurs on it may. The newest value there is (`latest`) can only be had of a view: of
all else, each message counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from motet.flow.graph import Graph, Loop
from motet.plan.plan import Lag, Link, Plan

Version = tuple[int, ...]
"""The rounds of the loops around a sending, outermost first."""


@dataclass(frozen=True)
class Wire:
    """A one-way connection between two fragments at one point of the loop nest."""

    link: str
    source: str
    target: str
    vars: tuple[str, ...]
    loop: str
    """The loop in whose rounds it is used."""
    child: int
    carried: bool
    """True: what is sent in a round is read in a later one."""
    lag: Lag = 0
    through: int = 0
    """The rounds of its loop in one iteration, if they count on from one iteration to the next; else 0."""

    @property
    def name(self) -> str:
        arrow = f"{self.link}: {self.source} -> {self.target}"
        return f"{arrow} in {self.loop}" + (", carried" if self.carried else "")


# Which links may lag.


def lag_of(plan: Plan, link: str) -> Lag:
    """What the plan asks of a link."""
    return plan.links.get(link, Link()).lag


def may_lag(graph: Graph, loop: Loop, wire: Wire, found: Iterable[Wire]) -> bool:
    """Whether a wire of `loop`, where the wires `found` are, may deliver values of a fixed number of rounds before."""
    if not wire.carried:
        return _runs_ahead(graph, loop, wire, found)
    if loop is graph.iteration:
        return all(var in graph.views or graph.variables[var].late for var in wire.vars)
    return late_in(graph, loop, wire.vars)


def may_be_latest(graph: Graph, wire: Wire) -> bool:
    """Whether its reader may take the newest value there is, and miss others."""
    return wire.carried and all(var in graph.views for var in wire.vars)


def late_in(graph: Graph, loop: Loop, vars: Iterable[str]) -> bool:
    """Whether these may be rounds of `loop` late, which lies inside the iteration."""
    return _counts_on(graph, loop) and all(graph.variables[var].late for var in vars)


def lag_at(graph: Graph, loop: Loop, carried: bool, asked: Lag, late: int) -> Lag:
    """How many rounds of `loop` the values of a wire are under way, whose link was asked for a lag. `late` is how late
    what comes back to the other side may be, by its own link or by the one that it answers."""
    if not carried:
        return asked if isinstance(asked, int) and _may_run_ahead(graph, loop) else 0
    return asked if loop is graph.iteration or asked == "latest" else late


def _runs_ahead(graph: Graph, loop: Loop, wire: Wire, found: Iterable[Wire]) -> bool:
    """Whether a writer inside the iteration may be rounds ahead of its reader: if all its answers may be late."""
    answers = [w for w in found if w.carried and (w.source, w.target) == (wire.target, wire.source)]
    late = all(graph.variables[var].late for answer in answers for var in answer.vars)
    return late and _may_run_ahead(graph, loop)


def _may_run_ahead(graph: Graph, loop: Loop) -> bool:
    return loop.rate == "update" and _counts_on(graph, loop)


def _counts_on(graph: Graph, loop: Loop) -> bool:
    """Whether rounds of a loop may count on from one iteration to the next."""
    return loop in graph.iteration.body and loop.every == 1


# Which round's value is sent, and which is due.


def is_sent(wire: Wire, path: Version, last: int | None) -> bool:
    """Whether a sender uses the wire in the round `path` of a loop with the `last` round; None: one without an end.

    What is carried to the next round is not sent in the last one, unless the rounds count on.
    """
    return not (wire.carried and path[-1:] == (last,) and not wire.through)


def due(wire: Wire, path: Version, first: int, begun: int = 0) -> Version | None:
    """The round whose value is read in round `path` of a loop with the `first` round; None while the value from before
    that still serves. Rounds that count on through iterations do so from iteration `begun`."""
    if not wire.carried:
        return path
    assert isinstance(wire.lag, int)
    wanted = number(wire, path) - 1 - wire.lag
    if wire.through:
        return None if wanted < begun * wire.through else divmod(wanted, wire.through)
    return None if wanted < first else (*path[:-1], wanted)


def number(wire: Wire, version: Version) -> int:
    """The number of a round, as the wire counts them."""
    return version[0] * wire.through + version[-1] if wire.through else version[-1]


def age(wire: Wire, path: Version, version: Version) -> int:
    """How many rounds older a value is than in lockstep, where round `path` reads what round `version` sent.

    On a link with the latest value, whose wires lie in several loops, it is how many iterations have begun since.
    """
    if wire.lag == "latest":
        return max(0, path[0] - version[0] - (1 if len(version) == 1 else 0))
    return number(wire, path) - number(wire, version) - (1 if wire.carried else 0)


def ages(wire: Wire, path: Version, versions: Iterable[Version]) -> list[int]:
    """Of what is read in round `path`, the ages that say something of the run: the rounds of loops inside an iteration
    begin anew with each."""
    counts = len(path) == 1 or bool(wire.through) or wire.lag == "latest"
    return [age(wire, path, version) for version in versions] if counts else []


def rounds_sent(wire: Wire, count: int) -> int:
    """How often a wire of a loop with `count` rounds is used each time the loop is run."""
    return count - 1 if wire.carried and not wire.through else count


# How many messages may be under way.


def unread(wire: Wire) -> int:
    """Of what was sent before an iteration, how much is read in that iteration or later: the last messages of the wire
    that belong to a cut between two iterations. What does not last from one iteration to the next leaves none."""
    if not wire.carried:
        return 0
    if wire.lag == "latest":
        return 1
    return wire.lag + 1 if wire.loop == "iteration" or wire.through else 0


def capacities(wires: Iterable[Wire]) -> Mapping[Wire, int]:
    """The messages that each wire holds at most, between two replicas. With fewer, programs would wait for each other
    where they need not, or for ever.

    A carried value that lags by k rounds has k + 1 under way between two rounds, and so has a writer that runs k
    rounds ahead. Any other writer is held up by what comes back to it: it can be as far ahead of its reader as the
    shortest way back has values under way.
    """
    wires = list(dict.fromkeys(wires))
    ways = _ways_back([wire for wire in wires if wire.loop == "iteration" or not wire.carried])
    return {wire: _capacity(wire, ways) for wire in wires}


def _capacity(wire: Wire, ways: Mapping[tuple[str, str], int]) -> int:
    if isinstance(wire.lag, int) and (wire.carried or wire.lag):
        return wire.lag + 1
    return max(1, ways.get((wire.target, wire.source), 1)) if wire.loop == "iteration" else 1


def _ways_back(wires: Iterable[Wire]) -> dict[tuple[str, str], int]:
    """From fragment to fragment, how many values are under way on the way that holds the fewest."""
    ways: dict[tuple[str, str], int] = {}
    for wire in wires:
        if isinstance(wire.lag, int):
            held = wire.lag + 1 if wire.carried else 0
            ways[wire.source, wire.target] = min(held, ways.get((wire.source, wire.target), held))
    names = {name for pair in ways for name in pair}
    for middle in names:
        for start in names:
            for end in names:
                if (start, middle) in ways and (middle, end) in ways:
                    held = ways[start, middle] + ways[middle, end]
                    ways[start, end] = min(held, ways.get((start, end), held))
    return ways
