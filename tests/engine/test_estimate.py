"""What a plan is expected to do on a machine that is described."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import motet
from motet.engine.clock import Use
from motet.engine.estimate import estimate
from motet.engine.rehearse import workers_of
from motet.engine.requests import Compute, Iterate, Request
from motet.engine.virtual import simulate
from motet.engine.worker import Worker
from motet.flow.graph import Graph, Node
from motet.flow.trace import trace
from motet.flow.work import jaxpr_work
from motet.plan import catalogue
from motet.plan.board import sum_tree_on_fpga
from motet.plan.cost import Book, Fit, Profile, combined, line
from motet.plan.keys import call_key, signature, terms
from motet.plan.machine import Connection, Machine
from motet.plan.plan import Fragment, Plan
from motet.plan.project import Rounds
from motet.plan.spread import alike, spread
from tests.laws.cases import ALGORITHMS, traced


def graph_of(num_envs: int, algorithm: motet.Algorithm | None = None, env: str = "CartPole-v1") -> Graph:
    made = algorithm or motet.PPO(num_envs=num_envs, num_steps=4, update_epochs=2, num_minibatches=2, hidden=(32,))
    return trace(made, motet.make(env), iterations=10)


def small_pod(hosts: int) -> Machine:
    """Two devices on each host, joined by a slow network."""
    pod = catalogue.find("p100-cluster")
    return replace(pod, hosts=hosts, devices=(replace(pod.devices[0], count=2), *pod.devices[1:]))


@pytest.mark.parametrize(
    "plan",
    [
        motet.anakin(8),
        motet.sebulba(actors=4, threads=2, learners=4),
        motet.coarse(8, learners=1, lag=0),
        motet.coarse(4, learners=4, lag=1),
        motet.fine(4, learners=4),
    ],
    ids=lambda plan: plan.name,
)
def test_a_host_stands_for_those_where_the_same_happens(plan: Plan) -> None:
    """Four hosts: all of them simulated, or one of each kind, give the same."""
    graph, machine = graph_of(32), small_pod(4)
    seats = spread(plan, machine)
    assert len(alike(seats, 4)) < 4 and sum(alike(seats, 4).values()) == 4
    few, all_of_them = (estimate(graph, plan, Book(graph, machine), every_host=each) for each in (False, True))
    assert few.steps_per_second == pytest.approx(all_of_them.steps_per_second, rel=1e-3)  # when both have settled
    assert few.parts.keys() == all_of_them.parts.keys()
    assert few.watts == pytest.approx(all_of_them.watts, rel=0.02)


def test_actors_and_learners_of_a_host_stay_together() -> None:
    seats = spread(motet.sebulba(actors=4, threads=2, learners=4), small_pod(4))
    assert [(seat.host, seat.devices) for seat in seats["actors"]] == [(host, (0,)) for host in range(4) for _ in "ab"]
    (learner,) = seats["learner"]
    assert learner.everywhere and learner.devices == (1,)


def test_a_pod_of_2048_devices_takes_seconds() -> None:
    graph, machine = graph_of(2048 * 16), catalogue.find("tpu-v3-pod")
    began = time.perf_counter()
    for plan in (motet.anakin(2048), motet.sebulba(actors=512, threads=2, learners=1536)):
        found = estimate(graph, plan, Book(graph, machine))
        assert found.steps_per_second > 1e5 and found.word == "modelled"
    assert time.perf_counter() - began < 20


def test_more_hosts_are_faster_and_draw_more() -> None:
    def found(hosts: int) -> Any:
        graph = graph_of(hosts * 16)
        return estimate(graph, motet.anakin(hosts * 2), Book(graph, small_pod(hosts)))

    one, four = found(1), found(4)
    assert one.steps_per_second < four.steps_per_second < 4 * one.steps_per_second  # collectives cost something
    assert four.watts > 3 * one.watts


def test_a_slow_network_hurts_who_uses_it() -> None:
    graph, fast = graph_of(32), small_pod(4)
    slow = replace(fast, connections={**fast.connections, "network": Connection(5e-3, 1e6)})
    central, local = motet.coarse(8, learners=1), motet.anakin(1)
    ratio = {
        plan.name: estimate(graph, plan, Book(graph, fast)).steps_per_second
        / estimate(graph, plan, Book(graph, slow)).steps_per_second
        for plan in (central, local)
    }
    assert ratio["coarse"] > 2 and ratio["anakin"] == pytest.approx(1.0)
    assert "learner" in estimate(graph, central, Book(graph, slow)).parts["actors"].waited


def measured(graph: Graph, **seconds: float) -> Profile:
    """A profile in which every call of one node or loop, on a CPU, takes so long with all environments."""
    calls, plans = {}, (motet.anakin(), motet.coarse(2), motet.coarse(1), motet.fine(2))
    for plan in plans:
        for worker in workers_of(graph, plan)[0]:
            for each in (worker.schedule.whole, *_flat(worker.schedule.body)):
                if each is not None:
                    total = sum(seconds.get(word, 0.0) for word in each.label.split(" + "))
                    for whole in (False, True):
                        calls[call_key("cpu", each, 1, whole)] = Fit(
                            ((graph.num_envs / 2, total / 2), (float(graph.num_envs), total))
                        )
    return Profile(calls, send=((1.0, 0.0),), receive=((1.0, 0.0),), stack=((1.0, 0.0),))


def _flat(operations: Any) -> list[Any]:
    found = []
    for each in operations:
        found += _flat(each.body) if isinstance(each, Rounds) else [each] if hasattr(each, "donated") else []
    return found


def test_what_was_measured_decides() -> None:
    """8 environments on 2 cores: acting takes 2 s for all, learning 3 s."""
    graph = graph_of(8)
    machine = replace(catalogue.a100_node(), cores=2, devices=(catalogue.processor("core", 1e12),))
    book = Book(graph, machine, measured(graph, unroll=2.0, targets=1.0, epochs=2.0))
    whole = estimate(graph, motet.anakin(), book)
    assert whole.iteration_seconds == pytest.approx(5.0) and whole.word == "measured" and whole.lag == 0
    assert whole.bottleneck == "all: unroll + targets + epochs (100%)"
    lockstep = estimate(graph, motet.coarse(2, lag=0), book)
    assert lockstep.iteration_seconds == pytest.approx(2.0 / 2 + 3.0, rel=0.01)
    # 5 s of work on 2 cores, of which 3 s must follow each other: two actors of 1 s run at two thirds of their speed.
    overlapped = estimate(graph, motet.coarse(2, lag=1), book)
    assert overlapped.iteration_seconds == pytest.approx(3.5, rel=0.01)
    assert overlapped.used["cores"] == pytest.approx(5 / 7, rel=0.15)
    assert {name.partition(":")[0] for name in overlapped.links} >= {"rollout", "policy"}
    assert overlapped.watts == pytest.approx(300 + 8 * 2 * overlapped.used["cores"])


def test_two_devices_on_one_core_take_turns() -> None:
    graph = graph_of(8)
    machine = replace(catalogue.a100_node(), cores=1, devices=(catalogue.processor("core", 1e12),))
    book = Book(graph, machine, measured(graph, unroll=2.0, targets=1.0, epochs=2.0))
    assert estimate(graph, motet.coarse(2, lag=1), book).iteration_seconds == pytest.approx(5.0, rel=0.02)


def test_what_does_not_fit_into_memory_is_seen() -> None:
    algorithm = motet.DQN(num_envs=8, buffer_size=1_000_000, hidden=(16,))
    graph = graph_of(8, algorithm)
    tiny = replace(small_pod(1), memory=1e6, devices=(replace(small_pod(1).devices[0], memory=1e6, kind="gpu"),
                                                      small_pod(1).devices[1]))  # fmt: skip
    memory = estimate(graph, motet.anakin(), Book(graph, tiny)).memory
    assert not memory.fits and memory.where == "gpu:0 of host 0"
    replay = sum(graph.variables[name].nbytes() for name in (graph.roles.replay,))
    assert memory.bytes > replay > 1e7
    assert estimate(graph, motet.anakin(), Book(graph, small_pod(1))).memory.fits


# The model of a device that is not here.


def test_work_counts_what_xla_counts_and_loops_as_often_as_they_run() -> None:
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return a @ b

    a, b = jnp.ones((32, 64)), jnp.ones((64, 16))
    ours = jaxpr_work(jax.make_jaxpr(product)(a, b).jaxpr)
    theirs: Any = jax.jit(product).lower(a, b).compile().cost_analysis()
    assert ours.flops == theirs["flops"] == 2 * 32 * 64 * 16
    assert ours.bytes == theirs["bytes accessed"]

    def often(a: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (carry @ carry, None), a, None, length=7)[0]

    square = jnp.ones((8, 8))
    assert jaxpr_work(jax.make_jaxpr(often)(square).jaxpr).flops == 7 * 2 * 8**3

    def convolved(image: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv(image, kernel, (1, 1), "VALID")

    image, kernel = jnp.ones((1, 3, 10, 10)), jnp.ones((5, 3, 3, 3))
    assert jaxpr_work(jax.make_jaxpr(convolved)(image, kernel).jaxpr).flops == 2 * 5 * 8 * 8 * 3 * 3 * 3


def test_a_fit_is_exact_where_it_was_measured_and_says_when_it_guesses() -> None:
    fit = Fit(((32.0, 2.0), (64.0, 3.0)))
    assert (fit.at(32).seconds, fit.at(64).seconds) == (2.0, 3.0)
    assert fit.at(48).seconds == pytest.approx(2.5) and fit.at(48).word == "measured"
    assert fit.at(16).seconds == pytest.approx(1.5) and fit.at(16).word == "modelled"
    guess = Fit(((64.0, 3.0),)).at(32)
    assert 1.5 < guess.seconds < 3.0 and guess.word == "modelled"
    assert line(((1.0, 5.0), (2.0, 3.0)))[1] == 0.0  # more never costs less
    assert line(((10.0, 1.0), (20.0, 3.0)))[0] == 0.0  # nor does nothing cost less than nothing


def test_a_signature_is_taken_apart_as_it_was_put_together() -> None:
    graph = graph_of(8)
    call = workers_of(graph, motet.anakin())[0][0].schedule.whole
    assert call is not None
    done = signature(call.body)
    assert done == "unroll*4(act+env)+targets+epochs*2(permute+minibatches*2(select+gradient+apply))"
    assert list(terms(done)) == [
        ("unroll", 4.0, "act+env"),
        ("targets", 1.0, ""),
        ("epochs", 2.0, "permute+minibatches*2(select+gradient+apply)"),
    ]


def test_what_was_measured_corrects_what_was_not() -> None:
    """One call took three times of what the model says: so will others on this kind of device."""
    graph = graph_of(8)
    machine = replace(catalogue.a100_node(), cores=2, devices=(catalogue.processor("core", 1e12),))
    plain = Book(graph, machine)
    seconds = 3 * plain.modelled("cpu", "targets", 1)
    corrected = Book(graph, machine, Profile({"cpu x1 call targets": Fit(((8.0, seconds),))}))
    slow, fast = (estimate(graph, motet.anakin(), book).iteration_seconds for book in (corrected, plain))
    assert slow == pytest.approx(3 * fast)


def test_calls_that_were_timed_stand_for_one_that_does_the_same() -> None:
    """What an unroll takes alone and what all takes together say what the rest takes."""
    graph = graph_of(8)
    machine = replace(catalogue.a100_node(), cores=2, devices=(catalogue.processor("core", 1e12),))
    whole = workers_of(graph, motet.anakin())[0][0].schedule.whole
    acting, learning = (
        next(call for worker in workers_of(graph, motet.coarse(1))[0] for call in _flat(worker.schedule.body)
             if call.label.startswith(word))
        for word in ("unroll", "targets")
    )  # fmt: skip
    assert whole is not None

    def timed(call: Any, alone: bool, seconds: float) -> dict[str, Fit]:
        return {call_key("cpu", call, 1, alone): Fit(((8.0, seconds),))}

    both = Book(graph, machine, Profile({**timed(acting, False, 2.0), **timed(learning, False, 3.0)}))
    assert both.call("cpu", whole, 1, 1, True).seconds == pytest.approx(5.0)
    rest = Book(graph, machine, Profile({**timed(acting, False, 2.0), **timed(whole, True, 5.0)}))
    found = rest.call("cpu", learning, 1, 1, False)
    assert found.seconds == pytest.approx(3.0) and not found.measured
    known = Book(graph, machine, Profile(timed(acting, False, 2.0)))
    assert known.call("cpu", learning, 1, 1, False).seconds != pytest.approx(3.0)  # by the model


def test_processes_whose_cores_others_use_are_as_after_a_rest() -> None:
    """A plan with one worker has no company, and steps in a worker's own thread do not care."""
    graph = graph_of(8, env="gymnasium/CartPole-v1")
    machine = replace(catalogue.a100_node(), cores=16, devices=(catalogue.processor("core", 1e12),))
    steps, rested = ({str(workers): Fit(((8.0, each),)) for workers in (0, 2)} for each in (1.0, 3.0))
    book = Book(graph, machine, Profile(environments=steps, rested=rested))

    def seconds(plan: Plan) -> float:
        return estimate(graph, plan, book).iteration_seconds / 4  # an iteration has four steps

    assert seconds(motet.multi_learner(1, workers=2)) == pytest.approx(1.0, rel=0.01)
    assert seconds(motet.coarse(1, workers=2)) == pytest.approx(3.0, rel=0.01)
    assert seconds(motet.coarse(1)) == pytest.approx(1.0, rel=0.01)


def test_a_profile_is_its_text() -> None:
    profile = Profile({"a": Fit(((1.0, 2.0),), 1.5)}, {"0": Fit(((8.0, 1e-3),))}, send=((1.0, 2.0),), handling=1e-5)
    assert Profile.from_json(profile.to_json()) == profile


def test_a_sum_over_shards_costs_more_with_more_of_them() -> None:
    way = Connection(1e-6, 1e9)
    assert combined(way, 2, 1e6) == pytest.approx(1e-3 + 2e-6)
    assert combined(way, 2, 1e6) < combined(way, 8, 1e6) < combined(way, 1024, 1e6) < 2.1e-3


# PEARL (Meng et al., CF 2024).

GOLDEN = {  # milliseconds: update, insert, sample, learn
    "CPU": (0.002, 0.0013, 0.03, 0.6),
    "GPU1": (0.001, 0.0006, 0.5, 0.2),
    "GPU2": (0.001, 0.0008, 0.4, 0.3),
    "FPGA": (0.0015, 0.00102, 0.1, 0.5),
}


class Mapped:
    """The costs of the golden case, with the replay and the learner on given devices, which take turns."""

    def __init__(self, replay: str, learner: str):
        self.replay, self.learner = replay, learner

    def request(self, worker: Worker, request: Request) -> list[Use]:
        if not isinstance(request, (Compute, Iterate)) or worker.fragment == "actors":
            return []
        if worker.fragment == "learner":
            return [Use(GOLDEN[self.learner][3], self.learner)]
        update, insert, sample, _ = GOLDEN[self.replay]
        costs = {"remember": insert, "reprioritize": update, "sample": sample}
        return [Use(costs[kind], self.replay) for kind in kinds(request.call.body)]

    def message(self, channel: Any) -> list[Use]:
        return []


def kinds(statements: Any) -> list[str]:
    found = []
    for each in statements:
        if isinstance(each, Rounds):
            found += kinds(each.body) * each.count
        elif isinstance(each, Node) and each.kind in ("remember", "reprioritize", "sample"):
            found.append(each.kind)
    return found


def test_pearls_golden_case() -> None:
    """Every mapping of replay and learner on the virtual clock: the replay on the CPU, the learner on the first GPU, an
    iteration in 0.23 ms."""
    plan = motet.pearl(1, lag=1)
    algorithm = replace(ALGORITHMS["dqn-prioritised"], gradient_steps=1)  # type: ignore[type-var]
    graph = traced(algorithm, plan)
    found = {}
    for replay in GOLDEN:
        for learner in GOLDEN:
            ends = simulate(*workers_of(graph, plan), 30, Mapped(replay, learner)).finished("learner")
            found[replay, learner] = (ends[-1] - ends[9]) / 20
    assert min(found, key=lambda pair: found[pair]) == ("CPU", "GPU1")
    assert round(found["CPU", "GPU1"], 2) == 0.23


def test_pearls_equations_for_a_tree_on_an_fpga() -> None:
    """t_sample = 2K(B + D)/f + 24B/BW, t_update = 2D/f + 24B/BW."""
    one = {"leaves": 2**20, "fan_out": 16, "clock": 200e6, "bandwidth": 19.2e9}
    assert sum_tree_on_fpga(128, draws=True, **one) == pytest.approx(2 * 16 * (128 + 5) / 200e6 + 24 * 128 / 19.2e9)
    assert sum_tree_on_fpga(128, draws=False, **one) == pytest.approx(2 * 5 / 200e6 + 24 * 128 / 19.2e9)
    graph = traced(ALGORITHMS["dqn-prioritised"], motet.pearl(lag=0, replay="opencl:0"))
    board, host = (
        estimate(graph, motet.pearl(lag=0, replay=place), Book(graph, catalogue.find("pearl-workstation")))
        for place in ("opencl:0", "host")
    )
    assert board.parts["replay"].busy["sample"] < host.parts["replay"].busy["sample"]


def test_a_plan_of_ones_own_is_estimated_too() -> None:
    plan = Plan({"acting": Fragment(("act", "env"), replicas=2), "rest": Fragment(("*",))})
    graph = graph_of(8)
    assert estimate(graph, plan, Book(graph, small_pod(1))).steps_per_second > 0
