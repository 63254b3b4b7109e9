"""What a host tells whoever leads it: each answer takes time from those who train, so there should be few."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from motet.engine.hosts import host as hosts
from motet.engine.hosts.host import Host


def later(seconds: float, what: Any, *args: Any) -> None:
    threading.Timer(seconds, what, args).start()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(hosts, "GATHERING", 20.0)  # so long that nobody can take it for "at once"
    return Host()


def test_metrics_of_a_moment_come_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "GATHERING", 1.5)
    host.tell("reported", 0, {})
    later(0.05, host.tell, "reported", 1, {})
    later(0.1, host.tell, "usage", {})
    assert [event[0] for event in host.events(5.0)] == ["reported", "reported", "usage"]


def test_what_somebody_waits_for_comes_at_once_with_all_before_it(host: Host) -> None:
    host.tell("reported", 0, {})
    later(0.05, host.tell, "share", 1)
    began = time.monotonic()
    assert [event[0] for event in host.events(60.0)] == ["reported", "share"]
    assert time.monotonic() - began < 10


def test_metrics_come_at_once_while_the_learner_waits_for_leave(host: Host) -> None:
    host.showing = SimpleNamespace(reach=3)  # type: ignore[assignment]
    host.tell("reported", 0, {})
    began = time.monotonic()
    assert len(host.events(60.0)) == 1
    assert time.monotonic() - began < 10


def test_where_nothing_happens_the_answer_is_empty_in_time(host: Host) -> None:
    began = time.monotonic()
    assert host.events(0.1) == []
    assert time.monotonic() - began < 2.0
    later(0.05, host.tell, "ended", ())
    assert [event[0] for event in host.events(5.0)] == ["ended"]
