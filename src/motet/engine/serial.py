"""All workers in one thread, taking turns in a random order: for tests and debuggers."""

from __future__ import annotations

import random

from motet.engine.assemble import Assembly
from motet.engine.crew import sleep
from motet.engine.waits import EnvironmentsReady, Wait


def drive(assembly: Assembly, until: int) -> None:
    """Take every worker to the end of iteration `until` - 1, or raise the first error."""
    order = random.Random(assembly.settings.seed)
    waiting: dict[str, Wait] = {}
    alive = {each.worker.name: each.drive(until) for each in assembly.performers}
    while alive:
        ready = [name for name in alive if name not in waiting or waiting[name].ready()]
        if not ready:
            if not any(isinstance(wait, EnvironmentsReady) for wait in waiting.values()):
                raise assembly.supervisor.deadlock(waiting)
            sleep(waiting, None)  # other processes are at work
            continue
        name = order.choice(ready)
        try:
            waiting[name] = next(alive[name])
        except StopIteration:
            del alive[name]
            waiting.pop(name, None)
