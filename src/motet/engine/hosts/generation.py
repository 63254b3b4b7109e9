"""One generation of a run over hosts: processes that live and end together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.engine.cut import RunCut
from motet.engine.hosts import task as tasks
from motet.engine.hosts.failure import Failure, explained
from motet.engine.hosts.reach import Hosts, Lost, Pulse, ask_all, later
from motet.engine.packing import pack, unpack
from motet.engine.run import Outcome
from motet.errors import BadOption, BadPlan, Disconnected, Diverged
from motet.plan import places
from motet.plan.hosts import hosts_of, spanning

if TYPE_CHECKING:
    from motet.engine.hosts.driver import Driver

POLL = 1.0
"""Seconds that a host waits for something to tell."""
ASIDE = 5.0
"""Seconds that a host has to tell what it does while another has failed."""


class Generation:
    """Its hosts, from their first word to their last."""

    def __init__(self, driver: Driver, number: int):
        self.driver, self.number, self.plan = driver, number, driver.plan
        self.ended: dict[int, tuple[Outcome, RunCut]] = {}
        self.about: dict[int, Mapping[str, Any]] = {}
        self.hosts: Hosts
        self.asked = False
        """Whether the learner was asked to show its state, and has not done so yet."""
        self.reach = driver.reach()
        """How far the learner was allowed to go."""

    def cause(self, lost: Lost) -> str:
        """Which host was lost, and why."""
        about = self.about.get(lost.host)
        who = f" ({about['machine']}, process {about['pid']})" if about else ""
        return f"host {lost.host}{who} {lost.why}"

    def begin(self, hosts: Hosts) -> None:
        """Let every host trace, compare what they found, and start them all."""
        try:
            self._begin(hosts)
        except Disconnected as error:
            raise Lost(0, str(error)) from None

    def _begin(self, hosts: Hosts) -> None:
        driver, patience, self.hosts = self.driver, self.driver.patience, hosts
        everyone = range(self.plan.hosts)
        self.about = dict(enumerate(self._come_up()))
        check_versions(self.about)
        if spanning(self.plan):
            self._meet()
        keys = driver.keys.public, driver.keys.secret
        asked = [(host, driver.packed, keys, driver.final) for host in everyone]
        pulse = Pulse(hosts, patience.heartbeat)
        found = dict(enumerate(ask_all(hosts, asked, "prepare", patience.start, pulse)))
        check_alike(driver, found)
        addresses = {host: each["address"] for host, each in found.items()}
        ahead = driver.reporter.until, driver.onlooker.every, self.reach
        starts = [(self.number, addresses, self._start(host), self._is_exact, *ahead) for host in everyone]
        ask_all(hosts, starts, "begin", patience.start, pulse)

    def _come_up(self) -> list[Mapping[str, Any]]:
        """What hosts say of themselves when their processes have come up. Before that they have no pulse to feel, so
        what tells that one is stopped is how long others took, now or in the generations before."""
        driver, began = self.driver, time.monotonic()
        patience = driver.patience.start
        patience = patience if driver.came_up is None else min(patience, later(driver.came_up))
        found = ask_all(self.hosts, [()] * self.plan.hosts, "describe", patience, alike=True)
        driver.came_up = max(driver.came_up or 0.0, time.monotonic() - began)
        return found

    def _meet(self) -> None:
        """Let hosts that programs span find each other."""
        count, patience = self.plan.hosts, self.driver.patience
        ticket = self.hosts.ask(0, "offer")
        if not self.hosts.ready([ticket], patience.heartbeat):
            raise Lost(0, f"has not answered for {patience.heartbeat:g} s")
        address = self.hosts.answer(ticket)
        if isinstance(address, Failure):
            raise address.error()
        asked = [(host, address, count) for host in range(count)]
        ask_all(self.hosts, asked, "join", patience.start, Pulse(self.hosts, patience.heartbeat))

    @property
    def _is_exact(self) -> bool:
        return self.driver.exact or self.driver.cuts.last is not None

    def _start(self, host: int) -> Any:
        """What a host goes on from: of the same plan its own workers' shares, else everything."""
        cut = self.driver.cut()
        if cut is None:
            return None
        if self._is_exact:
            mine = {
                name: share
                for name, share in cut.shares.items()
                if hosts_of(self.plan, share.fragment)[share.index] == host
            }
            cut = replace(cut, shares=mine)
        return pack(replace(cut, watched={}))

    def follow(self) -> Mapping[int, tuple[Outcome, RunCut]]:
        """Listen to all hosts until they have come to the end -> what came of it on each."""
        asked = {host: self._poll(host) for host in range(self.plan.hosts)}
        while len(self.ended) < self.plan.hosts:
            ready = self.hosts.ready([ticket for ticket, _ in asked.values()], 0.1)
            for host, (ticket, since) in list(asked.items()):
                if ticket in ready:
                    events = self.hosts.answer(ticket)
                    asked[host] = self._poll(host)
                    for event in events:
                        self._happened(host, *event)
                elif time.monotonic() - since > POLL + self.driver.patience.heartbeat:
                    raise Lost(host, f"has not answered for {self.driver.patience.heartbeat:g} s")
            self._agree()
            self._look()
        return self.ended

    def _poll(self, host: int) -> tuple[Any, float]:
        return self.hosts.ask(host, "events", POLL), time.monotonic()

    def _happened(self, host: int, what: str, *told: Any) -> None:
        driver = self.driver
        if what == "status":
            driver.reporter.watcher.status(f"{told[0]} on host {host}: {told[1]}")
        elif what == "reported":
            self._watching_numbers(lambda: driver.collector.add(*told))
        elif what == "rows":
            self._watching_numbers(lambda: driver.rows(*told))
        elif what == "share":
            iteration, packed, seconds = told
            for share in unpack(*packed).shares.values():
                driver.cuts.add(iteration, share, seconds)
        elif what == "shown":
            iteration, packed = told
            self.asked = False
            driver.onlooker.look(iteration, self._learner(unpack(*packed)))
        elif what == "usage":
            driver.usage[host] = told[0]
            driver.on_usage(merged_usage(driver.usage))
        elif what == "ended":
            outcome, packed = told[0]
            self.ended[host] = outcome, unpack(*packed)
        elif what == "failed":
            raise self._failed(host, told[0])

    def _watching_numbers(self, tell: Any) -> None:
        """What is no longer finite ends the run with the last state that was, which lies on a host."""
        try:
            tell()
        except Diverged as error:
            raise Diverged(str(error), error.iteration, self._good()) from None

    def _good(self) -> tuple[int, tuple[np.ndarray, ...]] | None:
        try:
            found = ask_all(self.hosts, [()] * self.plan.hosts, "good", self.driver.patience.heartbeat)
        except Lost:
            return None
        return next(((iteration, self._learner(unpack(*packed))) for iteration, packed in filter(None, found)), None)

    def _learner(self, cut: RunCut) -> tuple[np.ndarray, ...]:
        """The learner state, of a cut that holds nothing else."""
        (share,) = cut.shares.values()
        return share.variables[self.driver.reporter.graph.roles.learner]

    def _failed(self, host: int, failure: Failure) -> BaseException:
        doing: dict[int, Any] = {}
        for other in range(self.plan.hosts):
            if other != host:
                ticket = self.hosts.ask(other, "doing")
                if self.hosts.ready([ticket], ASIDE):
                    doing[other] = self.hosts.answer(ticket)
        error = explained(failure, doing)
        if isinstance(error, Disconnected):
            return Lost(host, str(error))  # and nobody else is lost, who would have been named before
        if isinstance(error, Diverged):
            return Diverged(str(error), error.iteration, self._good())
        return error

    def _look(self) -> None:
        """Let whoever looks on do so, and the learner go as far as that lets it."""
        driver, onlooker = self.driver, self.driver.onlooker
        onlooker.turn(driver.told)
        if onlooker.asks() and not self.asked:
            self.asked = True
            self._tell_all("show")
        if (reach := driver.reach()) != self.reach:
            self.reach = reach
            self._tell_all("allow", reach)

    def _agree(self) -> None:
        """Take a cut if one is due, or end the run if somebody wants it to, where no worker has been yet."""
        driver = self.driver
        wanted, begun = None if driver.ending else driver.onlooker.end(), driver.told > driver.begun
        if wanted is not None:
            self._end(wanted)
            driver.onlooker.ended(driver.reporter.until)
        elif driver.stopping and begun:
            self._end()
        elif begun and not driver.cuts.waiting and (driver.cuts.due or driver.wants_cut(driver.told)):
            self._cut()

    def _cut(self) -> None:
        driver, began = self.driver, time.monotonic()
        if self.ended:
            return
        farthest = self._hold()
        is_late = farthest >= driver.reporter.until  # that is the end, where everybody will be seen anyway
        self._tell_all("release", None if is_late else farthest, None)
        if is_late:
            driver.cuts.forget()
        else:
            driver.cuts.agreed(farthest, time.monotonic() - began)

    def _end(self, wanted: int = 0) -> None:
        """End the run after `wanted` iterations, or as soon after as nobody has passed, or where it ends anyway."""
        driver, began = self.driver, time.monotonic()
        if not self.ended:  # else somebody has come to the end already
            end = max(wanted, self._hold())
            is_early, cut = end < driver.reporter.until, end if driver.final else None
            self._tell_all("release", *((cut, end) if is_early else (None, None)))
            if is_early:
                driver.reporter.until = end
            if is_early and driver.final:
                driver.cuts.agreed(end, time.monotonic() - began)
        # Only now: if a host was lost on the way, the next generation has to agree on it.
        driver.ending, driver.stopping = True, False

    def _hold(self) -> int:
        """Let nobody begin an iteration -> the first number of iterations that no worker of any host has passed."""
        start = self.driver.cut()
        return max([*self._tell_all("hold"), start.iteration if start else 0])

    def _tell_all(self, method: str, *args: Any) -> list[Any]:
        return ask_all(self.hosts, [args] * self.plan.hosts, method, self.driver.patience.heartbeat)


def merged_usage(found: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """What the parts of a run do, from what they do on each host: rates and messages add up, times are means."""
    merged: dict[str, float] = {}
    for name in dict.fromkeys(name for each in found.values() for name in each):
        values = [each[name] for each in found.values() if name in each]
        if name == "compile_seconds":
            merged[name] = max(values)
        else:
            merged[name] = sum(values) / (1 if name.endswith(("/bytes_per_second", "/depth")) else len(values))
    return merged


def check_versions(found: Mapping[int, Mapping[str, Any]]) -> None:
    """Hosts compute the same only with the same programs."""
    mine = tasks.versions()
    wrong = [
        f"host {host} ({each['machine']}) has {name} {each['versions'].get(name)}, and whoever leads has {version}"
        for host, each in found.items()
        for name, version in mine.items()
        if each["versions"].get(name) != version
    ]
    if wrong:
        raise BadOption(f"The hosts are not alike: {'; '.join(wrong)}. Install the same versions everywhere.")


def check_alike(driver: Driver, found: Mapping[int, Mapping[str, Any]]) -> None:
    """All trace the same loop, and have the devices that the plan wants."""
    unlike = [host for host, each in found.items() if each["fingerprint"] != driver.task.fingerprint]
    if unlike:
        raise BadOption(
            f"Host {', '.join(map(str, unlike))} traced another loop than whoever leads (the fingerprints differ): the "
            "algorithm's or the environment's code is not the same there. Send it along with --working-dir "
            "(motet.Cluster(working_dir=...)), or install the same everywhere."
        )
    counts = {host: dict(each["devices"]) for host, each in found.items()}
    if spanning(driver.plan) and len({tuple(sorted(each.items())) for each in counts.values()}) > 1:
        raise BadPlan([f"a program that spans hosts needs the same devices on each, but there are {counts}"])
    problems = {line: host for host, each in found.items() for line in places.problems(driver.plan, each["devices"])}
    if problems:
        raise BadPlan([f"{line} on host {host}" for line, host in problems.items()])
