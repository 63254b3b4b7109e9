"""From a checked plan to everything that will run: schedules, workers, channels, places. Nothing runs yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from motet.engine.bridge import Bridge
from motet.engine.compiled import Home
from motet.engine.environments import Environments
from motet.engine.ledger import Ledger
from motet.engine.lowering import Lowering
from motet.engine.perform import Performer
from motet.engine.place import Place, assign
from motet.engine.ports import Channel, Channels, Make, channels, ports_of
from motet.engine.programs import ProgramCache
from motet.engine.replay_fits import check_replay
from motet.engine.replays import OutsideReplay
from motet.engine.requests import Done
from motet.engine.supervise import Supervisor
from motet.engine.worker import Worker
from motet.flow.graph import Graph
from motet.flow.host import Opening
from motet.plan.hosts import members_on, together
from motet.plan.liveness import Liveness
from motet.plan.plan import Plan
from motet.plan.project import Program, project, wires
from motet.plan.protocol import Wire
from motet.plan.schedule import Schedule, asks_inside, schedule

Programs = dict[str, ProgramCache]
"""What each fragment has compiled."""


@dataclass(frozen=True)
class Limits:
    """How long a run waits, and how much it forgives."""

    timeout: float = 600.0
    """Seconds that one worker may wait for another."""
    step_timeout: float = 60.0
    """Seconds that a step of host environments, or the start of a worker process, may take."""
    restarts: int = 3
    """How often each replica's dead worker processes are started anew."""


@dataclass(frozen=True)
class Settings:
    """What a run needs besides a graph and a plan."""

    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    compiled: bool = True
    """False: every node is run as it stands, for a debugger."""
    latency: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the messages of a link take on their way, to see how a plan would do with slow links."""
    resumes: int = 0
    """How often the run was taken up again."""


@dataclass(frozen=True)
class Assembly:
    """A run before it runs."""

    graph: Graph
    plan: Plan
    settings: Settings
    schedules: Mapping[str, Schedule]
    performers: tuple[Performer, ...]
    channels: Channels
    recurring: frozenset[Wire]
    """The wires that are used in every iteration."""
    supervisor: Supervisor

    @property
    def whole(self) -> bool:
        """Whether the run is one call again and again."""
        return self.performers[0].worker.whole

    def close(self) -> None:
        for performer in self.performers:
            performer.close()


def assemble(
    graph: Graph,
    plan: Plan,
    devices: Mapping[str, Sequence[Any]],
    settings: Settings,
    *,
    on_done: Callable[[Performer, Done], int | None] = lambda performer, done: None,
    on_status: Callable[[str, str], None] = lambda who, what: None,
    programs: Programs | None = None,
    host: int | None = None,
    make: Make = lambda number, wire, sender, receiver, fields: Channel(**fields),
) -> Assembly:
    """A run of a checked plan. `devices` are those of each platform, the usual one first.

    With the `programs` of another run of the same graph and fragments, nothing is compiled again. Of a plan over
    several hosts, what lies on `host` alone, with the channels that `make` makes; None: all, as if they were one.
    """
    plan = together(plan) if host is None else plan
    projected = project(graph, plan)
    places = assign(plan, devices)
    check_replay(graph, plan, places)
    supervisor = Supervisor(settings.limits.timeout)
    all_wires = [wire for each in projected.values() for wire, _ in wires((*each.start, *each.body))]
    made = channels(graph, plan, all_wires, settings.latency, make)
    supervisor.channels = list(made.values())
    crews = [
        _Crew(graph, plan, settings, name, places[name], projected[name], supervisor, programs)
        for name in plan.fragments
    ]
    alone = sum(each.fragment.replicas for each in crews) == 1
    performers = tuple(
        crew.performer(index, alone, made, on_done, on_status)
        for crew in crews
        for index in (range(len(crew.places)) if host is None else members_on(plan, crew.name, host))
    )
    recurring = frozenset(wire for each in projected.values() for wire, _ in wires(each.body))
    schedules = {crew.name: crew.schedule for crew in crews}
    return Assembly(graph, plan, settings, schedules, performers, made, recurring, supervisor)


class _Crew:
    """What the members of one fragment share."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        settings: Settings,
        name: str,
        places: list[Place],
        program: Program,
        supervisor: Supervisor,
        programs: Programs | None,
    ):
        self.graph, self.plan, self.settings, self.name, self.places = graph, plan, settings, name, places
        self.fragment, self.supervisor = plan.fragments[name], supervisor
        inside = asks_inside(graph, self.fragment, places[0].devices[0].platform)
        self.schedule = schedule(graph, program, self.fragment, inside=inside, compiled=settings.compiled)
        self.bridge = Bridge(lambda: supervisor.stopped)
        live = Liveness(graph, (*program.start, *program.body))
        self.lowering = Lowering(graph, self.fragment.cut, live, self.bridge)
        cache = ProgramCache(len(set(places)))
        self.programs = cache if programs is None else programs.setdefault(name, cache)

    def performer(
        self,
        index: int,
        alone: bool,
        made: Channels,
        on_done: Callable[[Performer, Done], int | None],
        on_status: Callable[[str, str], None],
    ) -> Performer:
        place, settings, graph = self.places[index], self.settings, self.graph
        name = self.name if len(self.places) == 1 else f"{self.name}[{index}]"

        def announce(what: str) -> None:
            self.supervisor.announce(name, what)
            on_status(name, what)

        ledger = Ledger(name)
        environments = Environments(graph, place, self._opening(index), ledger.recorder, self.fragment.first_ready)
        self.bridge.environments[index] = environments
        worker = Worker(name, self.name, index, self.schedule, alone and self.schedule.whole is not None)
        return Performer(
            worker,
            Home(self.lowering, place, index, len(self.places), self.programs, announce),
            self._root(place),
            ports_of(graph, place, self.name, index, made),
            environments,
            OutsideReplay(graph, place.store),
            ledger,
            on_done,
            settings.compiled,
        )

    def _root(self, place: Place) -> jax.Array:
        """The run's key, where programs read it."""
        root = jax.random.key(self.settings.seed)
        if not self.settings.compiled:
            return root
        return place.enter(root, None) if place.everywhere else place.put(root)

    def _opening(self, index: int) -> Opening:
        share, limits = self.graph.num_envs // len(self.places), self.settings.limits
        first, workers = index * share, self.fragment.workers
        seed, resumes = self.settings.seed, self.settings.resumes
        return Opening(first, share, seed, workers, limits.step_timeout, limits.restarts, resumes)
