"""What raised while it was profiled, and which plans that rules out.

A device on which calls raised, and none ran, is left out with all that need it, and with it all others of its kind if
nothing ran on any. Where the devices work, it is the plan that does not, with all that have its parts or its calls.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from motet.plan.cost import Profile
from motet.plan.machine import Machine
from motet.plan.plan import Plan
from motet.plan.spread import spread

ABOUT = "raised"
"""Under what a profile has it."""
LONG = 100
"""Letters of an error that are said."""


@dataclass(frozen=True)
class Fault:
    """A plan that raised."""

    plan: Plan
    why: str
    devices: tuple[str, ...] = ()
    """Those of the part that raised, as "gpu:1"; none if it was no part."""
    calls: tuple[tuple[str, float], ...] = ()
    """What that part was to compute: keys, and numbers of environments."""


@dataclass(frozen=True)
class Raised:
    """All that raised while a loop was profiled, and the devices that work."""

    faults: tuple[Fault, ...] = ()
    works: frozenset[str] = frozenset()

    @cached_property
    def broken(self) -> Mapping[str, str]:
        """Devices that are left out, and kinds of which none works -> what they raised. Who raised on several devices
        says something of those that no one accounts for who was on one alone."""
        found: dict[str, str] = {}
        for each in sorted(self.faults, key=lambda each: len(each.devices)):
            suspects = [device for device in each.devices if device not in self.works]
            if not any(device in found for device in suspects):
                found |= dict.fromkeys(suspects, each.why)
        good = set(map(_kind, self.works))
        kinds = {_kind(device): why for device, why in reversed(found.items()) if _kind(device) not in good}
        return {**kinds, **{device: why for device, why in found.items() if _kind(device) not in kinds}}

    def against(self, plan: Plan, machine: Machine, calls: Callable[[], Set[tuple[str, float]]]) -> str:
        """What speaks against a plan with these calls; empty: nothing that is known."""
        if not self.faults:
            return ""
        for device in needed(plan, machine):
            name = device if device in self.broken else _kind(device)
            if name in self.broken:
                return f"{name} raised {self.broken[name]}"
        for each in self._of_plans:
            if plan.fragments == each.plan.fragments or (each.calls and calls() & set(each.calls)):
                return f"it raised {each.why}, or one with the same calls did"
        return ""

    def said(self, spelled: Callable[[Plan], str]) -> str:
        """What is left out and why, in one line; empty: nothing."""
        plans = {spelled(each.plan): each.why for each in self._of_plans}
        found = [f"{name} ({_short(why)})" for name, why in {**self.broken, **plans}.items()]
        return f"left out, since it raised while it was profiled: {'; '.join(found)}" if found else ""

    @property
    def _of_plans(self) -> list[Fault]:
        """Those that no device accounts for."""
        return [each for each in self.faults if not self.broken.keys() & {*each.devices, *map(_kind, each.devices)}]

    def to_json(self) -> str:
        faults = [[each.plan.to_json(), each.why, each.devices, each.calls] for each in self.faults]
        return json.dumps({"faults": faults, "works": sorted(self.works)})

    @staticmethod
    def of(profile: Profile) -> Raised:
        """What a profile says of it."""
        if ABOUT not in profile.about:
            return Raised()
        data = json.loads(profile.about[ABOUT])
        return Raised(
            tuple(
                Fault(Plan.from_json(plan), why, tuple(devices), tuple((key, size) for key, size in calls))
                for plan, why, devices, calls in data["faults"]
            ),
            frozenset(data["works"]),
        )


def needed(plan: Plan, machine: Machine) -> Mapping[str, int]:
    """What a plan lies on, as "gpu:1" or "host" -> on how many hosts; of processors, how many replicas are on them."""
    found: dict[str, set[object]] = {}
    for name, seats in spread(plan, machine).items():
        for index, seat in enumerate(seats):
            hosts = range(machine.hosts) if seat.everywhere else (seat.host,)
            who = [(host, name, index) if seat.kind == "cpu" else host for host in hosts]
            for device in [seat.outside] if seat.outside else [f"{seat.kind}:{number}" for number in seat.devices]:
                found.setdefault(device, set()).update(who)
    return {name: len(who) for name, who in found.items()}


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _short(why: str) -> str:
    return textwrap.shorten(why, LONG, placeholder=" ...")
