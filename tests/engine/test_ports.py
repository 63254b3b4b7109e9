"""What crosses from worker to worker: the newest value never gives way to an older one, and devices get their share."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

import motet
from motet.engine import join as joining
from motet.engine import run as running
from motet.engine.assemble import Settings, assemble
from motet.engine.place import Place
from motet.engine.ports import Channel, Message, Ports
from motet.flow.graph import Graph, Loop, Var
from motet.plan.protocol import Wire
from motet.plan.route import Piece
from tests.laws.cases import ALGORITHMS, run, traced

POLICY = Var("policy", jax.tree.structure(0), (jax.ShapeDtypeStruct((), np.float32),), (None,))
GRAPH = Graph("none", "none", 1, 1, 1, 0, None, {"policy": POLICY}, {}, Loop("run", 1, ()), (), ())


def latest(loop: str) -> tuple[Wire, Channel]:
    wire = Wire("policy", "server", "workers", ("policy",), loop, 0, True, "latest")
    return wire, Channel(wire.name, "server", "workers", (Piece("policy", 0, None),), 1, latest=True)


def sent(channel: Channel, version: tuple[int, ...], order: int) -> None:
    channel.put(Message(version, (np.float32(order),), order), counted=True)


@pytest.mark.parametrize("looked_at_first", ["repeat", "iteration"])
def test_the_latest_value_never_goes_back_in_time(looked_at_first: str) -> None:
    """Wires in the loop and around it bring one variable; what is left over in one may be older than what the other
    has brought, whichever of them is looked at first."""
    (inner, inner_channel), (outer, outer_channel) = latest("repeat"), latest("iteration")
    incoming = {inner: [inner_channel], outer: [outer_channel]}
    if looked_at_first == "iteration":
        incoming = {outer: [outer_channel], inner: [inner_channel]}
    ports = Ports(GRAPH, Place((jax.devices()[0],)), {}, incoming)

    assert ports.newest(outer, (0,), counted=True) == {}
    sent(inner_channel, (0, 0), 1)
    sent(outer_channel, (0,), 2)
    values = ports.newest(outer, (1,), counted=True)
    assert float(values["policy"][0]) == 2
    assert ports.newest(inner, (1, 1), counted=True) == {}  # (0, 0) is gone, and does not come after (0,)
    sent(inner_channel, (1, 0), 3)
    assert float(ports.newest(inner, (1, 1), counted=True)["policy"][0]) == 3
    assert sum(sum(ages.values()) for ages in ports.ages.values()) == 2


def test_an_older_message_found_later_does_not_replace_what_is_held() -> None:
    """A reader looks into one channel after another while their sender goes on: it may find the first one empty, the
    second one filled, and later in the first what was sent before that."""
    (inner, inner_channel), (outer, outer_channel) = latest("repeat"), latest("iteration")
    ports = Ports(GRAPH, Place((jax.devices()[0],)), {}, {inner: [inner_channel], outer: [outer_channel]})
    looked = inner_channel.has_message

    def goes_on() -> bool:
        before = looked()
        inner_channel.has_message = looked
        sent(inner_channel, (0, 0), 1)
        sent(outer_channel, (0,), 2)
        return before

    inner_channel.has_message = goes_on
    assert float(ports.newest(outer, (1,), counted=True)["policy"][0]) == 2
    assert inner_channel.has_message()
    assert ports.newest(inner, (1, 1), counted=True) == {}


def test_a_channel_for_the_latest_value_keeps_nothing_older() -> None:
    """Its sender never waits: whoever reads seldom must not work through all that it has missed."""
    _, channel = latest("iteration")
    for order in (1, 2, 3):
        assert channel.has_room()
        sent(channel, (order,), order)
    assert channel.take().order == 3 and not channel.has_message() and channel.messages == 3


def test_each_device_gets_the_rows_that_it_will_hold(monkeypatch: Any) -> None:
    """Two senders, a receiver over four devices: no part is copied to devices that do not want it."""
    moved: list[int] = []
    put = Place.put

    def counted(place: Place, leaf: Any, axis: int | None = None) -> jax.Array:
        if not isinstance(leaf, jax.Array) or leaf.sharding != place.sharding(axis):  # else it is there already
            moved.append(leaf.nbytes * (len(place.devices) if axis is None else 1))
        return put(place, leaf, axis)

    monkeypatch.setattr(Place, "put", counted)
    parts = [jax.device_put(np.arange(12.0).reshape(3, 4) + 100 * n, jax.devices()[n]) for n in range(2)]
    aval = jax.ShapeDtypeStruct((3, 8), parts[0].dtype)
    var = Var("rollout", jax.tree.structure(0), (aval,), (1,))
    place = Place(tuple(jax.devices()[:4]))
    (whole,) = joining.join([var], place, [(Piece("rollout", 0, 1, 0, 4), part) for part in parts])["rollout"]
    np.testing.assert_array_equal(whole, np.concatenate(parts, 1))
    assert whole.sharding == place.sharding(1)
    assert sum(moved) == whole.nbytes * 3 // 4  # the first device has its rows


def test_nothing_is_kept_of_iterations_that_are_over() -> None:
    """A server that reports nothing must not leave an entry for each iteration."""
    from motet.engine.run import Reporter, finish, prepare
    from tests.laws.cases import Silent

    plan = motet.central(2)
    graph = traced(ALGORITHMS["dqn"], plan)
    reporter = Reporter(graph, plan, Silent())
    assembly = prepare(graph, plan, {"cpu": jax.devices()}, reporter, Settings())
    finish(assembly, reporter, 3)
    assert reporter.collector is not None
    assert not reporter.collector.pending


def test_the_ages_of_all_wires_of_a_link_are_counted() -> None:
    """`targets` and `gradient` read the policy elsewhere than `act` does: one link, several wires."""
    fragments = {
        "actors": motet.Fragment(("act", "env"), replicas=2),
        "targets": motet.Fragment(("targets",)),
        "learner": motet.Fragment(("*",)),
    }
    plan = motet.Plan(fragments, {"policy": motet.Link(1)})
    graph = traced(ALGORITHMS["ppo"], plan, iterations=6)
    outcome, _ = run(graph, plan, iterations=6)
    lags = {(use.target): dict(use.lags) for use in outcome.links if use.link == "policy"}
    assert lags == {"actors": {1: 8}, "targets": {1: 4}}


def test_several_wires_between_the_same_two_are_counted_together() -> None:
    """Under `latest`, a worker has its policy from the start of an iteration and from each update of the one before."""
    plan = motet.central(2, lag="latest")
    graph = traced(ALGORITHMS["dqn"], plan, iterations=6)
    assembly = assemble(graph, plan, {"cpu": jax.devices()}, Settings())
    policy = [wire for wire in assembly.recurring if wire.link == "policy"]
    assert len({(wire.source, wire.target) for wire in policy}) < len(policy)
    performer = next(each for each in assembly.performers if each.worker.fragment == policy[0].target)
    for number, wire in enumerate(policy):
        performer.ports.ages[wire] = Counter({number: 1})
    (use,) = (use for use in running._links(assembly) if use.link == "policy")
    assert dict(use.lags) == dict.fromkeys(range(len(policy)), 1)


def test_two_threads_may_bypass_the_cache_at_once() -> None:
    from motet.engine import cache

    name = "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.values[name]
    entered, left = threading.Event(), threading.Event()
    seen = []

    def second() -> None:
        """Comes in after the first, and leaves after it."""
        with cache.bypassed():
            entered.set()
            assert left.wait(10)
            seen.append(jax.config.values[name])

    thread = threading.Thread(target=second)
    with cache.bypassed():
        thread.start()
        assert entered.wait(10)
    left.set()
    thread.join()
    assert seen == [float("inf")]
    assert jax.config.values[name] == before


def test_an_assembly_runs_nothing() -> None:
    plan = motet.coarse(2)
    graph = traced(ALGORITHMS["a2c"], plan)
    assembly = assemble(graph, plan, {"cpu": jax.devices()}, Settings())
    assert [each.worker.name for each in assembly.performers] == ["actors[0]", "actors[1]", "learner"]
    assert not any(each.worker.variables or each.worker.started for each in assembly.performers)
