"""What a loop costs on this machine, measured in a few seconds: its calls, its environments, its messages.

Plans are run one after the other in one thread, as few as hold all calls that any candidate has, with environments in
which nothing happens; environments are timed by themselves. So nothing waits for anything else, and what happens when
several do is left to the virtual clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from motet.engine.blank import Pace
from motet.engine.company import Company
from motet.engine.cut import RunCut
from motet.engine.detect import cores
from motet.engine.place import devices_for
from motet.engine.pools import Pools
from motet.engine.raised import ABOUT, Fault, Raised
from motet.engine.rehearse import schedules_of
from motet.engine.run import Reporter, Watcher
from motet.engine.stopwatch import Samples, calls_of, mostly
from motet.engine.trial import LONG, QUICK, Late, Trial, shortened
from motet.errors import described
from motet.flow.graph import Graph
from motet.plan.cost import Fit, Profile
from motet.plan.keys import call_key, message_key
from motet.plan.plan import Plan
from motet.plan.project import project, wires
from motet.plan.spread import kind_of

BUDGET, PATIENT = 14.0, 60.0
"""Seconds that a first profile takes before a run, which is a second below what it may take; and what it takes where
somebody asks which plan is best."""
TIMING = 4.0
"""So many of them are for timing what was compiled before."""
EACH, LEAST = 0.8, 0.15
"""Seconds for each plan, when it is compiled; what it has if time is short."""
FEW, ROUNDS, MOST = 2, 5, 10
"""Plans and environments take turns: a machine is fast in one second and slow in the next. So often at least if time is
short, so often at least if it is not, and so often at most if what they take is not steady."""
STEADY = 0.05
"""What everything takes is steady if one more round changes it by no more than this share."""
PASSES = 6
"""Iterations that a plan goes through at least, to get warm and in a few rounds."""
LATE = 1.0
"""Seconds by which the last of a few rounds may be late."""
SHARED = 5e8
"""Bytes of a state that may be there once for each plan; of a larger one, plans have theirs one after the other."""
Announce = Callable[[str], None]
Item = tuple[str, float]
"""A call's key, and how many environments it has."""


class Profiling:
    """Plans that are run for a moment, and environments that are stepped, to see what a loop costs.

    Everything is compiled before anything is timed, since compilers take all cores. Then all take turns, for as many
    rounds as somebody wants. Which plans are `wanted`, and what of each, `cover` says; the graph must be traced for
    their cuts.
    """

    def __init__(
        self,
        graph: Graph,
        wanted: Mapping[Plan, frozenset[str]],
        pools: Pools,
        *,
        announce: Announce = lambda text: None,
        watcher: Callable[[Reporter], Watcher] | None = None,
    ):
        self.graph, self.wanted, self.pools = shortened(graph), wanted, pools
        self.announce, self.watcher = announce, watcher
        self.shared = sum(each.nbytes() for each in graph.variables.values()) <= SHARED
        self.trials: list[Trial] = []
        self.left_out: list[str] = []
        self.faults: list[Fault] = []
        self.works: set[str] = set()
        """The devices on which something ran."""
        self.company = Company()
        self.samples = Samples()
        self.pace = Pace()
        self.state: RunCut | None = None
        """The first state, which the first trial makes for all."""
        self.began = time.perf_counter()

    def compile(self, until: float) -> None:
        """Two plans at once, the first ones first. What there is no time for is left out: plans that would come late,
        and calls of those that came in time."""
        plans = iter(self.wanted.items())
        first = self._begun(*next(plans), until)  # by itself: others start from its state
        with ThreadPoolExecutor(min(2, cores())) as compilers:
            made = [compilers.submit(self._compiled, first, until)]
            made += [compilers.submit(self._made, plan, keys, until) for plan, keys in plans]
        for found in (each.result() for each in made):
            self.trials += [found] if isinstance(found, Trial) else []
            self.left_out += [found] if isinstance(found, str) else []
        for each in self.trials:
            self.left_out += [f"{describe(each.plan)}, {call}: no time was left" for call in dict.fromkeys(each.late)]

    def _made(self, plan: Plan, wanted: frozenset[str], until: float) -> Trial | str:
        return self._compiled(self._begun(plan, wanted, until), until)

    def _begun(self, plan: Plan, wanted: frozenset[str], until: float) -> Trial | str:
        """A plan in its first state, or why there is none."""
        if time.perf_counter() > until:
            return f"{describe(plan)}: no time was left"
        self.announce(f"compiling {describe(plan)}")
        trial: Trial | None = None
        try:
            trial = Trial(self.graph, plan, devices_for(plan), wanted, self.watcher)
            trial.start(self.state)
            if self.shared and self.state is None:
                self.state = trial.cut()
            return trial
        except Exception as error:  # whatever a device or a program raises: all others are still worth measuring
            found = self._failed(plan, trial, error)
            if trial is not None:
                trial.close()
            return found

    def _compiled(self, trial: Trial | str, until: float) -> Trial | str:
        if isinstance(trial, str):
            return trial
        try:
            trial.compile(until, self.pace)
            self.works |= trial.worked
            if not self.shared:
                trial.forget()
            return trial
        except Exception as error:
            found = self._failed(trial.plan, trial, error)
            trial.close()
            return found

    def _failed(self, plan: Plan, trial: Trial | None, error: Exception) -> str:
        """Note what raised -> how it is said. That there was no time for a plan says nothing against it."""
        if not isinstance(error, Late):
            devices, calls = trial.at_work if trial is not None else ((), ())
            self.faults.append(Fault(plan, described(error), devices, calls))
        return f"{describe(plan)}: {described(error)}"

    def time(self, until: float) -> None:
        """In turns, or one after the other if their states do not fit beside each other."""
        self.announce("timing " + ", ".join(dict.fromkeys(each.plan.name for each in self.trials)))
        self.company.measure()
        self._leave_out_the_slowest(until)
        if self.shared:
            self.warm_up()
            seconds, levels = self._share(until), self._levels()
            for number in range(1, MOST + 1):
                start = time.perf_counter()
                self.round(seconds)
                before, levels = levels, self._levels()
                over = 2 * time.perf_counter() - start
                if over > until and (number >= FEW or over > until + LATE):
                    break
                if number >= ROUNDS and are_steady(before, levels):
                    break
            return
        for trial in list(self.trials):
            seconds = self._share(until) * ROUNDS
            if self._tried(trial, lambda each: (each.warm_up(), each.time_for(seconds))):  # noqa: B023 - used at once
                trial.note(self.samples)
            self.trials = [each for each in self.trials if each is not trial]
            trial.close()
        self.pools.step_for(EACH)

    def _leave_out_the_slowest(self, until: float) -> None:
        """Plans that would take half of the time for themselves alone. One that is a single call is kept: much follows
        from it."""
        most = max(QUICK, (until - time.perf_counter()) / 2 / PASSES)
        for each in [each for each in self.trials if each.each > most and not each.assembly.whole]:
            self.left_out.append(f"{describe(each.plan)}: no time was left, one iteration takes {each.each:.1f} s")
            self.trials.remove(each)
            each.close()

    def _levels(self) -> list[float]:
        """What each plan takes for an iteration and each pool for a step, as far as is known."""
        return [*(each.level for each in self.trials), *(each.level for each in self.pools.pools)]

    def _share(self, until: float) -> float:
        """Seconds for each plan in a round, if all are to be over then."""
        left = (until - time.perf_counter()) / (len(self.trials) + len(self.pools.pools) + 1)
        return min(EACH, max(LEAST, left)) / ROUNDS

    def warm_up(self) -> None:
        self._all(Trial.warm_up)

    def round(self, seconds: float) -> None:
        """So many seconds for each plan and each pool."""
        self._all(lambda each: each.time_for(seconds))
        self._all(lambda each: self._ask(each, seconds))
        self.pools.step_for(seconds)
        self.company.measure()

    def _ask(self, trial: Trial, seconds: float) -> None:
        """Environments as a program asks for them, with what it computes in between. It decides between the simplest
        plans, so it has time enough even if there is little."""
        if trial.asks:
            for pool in self.pools.holding(self.graph.num_envs):
                pool.inside.append(trial.time_asking(pool.opened, mostly(pool.paused.seconds), max(seconds, LONG)))

    def _all(self, do: Callable[[Trial], None]) -> None:
        failed = [each for each in self.trials if not self._tried(each, do)]
        self.trials = [each for each in self.trials if each not in failed]
        for each in failed:
            each.close()

    def _tried(self, trial: Trial, do: Callable[[Trial], object]) -> bool:
        try:
            do(trial)
        except Exception as error:
            self.left_out.append(self._failed(trial.plan, trial, error))
            return False
        return True

    def profile(self) -> Profile:
        """What was seen until now."""
        for each in self.trials:
            each.note(self.samples)
        seconds = time.perf_counter() - self.began
        about = {"seconds": f"{seconds:.1f}", "left out": "; ".join((*self.pools.left_out, *self.left_out))}
        if self.faults:
            about[ABOUT] = Raised(tuple(self.faults), frozenset(self.works)).to_json()
        return _profile(self.samples, self.company, self.pools, self.graph.num_envs, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.trials:
            each.close()


def are_steady(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether one more round changed nothing much, and nobody failed in it."""
    pairs = zip(before, after, strict=False)
    return len(before) == len(after) and all(abs(new - old) <= STEADY * new for old, new in pairs)


def _profile(samples: Samples, company: Company, pools: Pools, size: int, about: Mapping[str, str]) -> Profile:
    def median(values: Sequence[float]) -> float:
        return statistics.median(values) if values else 0.0

    return Profile(
        calls={key: Fit(tuple(sorted(found.items())), samples.demand[key]) for key, found in samples.calls.items()},
        environments=pools.fits(),
        rested=pools.fits(rested=True),
        locked=pools.locked,
        messages={key: Fit(tuple(sorted(found.items()))) for key, found in samples.messages.items()},
        replay={key: Fit(((float(size), seconds),)) for key, seconds in samples.replay.items()},
        send=tuple(sorted(samples.send)),
        receive=tuple(sorted(samples.receive)),
        stack=tuple(sorted(samples.stack)),
        asking=median(samples.asking),
        handling=median(samples.handling),
        reporting={who: statistics.median(found) for who, found in samples.reporting.items()},
        calling=company.calling,
        waking=company.waking,
        crowding=company.crowding,
        about=about,
    )


def items_of(graph: Graph, plan: Plan, usual: str) -> set[Item]:
    """All calls that a plan has in an iteration, as they are measured where devices are of the `usual` kind."""
    found: set[Item] = set()
    alone = sum(each.replicas for each in plan.fragments.values()) == 1
    for name, schedule in schedules_of(graph, plan).items():
        fragment = plan.fragments[name]
        size, kind = graph.num_envs / fragment.cut.parts, kind_of(fragment, usual)
        if alone and schedule.whole is not None:
            return {(call_key(kind, schedule.whole, fragment.shards, True), size)}
        found |= {(call_key(kind, call, fragment.shards, False), size) for call in calls_of(schedule.body)}
    return found


def messages_of(graph: Graph, plan: Plan) -> set[Item]:
    """All that goes over wires in an iteration, as it is measured: what, without its ends, and how many ends it has."""
    found: set[Item] = set()
    for program in project(graph, plan).values():
        for wire, _ in wires(program.body):
            senders, receivers = (plan.fragments[name].replicas for name in (wire.source, wire.target))
            for what, ends in (("send", receivers), ("receive", senders)):
                found.add((message_key(what, wire, 0), float(ends)))
    return found


def cover(graph: Graph, plans: Iterable[Plan], usual: str) -> dict[Plan, frozenset[str]]:
    """Those of the plans, in their order, that have calls or messages which none before them has, and the keys of these
    calls: at the largest and the smallest number of environments or of ends, and messages with two ends, since to put
    two together is another thing than to have one; those in between follow."""
    items = {plan: (items_of(graph, plan, usual), messages_of(graph, plan)) for plan in plans}
    calls = _ends(item for found, _ in items.values() for item in found)
    several = {item for _, found in items.values() for item in found if item[1] == 2}
    messages = _ends(item for _, found in items.values() for item in found) | several
    chosen: dict[Plan, frozenset[str]] = {}
    for plan, (found, sent) in items.items():
        if found & calls or sent & messages:
            chosen[plan] = frozenset(key for key, _ in found & calls)
            calls -= found
            messages -= sent
    return chosen


def _ends(items: Iterable[Item]) -> set[Item]:
    """Of each key the smallest and the largest."""
    sizes: dict[str, list[float]] = {}
    for key, size in items:
        sizes.setdefault(key, []).append(size)
    return {(key, end) for key, found in sizes.items() for end in (min(found), max(found))}


def describe(plan: Plan) -> str:
    """A plan in few words: its name, and what its fragments say of themselves."""
    words = []
    for name, each in plan.fragments.items():
        said = [
            f"{what}={getattr(each, what)}" for what in ("replicas", "shards", "workers") if getattr(each, what) > 1
        ]
        words.append(f"{name}{' ' if said else ''}{' '.join(said)}")
    return f"{plan.name} ({', '.join(words)})"
