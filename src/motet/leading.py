"""A session over hosts: what is sent to them, what becomes of their cuts, and what is told of losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from motet import bounds
from motet.engine.cut import RunCut
from motet.engine.hosts.cluster import Cluster
from motet.engine.run import Mode, Outcome, Reporter
from motet.errors import BadOption
from motet.flow.algorithm import Algorithm
from motet.interruption import stopping
from motet.onlooking import Onlooking
from motet.plan.hosts import members, over
from motet.plan.plan import Plan
from motet.runs import checkpoints
from motet.runs.metrics import Meter

if TYPE_CHECKING:
    from motet.engine.hosts.driver import Recovery
    from motet.engine.hosts.reach import Launcher
    from motet.saving import Saving
    from motet.session import Session


@dataclass
class Leader:
    """Leads the hosts of one session."""

    cluster: Cluster
    connect: Callable[[], Launcher]
    algorithm: Algorithm
    """As it was given, before it is bound to its task: each host binds its own."""
    recoveries: list[Recovery] = field(default_factory=list)

    @property
    def address(self) -> str | None:
        return self.cluster.address

    @cached_property
    def launcher(self) -> Launcher:
        return self.connect()

    def __call__(self, session: Session, reporter: Reporter, meter: Meter) -> tuple[Outcome, int | None]:
        saving = None
        if session.writer is not None and session.interval.keep:
            saving = session.saving(reporter, meter, session.writer.path)
        driver = self._driver(session, reporter, meter, saving)
        if session.start is not None:
            session.start.tell(meter)
            checkpoints.forget_after(session.start.run, session.start.iteration)
        driver.onlooker = onlooking = Onlooking(session.watched(reporter, meter), driver.begun)
        try:
            with stopping(driver.stop if saving else lambda: False, session.following.status) as caught:
                outcome = driver.run(session.graph.iterations)
            onlooking.finish()
            return outcome, caught.signal
        finally:
            session.warnings += [_told(each) for each in self.recoveries]
            if saving is not None:
                saving.saver.close()
                session.warnings += saving.saver.warnings

    def _driver(self, session: Session, reporter: Reporter, meter: Meter, saving: Saving | None) -> Any:
        from motet.engine.hosts.cuts import Cuts
        from motet.engine.hosts.driver import Driver, Patience
        from motet.engine.hosts.task import HostedRun

        start, until = session.start, session.graph.iterations

        def on_cut(cut: RunCut) -> None:
            if saving is not None and (saving.is_due(cut.iteration) or cut.iteration in (reporter.until, until)):
                saving.save(cut)

        def on_recovery(recovery: Recovery) -> None:
            self.recoveries.append(recovery)
            session.following.usage(self._lost())

        workers = sum(members(session.plan, name) for name in session.plan.fragments)
        return Driver(
            HostedRun.of(self.algorithm, session.env, session.plan, session.graph, session.settings, bounds.take),
            session.plan,
            self.launcher,
            reporter,
            Cuts(workers, meter.state, on_cut, self.cluster.cut_seconds),
            Patience(self.cluster.heartbeat, recoveries=self.cluster.recoveries),
            start.cut if start else None,
            start.exact if start else True,
            final=saving is not None,
            on_recovery=on_recovery,
            on_usage=lambda usage: session.following.usage({**usage, **self._lost()}),
            wants_cut=saving.is_due if saving is not None else lambda iteration: False,
        )

    def _lost(self) -> Mapping[str, float]:
        """What losses have cost until now."""
        seconds = sum(each.seconds for each in self.recoveries)
        return {"recoveries": len(self.recoveries), "recovery_seconds": seconds} if self.recoveries else {}


def _told(recovery: Recovery) -> str:
    where = f"iteration {recovery.iteration:,}" if recovery.iteration else "the beginning"
    return f"{recovery.cause}; the run went on from {where}, {recovery.seconds:.1f} s later"


def check(mode: Mode) -> None:
    """Refuse what a run over hosts cannot do."""
    if mode == "serial":
        raise BadOption("mode='serial' (--serial) runs everything in one thread, and a cluster has several processes.")


def spread(plan: Plan, cluster: Cluster | None) -> Plan:
    """The plan over the hosts of the cluster; without one it must be for one host."""
    if cluster is None and plan.hosts != 1:
        raise BadOption(
            f"The plan is for {plan.hosts} hosts: say where they are, with cluster=motet.Cluster(hosts={plan.hosts}) "
            f"or --hosts {plan.hosts}."
        )
    return over(plan, cluster.hosts if cluster else None)


@contextmanager
def leading(cluster: Cluster | None, algorithm: Algorithm) -> Iterator[Leader | None]:
    """What leads the hosts of a run; None: there are none, and it is run here. In a cluster that is there their
    processes begin to start at once, since that takes as long as to trace the loop. One of this machine is started only
    when all that was given is known to be good."""
    if cluster is None:
        yield None
        return
    with ExitStack() as stack:
        leader = Leader(cluster, lambda: stack.enter_context(cluster.connected()), algorithm)
        if cluster.address is not None:
            leader.launcher.hasten()
        yield leader
