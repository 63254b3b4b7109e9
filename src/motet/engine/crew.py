"""Several workers in one thread: whoever can go on first goes on.

Where environments take unequal times, their thread goes on with those that are ready instead of waiting for all. It
sleeps when nobody can go on, until a pool's descriptor or a channel's bell wakes it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping

from motet.engine.perform import Performer, Waits
from motet.engine.supervise import Supervisor
from motet.engine.waits import EnvironmentsReady, Wait
from motet.envs.shared import Bell
from motet.errors import Stopped

CLOCK = 1.0
"""Seconds between two looks at the clock: a pool notices itself when its step has taken too long."""


def drive(crew: list[Performer], until: int, supervisor: Supervisor) -> None:
    """Run all to their ends, or raise the first error."""
    bell = Bell.new()
    channels = [
        channel
        for each in crew
        for ends in (each.ports.outgoing, each.ports.incoming)
        for channels in ends.values()
        for channel in channels
    ]
    with supervisor.lock:
        supervisor.bells.append(bell.ring)
    for channel in channels:
        with channel.changed:
            channel.listeners.append(bell.ring)
    try:
        _drive({each.worker.name: each.drive(until) for each in crew}, supervisor, bell)
    finally:
        for channel in channels:
            with channel.changed:
                channel.listeners.remove(bell.ring)
        with supervisor.lock:
            supervisor.bells.remove(bell.ring)
        bell.close()


def _drive(alive: dict[str, Waits], supervisor: Supervisor, bell: Bell) -> None:
    waiting: dict[str, Wait] = {}
    progress = time.monotonic()
    while alive:
        ready = [name for name in alive if name not in waiting or waiting[name].ready()]
        if supervisor.stopped:
            raise Stopped("the thread was stopped")
        if ready:
            progress = time.monotonic()
        elif time.monotonic() - progress > supervisor.timeout:
            raise supervisor.stalled(*next(iter(waiting.items())))
        else:
            sleep(waiting, bell)
        for name in ready:
            try:
                waiting[name] = next(alive[name])
                supervisor.announce(name, f"waiting for {waiting[name].reason}")
            except StopIteration:
                del alive[name]
                waiting.pop(name, None)


def sleep(waiting: Mapping[str, Wait], bell: Bell | None) -> None:
    """Until something may have changed, or it is time to look at the clock."""
    poll = select.poll()
    if bell is not None:
        poll.register(bell.hear, select.POLLIN)
    for wait in waiting.values():
        for descriptor in wait.pool.descriptors if isinstance(wait, EnvironmentsReady) else ():
            poll.register(descriptor, select.POLLIN)
    heard = poll.poll(CLOCK * 1000)
    if bell is not None and any(descriptor == bell.hear for descriptor, _ in heard):
        bell.wait()
