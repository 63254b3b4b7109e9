"""The driver of hosts and the hosts themselves, in one process: no Ray, but real sockets, workers and cuts."""

from __future__ import annotations

import functools
import random
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import cloudpickle
import jax.numpy as jnp
import numpy as np
import pytest

import motet
from motet.engine.assemble import Limits, Settings
from motet.engine.cut import RunCut, WorkerShare
from motet.engine.cutter import Watched
from motet.engine.hosts import crossing, reach
from motet.engine.hosts import post as post_module
from motet.engine.hosts.cuts import Cuts
from motet.engine.hosts.driver import Patience, TooManyLosses
from motet.engine.hosts.failure import Failure, HostFailed
from motet.engine.hosts.generation import Generation, check_versions, merged_usage
from motet.engine.hosts.host import Host
from motet.engine.hosts.post import Post
from motet.engine.hosts.task import HostedRun, versions
from motet.plan.hosts import over
from motet.plan.plan import Plan
from motet.plan.project import project
from motet.plan.traffic import traffic
from tests.engine.led import ROUNDS, Led
from tests.engine.local_hosts import LocalHosts, LocalLauncher
from tests.laws.cases import ALGORITHMS, assert_identical, learner, run, traced

A2C = ALGORITHMS["a2c"]
COARSE = over(motet.coarse(2), 2)
LAG = over(motet.coarse(2, lag=1), 2)


def local(
    plan: Plan, algorithm: Any = A2C, env: str = "CartPole-v1", rounds: int = ROUNDS
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The same plan in one process."""
    graph = traced(algorithm, plan, motet.make(env), rounds)
    outcome, watcher = run(graph, plan, iterations=rounds)
    return learner(graph, outcome), watcher.seen


@functools.cache
def undisturbed() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What a long run comes to if nothing happens."""
    return local(LAG, ALGORITHMS["impala"], rounds=LONG)


@pytest.mark.parametrize(
    ("name", "plan"),
    [("a2c", COARSE), ("impala", LAG), ("dqn-prioritised", over(motet.pearl(2, prefetch=1), 2))],
)
def test_hosts_compute_what_threads_do(name: str, plan: Plan) -> None:
    led = Led(ALGORITHMS[name], plan, LocalLauncher(2))
    ours = led.run()
    whole, rows = local(plan, ALGORITHMS[name])
    assert_identical(ours, whole)
    assert_identical(led.seen, rows)
    assert led.outcome is not None
    table = traffic(led.graph, plan, project(led.graph, plan), ROUNDS)
    assert _counts(led.outcome.links) == _counts(table)
    assert any("on host 1: compiling" in text for text in led.said)


def test_environments_of_the_host_lie_on_the_hosts_of_their_actors() -> None:
    env = "gymnasium/CartPole-v1"
    led = Led(A2C, COARSE, LocalLauncher(2), env=motet.make(env))
    assert_identical(led.run(), local(COARSE, env=env)[0])


def _counts(links: Iterable[Any]) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    return {(each.link, each.source, each.target): (each.messages, each.bytes, each.crossing) for each in links}


def slowly(seconds: float) -> Callable[[int, LocalHosts], None]:
    """Workers that take their time between two iterations, so that a test can do something meanwhile."""

    def launched(generation: int, hosts: LocalHosts) -> None:
        for host in hosts.hosts:
            prepare = host.prepare

            def prepared(*args: Any, host: Host = host, prepare: Any = prepare) -> Any:
                told = prepare(*args)
                assert host.reporter is not None
                host.reporter.delay = lambda name: time.sleep(seconds)
                return told

            host.prepare = prepared  # type: ignore[method-assign]

    return launched


LONG = 100
"""Iterations of a run in which something is to happen before its end, however busy the machine is."""


class Killing(LocalLauncher):
    """Kills a host of each generation when the run has come to an iteration, and to a cut to go on from if one is
    `wanted`. Until then workers take their time."""

    def __init__(self, count: int, at: list[tuple[int, int]], wanted: bool = True):
        super().__init__(count, self.launched)
        self.at, self.wanted, self.generations = list(at), wanted, 0

    def launched(self, generation: int, hosts: LocalHosts) -> None:
        self.generations = generation
        if self.at:
            slowly(0.05)(generation, hosts)
            host, iteration = self.at.pop(0)
            threading.Thread(target=self._kill, args=(hosts, host, iteration), daemon=True).start()

    def _kill(self, hosts: LocalHosts, host: int, iteration: int) -> None:
        while self.driver.told < iteration or (self.wanted and self.driver.cut() is None):
            time.sleep(0.005)
        hosts.kill(host)

    driver: Any = None


def disturbed(at: list[tuple[int, int]], cuts: bool = True) -> tuple[Led, list[np.ndarray], Killing]:
    launcher = Killing(2, at, cuts)
    led = Led(ALGORITHMS["impala"], LAG, launcher, every=0.02 if cuts else 1e9, iterations=LONG)
    launcher.driver = led.driver
    return led, led.run(), launcher


def test_a_lost_host_changes_nothing() -> None:
    """Law 15, with hosts that are no processes: parameters, metrics and traffic are those of the run without a loss."""
    led, ours, launcher = disturbed([(1, 3), (0, 5)])
    whole, rows = undisturbed()
    assert launcher.generations == 3
    for host, recovery in zip((1, 0), led.driver.recoveries, strict=True):
        assert re.fullmatch(rf"host {host} \(.*, process \d+\) was killed by a test", recovery.cause)
    assert led.driver.recoveries[-1].iteration > 0 and led.cuts
    assert_identical(ours, whole)
    assert_identical(led.seen, rows)
    assert led.outcome is not None
    table = traffic(led.graph, LAG, project(led.graph, LAG), LONG)
    assert sum(use.bytes for use in led.outcome.links) == sum(row.bytes for row in table)


def test_without_a_restore_the_run_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: hosts that begin anew, but are told that they are in the middle, go another way."""

    def forgetful(self: Generation, host: int) -> Any:
        told = original(self, host)
        for name, array in told[1].items() if told else ():
            if name.startswith("learner/variable/learner/"):
                told[1][name] = np.zeros_like(array)
        return told

    original = Generation._start
    monkeypatch.setattr(Generation, "_start", forgetful)
    led, ours, _ = disturbed([(1, 3)])
    assert led.driver.recoveries and led.driver.recoveries[0].iteration > 0
    with pytest.raises(AssertionError):
        assert_identical(ours, undisturbed()[0])


def test_a_process_that_is_stopped_while_it_traces_is_replaced_as_soon() -> None:
    """It is given long for tracing, but not for an answer."""
    over_ = threading.Event()

    def launched(generation: int, hosts: LocalHosts) -> None:
        if generation == 1:
            for method in ("prepare", "doing"):
                setattr(hosts.hosts[1], method, lambda *args: over_.wait(30))
            hosts.hosts[1].close = over_.set  # type: ignore[method-assign]

    led = Led(A2C, COARSE, LocalLauncher(2, launched), patience=Patience(heartbeat=2.0))
    ours = led.run()
    assert [each.cause.partition(") ")[2] for each in led.driver.recoveries] == ["has not answered for 2 s"]
    assert_identical(ours, local(COARSE)[0])


def test_a_loss_before_the_first_cut_begins_anew() -> None:
    led, ours, _ = disturbed([(0, 1)], cuts=False)
    assert led.driver.recoveries[0].iteration == 0
    assert_identical(ours, undisturbed()[0])
    assert len(led.seen) == LONG


def test_too_many_losses_in_a_row_end_the_run_with_their_causes() -> None:
    said = r"lost 4 times in a row.*host 1 .* was killed by a test.*motet resume"
    with pytest.raises(TooManyLosses, match=said) as caught:
        disturbed([(1, 0)] * 9, cuts=False)
    assert len(caught.value.recoveries) == 3 and all(each.iteration == 0 for each in caught.value.recoveries)


class Stopping(Killing):
    """Kills a host of the first generation, and stops some of the second while they start."""

    def __init__(self, stopped: tuple[int, ...]):
        super().__init__(2, [(1, 3)])
        self.stopped = stopped

    def launched(self, generation: int, hosts: LocalHosts) -> None:
        super().launched(generation, hosts)
        for host in self.stopped if generation == 2 else ():
            hosts.hosts[host].describe = lambda: time.sleep(8)  # type: ignore[method-assign]


@pytest.mark.parametrize("stopped", [(1,), (0, 1)])
def test_hosts_that_are_stopped_while_they_start_are_replaced_soon(
    stopped: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no pulse yet: one is known by the other, both by how long the generation before took."""
    monkeypatch.setattr(reach, "AT_LEAST", 2.0)
    launcher = Stopping(stopped)
    led = Led(ALGORITHMS["impala"], LAG, launcher, every=0.02, iterations=LONG)
    launcher.driver = led.driver
    assert_identical(led.run(), undisturbed()[0])
    killed, late = led.driver.recoveries
    assert "was killed by a test" in killed.cause
    said = re.fullmatch(rf"host {stopped[0]} has not answered for ([\d.]+) s \(asked to describe\)", late.cause)
    assert said and float(said[1]) < led.driver.patience.start / 10


def test_a_run_is_stopped_at_a_cut_and_goes_on_from_there() -> None:
    led = Led(ALGORITHMS["impala"], LAG, LocalLauncher(2, slowly(0.1)), final=True, iterations=LONG)
    thread = threading.Thread(target=led.run)
    thread.start()
    while led.driver.told < 2:
        time.sleep(0.005)
    assert led.driver.stop()
    thread.join(60)
    assert led.outcome is not None and 2 <= led.outcome.iterations < LONG
    assert [cut.iteration for cut in led.cuts] == [led.outcome.iterations]
    on = Led(ALGORITHMS["impala"], LAG, LocalLauncher(2), start=led.cuts[-1], iterations=LONG)
    on.meter.load(led.cuts[-1].iteration, led.cuts[-1].watched, [])
    whole, rows = undisturbed()
    assert_identical(on.run(), whole)
    assert_identical([*led.seen, *on.seen], rows)


def test_an_error_comes_with_its_own_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Host, *args: Any) -> None:
        raise ZeroDivisionError("of my own")

    monkeypatch.setattr(Host, "add", fail)
    with pytest.raises(ZeroDivisionError, match="of my own") as caught:
        Led(A2C, COARSE, LocalLauncher(2)).run()
    notes = "\n".join(caught.value.__notes__)
    assert "raised in learner on" in notes or "raised in actors" in notes
    assert "raised on host" in notes and "test_driver.py" in notes and "in fail" in notes


class Unsendable(Exception):
    def __init__(self, one: int, two: int):
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()


def test_errors_are_themselves_in_another_process_if_that_can_be() -> None:
    sent = Failure.of(2, motet.Diverged("numbers", 7)).error()
    assert isinstance(sent, motet.Diverged) and str(sent) == "numbers" and sent.iteration == 7
    sent = Failure.of(2, motet.BadPlan(["one", "two"])).error()
    assert isinstance(sent, motet.BadPlan) and sent.violations == ("one", "two")
    sent = Failure.of(2, Unsendable(1, 2)).error()
    assert isinstance(sent, HostFailed) and "Unsendable: 1 and 2" in str(sent)


def test_whoever_waits_in_vain_is_told_who_does_what_on_which_host() -> None:
    def launched(generation: int, hosts: LocalHosts) -> None:
        slowly(0.0)(generation, hosts)
        prepare = hosts.hosts[1].prepare

        def prepared(*args: Any) -> Any:
            told = prepare(*args)
            assert hosts.hosts[1].reporter is not None
            hosts.hosts[1].reporter.delay = lambda name: time.sleep(4)
            return told

        hosts.hosts[1].prepare = prepared  # type: ignore[method-assign]

    settings = Settings(seed=1, limits=Limits(timeout=1.5))
    led = Led(A2C, COARSE, LocalLauncher(2, launched), settings=settings)
    with pytest.raises(motet.Stalled, match=r"On host \d, .* has waited 1.5 s for .* Meanwhile on host \d, \w+.* is "):
        led.run()


def test_a_network_that_drops_messages_costs_time_and_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, deliver = random.Random(1), Post.deliver

    def drop(self: Post, first: bytes, frames: Any) -> None:
        if chance.random() < 0.7:
            deliver(self, first, frames)

    monkeypatch.setattr(Post, "deliver", drop)
    monkeypatch.setattr(crossing, "AGAIN", 0.05)
    monkeypatch.setattr(post_module, "TICK", 0.02)
    led = Led(ALGORITHMS["impala"], LAG, LocalLauncher(2))
    assert_identical(led.run(), local(LAG, ALGORITHMS["impala"])[0])
    assert led.driver.generation == 1


def test_a_network_that_drops_everything_is_said_to_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Post, "deliver", lambda self, first, frames: None)
    settings = Settings(seed=1, limits=Limits(timeout=1.5))
    with pytest.raises(motet.Stalled, match=r"On host \d, .* has waited 1.5 s for .* Meanwhile on host \d, "):
        Led(A2C, COARSE, LocalLauncher(2), settings=settings).run()


def too_large_after_two(updates: Any) -> Any:
    return jnp.where(updates < 2, 1e-3, jnp.inf)


def test_numbers_that_are_no_longer_finite_end_the_run_with_the_last_good_state() -> None:
    with pytest.raises(motet.Diverged) as caught:
        Led(replace(A2C, learning_rate=too_large_after_two), COARSE, LocalLauncher(2)).run()
    iteration, leaves = caught.value.result
    assert 1 <= iteration <= caught.value.iteration
    assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_what_hosts_tell_of_their_parts_is_put_together() -> None:
    one = {"actors/computing": 0.2, "rollout/bytes_per_second": 5.0, "compile_seconds": 3.0}
    two = {"actors/computing": 0.4, "rollout/bytes_per_second": 7.0, "compile_seconds": 1.0, "learner/computing": 1.0}
    merged = merged_usage({0: one, 1: two})
    assert merged == pytest.approx(
        {"actors/computing": 0.3, "rollout/bytes_per_second": 12.0, "compile_seconds": 3.0, "learner/computing": 1.0}
    )


def test_hosts_of_other_versions_are_named() -> None:
    mine = {"machine": "a", "versions": versions()}
    check_versions({0: mine})
    other = {"machine": "b", "versions": {**versions(), "jax": "0.1"}}
    with pytest.raises(motet.BadOption, match=r"host 1 \(b\) has jax 0\.1, and whoever leads has"):
        check_versions({0: mine, 1: other})


def test_another_loop_on_a_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led(A2C, COARSE, LocalLauncher(2))
    monkeypatch.setattr(HostedRun, "trace", lambda self: (traced(replace(A2C, discount=0.5), COARSE), COARSE))
    with pytest.raises(motet.BadOption, match=r"Host 0, 1 traced another loop .*--working-dir"):
        led.run()


def test_what_cannot_be_imported_there_is_told_how_to_send() -> None:
    host = Host()
    inner = cloudpickle.dumps(0).replace(b"K\x00", b"cno_such_module\nthing\n")
    answer = host.prepare(0, cloudpickle.dumps(([], inner)), (b"", b""), False)
    assert isinstance(answer, Failure)
    with pytest.raises(motet.BadOption, match=r"No module named 'no_such_module'.*--working-dir"):
        raise answer.error()


def test_cuts_come_as_often_as_they_may() -> None:
    """Every so many seconds, unless one takes more than its share of the time."""
    now, told = [0.0], [0]

    def watched() -> Watched:
        return told[0], {"sums": []}

    found: list[RunCut] = []
    cuts = Cuts(2, watched, found.append, every=5.0, clock=lambda: now[0])
    assert not cuts.due
    now[0] = 5.0
    assert cuts.due
    cuts.agreed(3, seconds=0.5)
    assert not cuts.due and cuts.waiting
    for worker in ("a", "b"):
        cuts.add(3, WorkerShare(worker, "all", 0, {}), 0.1)
    assert cuts.last is None  # its metrics are to come
    told[0] = 3
    cuts.told()
    assert [cut.iteration for cut in found] == [3] and cuts.last is found[0]
    now[0] += 0.6 / 0.03 - 1
    assert not cuts.due
    now[0] += 2
    assert cuts.due


def test_a_cut_whose_metrics_were_told_before_is_kept_but_is_no_checkpoint() -> None:
    """After a loss, iterations come again whose metrics are known: what belonged to them is not."""
    found: list[RunCut] = []
    cuts = Cuts(1, lambda: (9, {}), found.append, every=0.0)
    cuts.agreed(4, 0.0)
    cuts.add(4, WorkerShare("a", "all", 0, {}), 0.0)
    assert cuts.last is not None and cuts.last.iteration == 4 and found == []
