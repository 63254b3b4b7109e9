"""Workers are state machines: any driver may answer them, and between two iterations they can be stopped and go on."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.engine.assemble import Assembly, Settings, assemble
from motet.engine.requests import Compute, Consult, Put, Request, Take
from motet.engine.serial import drive
from motet.engine.worker import Worker, WorkerState
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.plan.project import project, wires
from motet.plan.route import pieces
from motet.plan.schedule import asks_inside, schedule
from tests.engine.virtual import placeholder, simulate
from tests.laws.cases import ALGORITHMS, assert_identical, traced
from tests.sharing import sharing


def workers_of(graph: Graph, plan: Plan) -> tuple[list[Worker], list[Any]]:
    """Every worker of a plan and every channel, made without a device."""
    programs = project(graph, plan)
    workers, channels = [], []
    for name, program in programs.items():
        fragment = plan.fragments[name]
        made = schedule(graph, program, fragment, inside=asks_inside(graph, fragment))
        workers += [Worker(f"{name}[{index}]", name, index, made) for index in range(fragment.replicas)]
        for wire, _ in wires((*program.start, *program.body)):
            vars = tuple(graph.variables[var] for var in wire.vars)
            senders, receivers = fragment.replicas, plan.fragments[wire.target].replicas
            pairs = [(s, r) for s in range(senders) for r in range(receivers)]
            channels += [(wire, s, r) for s, r in pairs if pieces(vars, s, senders, r, receivers)]
    return workers, channels


def test_a_worker_can_be_driven_by_a_list() -> None:
    """What an actor asks in its first iteration, read off without a device, a thread or a number."""
    graph = traced(ALGORITHMS["a2c"], motet.coarse(2, lag=1))
    worker = workers_of(graph, motet.coarse(2, lag=1))[0][0]
    requests, asked = worker.run(3), []
    request: Request | None = next(requests)
    while request is not None:
        asked.append(request)
        try:
            request = requests.send(placeholder(request))
        except StopIteration:
            request = None
    kinds = [type(each).__name__ for each in asked]
    first = ["Take", "Compute", "Done"]  # the first policy, the first state
    # With a lag of 1 the policy from the start serves twice; in the third iteration that of the first is due.
    assert kinds == [*first, *["Compute", "Put", "Done"] * 2, "Take", "Compute", "Put", "Done"]
    late = asked[-4]
    assert isinstance(late, Take) and late.wire.link == "policy" and late.version == (0,)


def costs(acting: float, learning: float) -> Any:
    """Seconds of each call, by fragment."""

    def cost(worker: Worker, request: Request) -> float:
        if not worker.started or not isinstance(request, (Compute, Consult)):
            return 0.0
        return acting if worker.fragment == "actors" else learning

    return cost


@pytest.mark.parametrize(
    ("lag", "iteration"),
    [(0, 5.0), (1, 3.0), (3, 3.0)],  # one after the other; side by side, at the pace of the slower one
)
def test_a_virtual_clock_runs_unchanged_workers(lag: int, iteration: float) -> None:
    plan = motet.coarse(2, lag=lag)
    graph = traced(ALGORITHMS["a2c"], plan)
    workers, channels = workers_of(graph, plan)
    finished = simulate(workers, channels, 12, costs(2.0, 3.0))
    assert all(len(times) == 12 for times in finished.values())
    steady = np.diff(finished["learner[0]"])[6:]
    np.testing.assert_allclose(steady, iteration)


@pytest.mark.parametrize("plan", [motet.fine(2), motet.central(2), motet.pearl(2, prefetch=2), motet.anakin()])
def test_every_plan_comes_to_its_end_on_a_virtual_clock(plan: Plan) -> None:
    graph = traced(ALGORITHMS["dqn-prioritised"], plan)
    if plan.name == "central":
        graph = traced(ALGORITHMS["dqn"], plan)
    workers, channels = workers_of(graph, plan)
    finished = simulate(workers, channels, 5, lambda worker, request: 1.0)
    assert {len(times) for times in finished.values()} == {5}


CUTS = [
    ("ppo", motet.anakin()),
    ("ppo", motet.anakin(2)),
    ("ppo", motet.coarse(2, lag=1)),
    ("ppo", motet.coarse(2, lag=3)),
    ("ppo", motet.fine(2)),
    ("dqn-prioritised", motet.anakin()),
    ("dqn-prioritised", motet.pearl(2, lag=1, prefetch=2)),
    ("dqn", motet.central(2)),
]


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param(*each, id=f"{each[0]}-{number}", marks=sharing(f"cut-{each[0]}"))
        for number, each in enumerate(CUTS)
    ],
)
def test_a_run_goes_on_from_its_state_bit_for_bit(name: str, plan: Plan) -> None:
    """Stopped between two iterations: what the workers hold and what is under way is all there is to a run."""
    graph = traced(ALGORITHMS[name], plan, iterations=7)
    programs: dict[str, Any] = {}

    def new() -> Assembly:
        return assemble(graph, plan, {"cpu": jax.devices()}, Settings(seed=3), programs=programs)

    whole, begun, resumed = new(), new(), new()
    drive(whole, 7)
    drive(begun, 3)
    for old, fresh in zip(begun.performers, resumed.performers, strict=True):
        state = old.worker.state()
        assert state.iteration == 3
        copy = {var: tuple(map(np.array, leaves)) for var, leaves in state.variables.items()}
        put = fresh.home.place.put
        axes = {var: graph.variables[var].axes for var in copy}
        placed = {var: tuple(map(put, leaves, axes[var])) for var, leaves in copy.items()}
        fresh.worker.load(type(state)(state.iteration, placed))
    for old, fresh in zip(begun.channels.values(), resumed.channels.values(), strict=True):
        fresh.queue.extend(old.queue)
    drive(resumed, 7)
    for one, other in zip(whole.performers, resumed.performers, strict=True):
        assert one.worker.iteration == other.worker.iteration == 7
        assert_identical(one.worker.state().variables, other.worker.state().variables)


def test_a_state_that_lacks_something_is_refused() -> None:
    graph = traced(ALGORITHMS["a2c"], motet.anakin())
    (worker,), _ = workers_of(graph, motet.anakin())
    held = {name: () for name in worker.schedule.state if name != "learner"}
    with pytest.raises(ValueError, match="needs learner to go on"):
        worker.load(WorkerState(3, held))


def test_a_put_names_its_wire_and_round() -> None:
    """Requests are data: they can be compared, printed and sent."""
    graph = traced(ALGORITHMS["a2c"], motet.coarse(2))
    wire = next(wire for wire, _ in wires(project(graph, motet.coarse(2))["actors"].body))
    assert Put(wire, (3,)) == Put(wire, (3,)) != Put(wire, (4,))
    assert "rollout" in repr(Put(wire, (3,)))


def test_simulating_takes_no_time() -> None:
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    start = time.perf_counter()
    finished = simulate(*workers_of(graph, plan), 50, costs(1e6, 1e6))
    assert finished["learner[0]"][-1] >= 50e6
    assert time.perf_counter() - start < 20
