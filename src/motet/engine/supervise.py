"""Who is doing what, who waits for whom, and how the first error stops everyone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from motet.envs.shared import Bell
from motet.errors import Stalled, Stopped
from motet.flow.host import Waitable


@dataclass(frozen=True)
class Wait:
    """What a replica asks for when it cannot go on: call again once `ready()` holds."""

    ready: Callable[[], bool]
    reason: str
    whom: str
    """Who must do something first: a fragment, or the environments."""
    pool: Waitable | None = None
    """Whose descriptors tell that it may be ready; None: the supervisor is told."""


@dataclass
class Supervisor:
    """Shared by all replicas of a run. One condition guards every channel: there are few threads and short waits."""

    timeout: float
    changed: threading.Condition = field(default_factory=threading.Condition)
    doing: dict[str, str] = field(default_factory=dict)
    error: BaseException | None = None
    stopped: bool = False
    bells: list[Bell] = field(default_factory=list)
    """Rung with every change, for threads that wait for other things besides."""

    def notify(self) -> None:
        """Something changed that somebody may wait for. The caller holds `changed`."""
        self.changed.notify_all()
        for bell in self.bells:
            bell.ring()

    def announce(self, who: str, what: str) -> None:
        self.doing[who] = what

    def fail(self, error: BaseException) -> None:
        """Stop everyone; the first error is the one that is raised."""
        with self.changed:
            if self.error is None and not isinstance(error, Stopped):
                self.error = error
            self.stopped = True
            self.notify()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.notify()

    def wait(self, who: str, wait: Wait) -> None:
        """Block until `wait.ready()`. A wait that is too long, or a stopped run, ends it with an error."""
        before, self.doing[who] = self.doing.get(who, ""), f"waiting for {wait.reason}"
        deadline = time.monotonic() + self.timeout
        with self.changed:
            while not wait.ready():
                if self.stopped:
                    raise Stopped(f"{who} was stopped while waiting for {wait.reason}")
                if not self.changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise self.stalled(who, wait)
        self.doing[who] = before

    @staticmethod
    def deadlock(waiting: Mapping[str, Wait]) -> Stalled:
        """Nobody can go on, whatever the order: no correct program ends up here."""
        who = "; ".join(f"{name} waits for {wait.reason}" for name, wait in waiting.items())
        return Stalled(f"Nobody can go on: {who}. This is a defect of motet; please report the plan.")

    def stalled(self, who: str, wait: Wait) -> Stalled:
        others = "; ".join(f"{name} is {what}" for name, what in sorted(self.doing.items()) if name != who)
        return Stalled(
            f"{who} has waited {self.timeout:g} s for {wait.reason}. Meanwhile {others or 'nobody else is running'}. "
            "If one step may take that long, raise `timeout`."
        )
