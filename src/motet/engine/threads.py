"""A thread for each worker, each with its own device. The first error stops all, and none is left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import jax

from motet.engine import crew
from motet.engine.assemble import Assembly
from motet.engine.perform import Performer
from motet.errors import Stalled, Stopped

GRACE = 5.0
"""Seconds that environments have to finish a step when a run is stopped."""


def drive(assembly: Assembly, until: int) -> None:
    """Take every worker to the end of iteration `until` - 1, or raise the first error."""
    supervisor = assembly.supervisor
    crews = {threading.Thread(name=f"motet {each[0].worker.name}", daemon=True): each for each in _crews(assembly)}
    for thread, members in crews.items():
        thread.run = lambda members=members: _run(assembly, members, until)
        thread.start()
    try:
        while any(thread.is_alive() for thread in crews) and not supervisor.stopped:
            for thread in crews:
                thread.join(0.1 / len(crews))
            _watch_environments(assembly)
    except BaseException as error:  # Ctrl-C included
        supervisor.fail(error)
        raise
    finally:
        supervisor.stop()
        _leave(crews)
    if error := supervisor.error or supervisor.halted:
        raise error


def _crews(assembly: Assembly) -> list[list[Performer]]:
    """Who runs in which thread: each worker in its own, unless a fragment lets those of a device share one."""
    crews: dict[object, list[Performer]] = {}
    for each in assembly.performers:
        worker = each.worker
        shares = assembly.plan.fragments[worker.fragment].first_ready
        crews.setdefault((worker.fragment, each.home.place) if shares else worker.name, []).append(each)
    return list(crews.values())


def _run(assembly: Assembly, members: list[Performer], until: int) -> None:
    first, supervisor = members[0], assembly.supervisor
    device = first.home.place.devices[0]
    try:
        with jax.default_device(device):
            if len(members) > 1:
                crew.drive(members, until, supervisor)
                return
            for wait in first.drive(until):
                supervisor.wait(first.worker.name, wait)
        supervisor.announce(first.worker.name, "done")
    except Stopped as stopped:
        supervisor.halted = stopped  # by another's error, or because the interpreter ends
    except BaseException as error:
        error.add_note(f"(raised in {first.worker.name} on {device}, iteration {first.worker.iteration})")
        supervisor.fail(error)


def _watch_environments(assembly: Assembly) -> None:
    """An environment that is stepped in a worker's own thread and never returns can only be seen from outside."""
    now = time.monotonic()
    for each in assembly.performers:
        since, opening = each.environments.busy_since, each.environments.opening
        if since is not None and not opening.workers and now - since > opening.timeout:
            assembly.supervisor.fail(
                Stalled(
                    f"{each.worker.name} has waited {opening.timeout:g} s for one step of its environments "
                    f"{opening.first} to {opening.first + opening.count - 1}. If a step may take that long, raise "
                    "`step_timeout`."
                )
            )


def _leave(crews: Mapping[threading.Thread, list[Performer]]) -> None:
    """Let every thread come to its end. One inside an environment that hangs is left: it dies with the process."""
    patient = time.monotonic() + GRACE
    for thread, members in crews.items():
        while thread.is_alive():
            thread.join(0.05)
            environments = [each.environments for each in members]
            if time.monotonic() < patient or all(each.busy_since is None for each in environments):
                continue
            if not environments[0].opening.workers:
                break
            for each in environments:
                each.close()  # its workers die, and the thread learns of it
            patient = time.monotonic() + GRACE
