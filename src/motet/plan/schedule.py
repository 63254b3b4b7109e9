"""From a program to what a worker goes through: what is compiled together, and what is left between.

Every run of statements that XLA can take becomes one `Call`, whole loops included. Between calls there are sends and
receives, the steps of host environments (`Ask`), a replay that lies outside of XLA (`Keep`), and the loops that contain
those. All of it is decided here, from the graph and the plan. One thing follows from the machine too, where a plan
leaves a fragment's place open: whether it lies on a CPU, where alone a program can ask host environments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from motet.flow.graph import Graph, Node
from motet.plan.liveness import Liveness, sent
from motet.plan.plan import Fragment
from motet.plan.project import Program, Receive, Rounds, Send, Statement


@dataclass(frozen=True)
class Call:
    """Statements that run as one compiled program."""

    body: tuple[Statement, ...]
    donated: tuple[str, ...]
    """What it reads and replaces: nobody needs the old value, so that its memory is used again."""
    kept: tuple[str, ...]
    """What else it reads."""
    writes: tuple[str, ...]
    """What it writes that something else reads."""
    once: bool = False
    """Whether it runs once and not for long: to compile it takes longer than to run it."""

    @property
    def label(self) -> str:
        return " + ".join(each.name for each in self.body if isinstance(each, (Node, Rounds)))

    @property
    def asks(self) -> bool:
        """Whether it steps host environments from inside."""
        return asks(self.body)


@dataclass(frozen=True)
class Ask:
    """A node that host environments answer, between two calls."""

    node: Node


@dataclass(frozen=True)
class Keep:
    """A node that a replay outside of XLA answers."""

    node: Node


Operation = Call | Ask | Keep | Send | Receive | Rounds
"""What a worker goes through. The body of a `Rounds` is of operations here."""


@dataclass(frozen=True)
class Schedule:
    """What each replica of a fragment does: `start` once, then `body` in every iteration."""

    fragment: str
    start: tuple[Operation, ...]
    body: tuple[Operation, ...]
    state: tuple[str, ...]
    """The variables that it carries from one iteration to the next."""
    reports: tuple[tuple[str, str], ...]
    """What it shows of each iteration: (variable, how it is added up over the environments)."""
    whole: Call | None = None
    """The iteration as one call, if it is one: then many iterations are."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.start, *self.body)


def schedule(graph: Graph, program: Program, fragment: Fragment, *, inside: bool, compiled: bool = True) -> Schedule:
    """Group the statements of a program.

    `inside` says whether compiled programs may ask host environments themselves (see `asks_inside`). With `compiled`
    false every node is a call of its own, for a debugger to follow.
    """
    return _Grouping(graph, program, fragment, inside, compiled).schedule()


def asks_inside(graph: Graph, fragment: Fragment, platform: str = "cpu") -> bool:
    """Whether the compiled programs of a fragment ask its host environments themselves, instead of ending before each
    step. It takes a CPU, where a program can call Python; numbers do not depend on it.

    Unless the plan says, they do where the fragment has one replica alone: XLA has a thread for each core, and a
    program that waits for an environment holds one, so several could keep a learner beside them waiting. Environments
    that only the thread which opened them may step are asked between programs, and so are replicas that share a thread.
    """
    hosted = any(node.host is not None for node in graph.nodes())
    if not hosted or why_outside(graph, fragment, platform):
        return False
    return fragment.replicas == 1 if fragment.inside is None else fragment.inside


def why_outside(graph: Graph, fragment: Fragment, platform: str) -> str:
    """Why the programs of a fragment cannot ask host environments themselves; empty: they can."""
    env = next((node.host.environment for node in graph.nodes() if node.host is not None), None)
    if fragment.shards > 1:
        return "it has several shards, which would each ask"
    if fragment.first_ready:
        return "its replicas share a thread (first_ready), which a program would not give back"
    if platform != "cpu":
        return f"programs on {platform!r} cannot call Python"
    if env is not None and env.one_thread and not fragment.workers:
        return "only the thread that opened these environments may step them, and a program has others"
    return ""


def asks(statements: Iterable[Statement]) -> bool:
    """Whether some of the statements are a host environment's."""
    return any(
        asks(each.body) if isinstance(each, Rounds) else isinstance(each, Node) and each.host is not None
        for each in statements
    )


class _Grouping:
    """A schedule in the making."""

    def __init__(self, graph: Graph, program: Program, fragment: Fragment, inside: bool, compiled: bool):
        self.graph, self.program, self.compiled = graph, program, compiled
        self.inside, self.outside = inside, fragment.outside
        statements = (*program.start, *program.body)
        self.live = Liveness(graph, statements)
        self.replaced = (self.live.exposed(program.body) & self.live.owned) - sent(statements)

    def schedule(self) -> Schedule:
        program, live = self.program, self.live
        reports = tuple((report.var, report.how) for report in self.graph.reports if report.var in program.reports)
        around = live.exposed(program.body) | {var for var, _ in reports}
        whole = None
        if self.compiled and program.body and all(map(self.is_compiled, program.body)):
            whole = self.call(program.body, ())
        held = {var for var in live.exposed(program.body, sure=True) if live.held_as(var) == var}
        return Schedule(
            program.fragment,
            self.start(program.start, around),
            self.group(program.body, around),
            tuple(sorted(held)),
            reports,
            whole,
        )

    def is_compiled(self, statement: Statement) -> bool:
        """Whether XLA can take it."""
        if isinstance(statement, Rounds):
            return all(map(self.is_compiled, statement.body))
        if not isinstance(statement, Node) or (statement.replay is not None and self.outside):
            return False
        return statement.host is None or (self.inside and not statement.host.opens)

    def call(self, body: Sequence[Statement], writes: Iterable[str]) -> Call:
        reads = self.live.exposed(body)
        replaced = frozenset().union(*(self.live.writes(each) for each in body))
        donated = tuple(sorted(reads & replaced & self.replaced))
        return Call(tuple(body), donated, tuple(sorted(reads - set(donated))), tuple(sorted(writes)))

    def start(self, statements: Sequence[Statement], after: frozenset[str]) -> tuple[Operation, ...]:
        """What comes once: the first state apart from the loops that follow it, which may be long."""
        loop = next((place for place, each in enumerate(statements) if isinstance(each, Rounds)), len(statements))
        first = self.group(statements[:loop], after | self.live.exposed(statements[loop:]))
        once = (replace(each, once=True) if isinstance(each, Call) else each for each in first)
        return (*once, *self.group(statements[loop:], after))

    def group(self, statements: Sequence[Statement], after: frozenset[str]) -> tuple[Operation, ...]:
        """`after` is what is read once the statements are done, a next round included."""
        done: list[Operation] = []
        run: list[Statement] = []
        for position, each in enumerate(statements):
            if self.compiled and self.is_compiled(each):
                run.append(each)
                continue
            done += self.closed(run, after | self.live.exposed(statements[position:]))
            run = []
            done.append(self.operation(each, after | self.live.exposed(statements[position + 1 :])))
        return (*done, *self.closed(run, after))

    def closed(self, run: Sequence[Statement], wanted: frozenset[str]) -> list[Operation]:
        """The call of a run of statements, if there are any."""
        if not run:
            return []
        written = frozenset().union(*(self.live.raw_writes(each) for each in run))
        return [self.call(run, written & wanted)]

    def operation(self, each: Statement, after: frozenset[str]) -> Operation:
        """What is no part of a longer run."""
        if isinstance(each, Rounds):
            inner = {out.inner for out in each.outputs}
            body = self.group(each.body, after | self.live.exposed(each.body) | inner)
            return replace(each, body=body)  # type: ignore[arg-type]
        if isinstance(each, Node) and each.host is not None:
            return Ask(each)
        if isinstance(each, Node) and each.replay is not None and self.outside:
            return Keep(each)
        return self.call([each], self.live.raw_writes(each)) if isinstance(each, Node) else each
