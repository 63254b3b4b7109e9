"""Several replicas in one thread: whoever can go on first goes on.

Where environments take unequal times, their thread goes on with those that are ready instead of waiting for all.
It sleeps when nobody can go on, until a pool's descriptor or the supervisor's bell wakes it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping

from motet.engine.replica import Waits
from motet.engine.supervise import Supervisor, Wait
from motet.envs.shared import Bell
from motet.errors import Stopped

CLOCK = 1.0
"""Seconds between two looks at the clock: a pool notices itself when its step has taken too long."""


def drive(replicas: Mapping[str, Waits], supervisor: Supervisor) -> None:
    """Run all to their ends, or raise the first error."""
    bell = Bell.new()
    supervisor.bells.append(bell)
    alive, waiting = dict(replicas), {}
    progress = time.monotonic()
    try:
        while alive:
            ready = [name for name in alive if name not in waiting or waiting[name].ready()]
            if supervisor.stopped:
                raise Stopped("the thread was stopped")
            if ready:
                progress = time.monotonic()
            elif time.monotonic() - progress > supervisor.timeout:
                raise supervisor.stalled(*next(iter(waiting.items())))
            else:
                _sleep(waiting, bell)
            for name in ready:
                try:
                    waiting[name] = next(alive[name])
                    supervisor.announce(name, f"waiting for {waiting[name].reason}")
                except StopIteration:
                    del alive[name]
                    waiting.pop(name, None)
    finally:
        with supervisor.changed:
            supervisor.bells.remove(bell)
        bell.close()


def _sleep(waiting: Mapping[str, Wait], bell: Bell) -> None:
    """Until something may have changed, or it is time to look at the clock."""
    poll = select.poll()
    poll.register(bell.hear, select.POLLIN)
    for wait in waiting.values():
        for descriptor in wait.pool.descriptors if wait.pool else ():
            poll.register(descriptor, select.POLLIN)
    if any(descriptor == bell.hear for descriptor, _ in poll.poll(CLOCK * 1000)):
        bell.wait()
