"""All workers in one thread, taking turns in a random order: for tests and debuggers."""

from __future__ import annotations

import random
from collections.abc import Callable

from motet.engine.assemble import Assembly
from motet.engine.crew import sleep
from motet.engine.perform import Performer
from motet.engine.waits import EnvironmentsReady, Wait


def drive(assembly: Assembly, until: int, turn: Callable[[Performer], None] = lambda performer: None) -> None:
    """Take every worker to the end of iteration `until` - 1, or raise the first error. `turn` is told whose turn comes,
    and so who it was that raised."""
    order = random.Random(assembly.settings.seed)
    waiting: dict[str, Wait] = {}
    performers = {each.worker.name: each for each in assembly.performers}
    alive = {name: each.drive(until) for name, each in performers.items()}
    while alive:
        ready = [name for name in alive if name not in waiting or waiting[name].ready()]
        if not ready:
            if not any(isinstance(wait, EnvironmentsReady) for wait in waiting.values()):
                raise assembly.supervisor.deadlock(waiting)
            sleep(waiting, None)  # other processes are at work
            continue
        name = order.choice(ready)
        turn(performers[name])
        try:
            waiting[name] = next(alive[name])
        except StopIteration:
            del alive[name]
            waiting.pop(name, None)
