"""Who is doing what, who waits for whom, and how the first error stops everyone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from motet.engine.ports import Channel
from motet.engine.waits import EnvironmentsReady, Wait
from motet.errors import Stalled, Stopped


@dataclass
class Supervisor:
    """Shared by all workers of a run."""

    timeout: float
    doing: dict[str, str] = field(default_factory=dict)
    error: BaseException | None = None
    halted: Stopped | None = None
    """Raised by a worker that was told to stop; it tells only that the run did not come to its end."""
    stopped: bool = False
    channels: list[Channel] = field(default_factory=list)
    """Where workers wait, to wake them when the run is over."""
    bells: list[Callable[[], None]] = field(default_factory=list)
    """Rung then too."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def announce(self, who: str, what: str) -> None:
        with self.lock:
            self.doing[who] = what

    def fail(self, error: BaseException) -> None:
        """Stop everyone; the first error is the one that is raised."""
        with self.lock:
            if self.error is None and not isinstance(error, Stopped):
                self.error = error
        self.stop()

    def stop(self) -> None:
        with self.lock:
            self.stopped = True
            for bell in self.bells:
                bell()
        for channel in self.channels:
            with channel.changed:
                channel.changed.notify_all()

    def wait(self, who: str, wait: Wait) -> None:
        """Block until `wait.ready()`. A wait that is too long, or a stopped run, ends it with an error."""
        before = self.doing.get(who, "")
        self.announce(who, f"waiting for {wait.reason}")
        deadline = time.monotonic() + self.timeout
        if isinstance(wait, EnvironmentsReady):
            return  # A worker with a thread of its own waits in the pool, which knows the time by itself.
        with wait.channel.changed:
            while not wait.ready():
                if self.stopped:
                    raise Stopped(f"{who} was stopped while waiting for {wait.reason}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self.stalled(who, wait)
                wait.channel.changed.wait(left)
        self.announce(who, before)

    @staticmethod
    def deadlock(waiting: Mapping[str, Wait]) -> Stalled:
        """Nobody can go on, whatever the order: no correct program ends up here."""
        who = "; ".join(f"{name} waits for {wait.reason}" for name, wait in waiting.items())
        return Stalled(f"Nobody can go on: {who}. This is a defect of motet; please report the plan.")

    def stalled(self, who: str, wait: Wait) -> Stalled:
        with self.lock:
            doing = sorted(self.doing.items())
        others = "; ".join(f"{name} is {what}" for name, what in doing if name != who)
        return Stalled(
            f"{who} has waited {self.timeout:g} s for {wait.reason}. Meanwhile {others or 'nobody else is running'}. "
            "If one step may take that long, raise `timeout`."
        )
