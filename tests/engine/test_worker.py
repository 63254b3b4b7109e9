"""Workers are state machines: any driver may answer them, and between two iterations they can be stopped and go on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.engine.assemble import Assembly, Settings, assemble
from motet.engine.rehearse import workers_of
from motet.engine.requests import Put, Request, Take
from motet.engine.serial import drive
from motet.engine.virtual import placeholder
from motet.engine.worker import WorkerState
from motet.plan.plan import Plan
from motet.plan.project import project, wires
from tests.laws.cases import ALGORITHMS, assert_identical, traced
from tests.sharing import sharing


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
