"""A virtual clock, and what is scarce on it: cores that share themselves out, devices that take turns.

Events are taken in order of time, and those of the same time in the order in which they were asked for: the same
questions get the same answers every time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

Then = Callable[[], None]


@dataclass(frozen=True)
class Use:
    """So many seconds of something."""

    seconds: float
    """If nobody else wants it."""
    on: Hashable = None
    """What is used; None: nothing that others could want, as while a message is under way."""
    demand: float = 1.0
    """Of cores: how many it keeps busy."""
    locks: tuple[Hashable, ...] = ()
    """What only one may hold meanwhile, as Python's interpreter."""
    label: str = ""
    """What is done."""


@dataclass
class Clock:
    """What happens when."""

    now: float = 0.0
    asked: int = 0
    events: list[tuple[float, int, Then]] = field(default_factory=list)

    def at(self, time: float, then: Then) -> None:
        self.asked += 1
        heapq.heappush(self.events, (max(time, self.now), self.asked, then))

    def run(self, going: Callable[[], bool] = lambda: True) -> None:
        """Until nothing is left to happen."""
        while self.events and going():
            self.now, _, then = heapq.heappop(self.events)
            then()


@dataclass
class Shared:
    """Cores: all who want them go on at the same pace, slower where they want more than there are.

    One number tells how far each has come: `progress` grows with the clock at the common pace, and whoever began at p
    and wants s seconds is done when it reaches p + s.
    """

    clock: Clock
    capacity: float
    crowding: float = 1.0
    """How fast a core is while all others are busy too, as a share: they have caches and power together."""
    progress: float = 0.0
    seen: float = 0.0
    wanted: float = 0.0
    pace: float = 1.0
    """How fast everybody goes on: it follows from what is wanted."""
    busy: float = 0.0
    """Core seconds so far."""
    ends: list[tuple[float, int, float, Then]] = field(default_factory=list)
    plans: int = 0

    def _speed(self, busy: float) -> float:
        """How fast each of so many busy cores is."""
        if self.capacity <= 1 or busy <= 1:
            return 1.0
        return 1 - (1 - self.crowding) * (min(busy, self.capacity) - 1) / (self.capacity - 1)

    def use(self, seconds: float, demand: float, then: Then) -> None:
        self._look()
        self.clock.asked += 1
        alone = seconds * self._speed(demand)  # what keeps several cores busy was slowed by them when it was measured
        heapq.heappush(self.ends, (self.progress + alone, self.clock.asked, demand, then))
        self._want(self.wanted + demand)

    def _want(self, wanted: float) -> None:
        self.wanted = wanted
        self.pace = min(1.0, self.capacity / wanted) * self._speed(wanted) if wanted > 0 else 1.0
        self._plan()

    def _look(self) -> None:
        passed, self.seen = self.clock.now - self.seen, self.clock.now
        self.progress += passed * self.pace
        self.busy += passed * min(self.capacity, self.wanted)

    def _plan(self) -> None:
        """Come back when the next one is done; whatever was planned before is void."""
        self.plans += 1
        if self.ends:
            plan, left = self.plans, max(0.0, self.ends[0][0] - self.progress)
            self.clock.at(self.clock.now + left / self.pace, lambda: self._end(plan))

    def _end(self, plan: int) -> None:
        if plan != self.plans:
            return
        self._look()
        end, _, demand, then = heapq.heappop(self.ends)
        self.progress = max(self.progress, end)  # as if time had no rounding
        self._want(self.wanted - demand if self.ends else 0.0)
        then()


@dataclass
class Turns:
    """A device, a link or a lock: one at a time, in the order of asking."""

    clock: Clock
    handing: float = 0.0
    """Seconds from one who had it to another who waited: a thread has to wake up."""
    held: bool = False
    busy: float = 0.0
    since: float = 0.0
    queue: deque[Then] = field(default_factory=deque)

    def take(self, then: Then) -> None:
        if self.held:
            self.queue.append(then)
        else:
            self._hold(then)

    def _hold(self, then: Then) -> None:
        self.held, self.since = True, self.clock.now
        then()

    def give(self) -> None:
        self.busy += self.clock.now - self.since
        self.held = bool(self.queue)
        if self.queue:
            then = self.queue.popleft()
            self.clock.at(self.clock.now + self.handing, lambda: self._hold(then))


class Resources:
    """All that is scarce: cores by name, with how many there are; everything else takes turns."""

    def __init__(self, clock: Clock, cores: Mapping[Hashable, float], crowding: float = 1.0, handing: float = 0.0):
        self.clock, self.handing = clock, handing
        self.cores = {name: Shared(clock, count, crowding) for name, count in cores.items()}
        self.turns: dict[Hashable, Turns] = {}

    def perform(self, uses: Sequence[Use], then: Then, told: Callable[[Use, float], None] | None = None) -> None:
        """One use after the other, then `then`. `told` learns of each how long it took."""
        if not uses:
            then()
            return
        use, *rest = uses
        began = self.clock.now

        def done() -> None:
            if told is not None:
                told(use, self.clock.now - began)
            self.perform(rest, then, told)

        self._locked(use, use.locks, done)

    def _locked(self, use: Use, locks: Sequence[Hashable], done: Then) -> None:
        if not locks:
            self._use(use, done)
            return
        first, *rest = locks
        lock = self.turn(first, self.handing)

        def free() -> None:
            lock.give()
            done()

        lock.take(lambda: self._locked(use, rest, free))

    def _use(self, use: Use, done: Then) -> None:
        if use.on in self.cores:
            self.cores[use.on].use(use.seconds, use.demand, done)
        elif use.on is None:
            self.clock.at(self.clock.now + use.seconds, done)
        else:
            turn = self.turn(use.on)

            def end() -> None:
                turn.give()
                done()

            turn.take(lambda: self.clock.at(self.clock.now + use.seconds, end))

    def turn(self, name: Hashable, handing: float = 0.0) -> Turns:
        if name not in self.turns:
            self.turns[name] = Turns(self.clock, handing)
        return self.turns[name]

    def busy(self) -> dict[Hashable, float]:
        """For how many seconds each was used."""
        return {name: each.busy for name, each in (*self.cores.items(), *self.turns.items())}
