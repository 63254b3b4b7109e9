"""Clusters that cannot be: what is wrong is said before anything starts, and Ray is not even imported."""

from __future__ import annotations

import subprocess
import sys
from importlib import util
from typing import Any

import pytest

import motet
from motet.plan.hosts import over
from tests.laws.cases import ALGORITHMS

A2C = ALGORITHMS["a2c"]


def train(plan: Any = None, **options: Any) -> Any:
    return motet.train(A2C, "CartPole-v1", plan, total_timesteps=400, progress=False, **options)


def test_motet_without_a_cluster_imports_neither_ray_nor_zeromq() -> None:
    code = (
        "import sys, motet; motet.train, motet.resume, motet.Cluster(hosts=2); import motet.cli.train\n"
        "assert not {'ray', 'zmq'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("missing", ["ray", "zmq"])
def test_what_is_not_installed_is_named_with_the_command(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = util.find_spec
    monkeypatch.setattr("motet.engine.hosts.cluster.find_spec", lambda name: None if name == missing else found(name))
    with pytest.raises(motet.BadOption, match=r"pip install 'motet\[ray\]'"):
        train(cluster=motet.Cluster(hosts=2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hosts": 0}, "hosts must be a whole number of at least 1, got 0"),
        ({"hosts": 2.0}, "hosts must be a whole number"),
        ({"hosts": 2, "cpus": 0}, "cpus must be above 0"),
        ({"hosts": 2, "recoveries": -1}, "at least 0"),
        ({"hosts": 2, "working_dir": "/no/such/folder"}, "there is none at /no/such/folder"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(motet.BadOption, match=said):
        motet.Cluster(**options)


@pytest.mark.parametrize(
    ("plan", "options", "said"),
    [
        (over(motet.coarse(2), 2), {}, r"for 2 hosts: say where they are, with cluster=motet\.Cluster\(hosts=2\)"),
        (over(motet.coarse(2), 2), {"cluster": motet.Cluster(hosts=4)}, "for 2 hosts, and 4 are asked for"),
        (motet.anakin(), {"cluster": motet.Cluster(hosts=2)}, "nothing lies on host 1"),
        (motet.coarse(2, learners=3), {"cluster": motet.Cluster(hosts=2)}, "3 shards do not divide by 2 hosts"),
        (motet.coarse(2), {"cluster": motet.Cluster(hosts=2), "mode": "serial"}, "in one thread"),
    ],
)
def test_a_plan_that_does_not_fit_its_cluster_is_refused(plan: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(motet.MotetError, match=said):
        train(plan, **options)


def test_options_of_a_cluster_without_hosts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from motet.cli import main

    assert main(["train", "a2c", "CartPole-v1", "--address", "auto"]) == 2
    assert "--address: for a run over hosts only; say how many with --hosts" in capsys.readouterr().err


def test_what_cannot_be_sent_to_other_processes_is_refused() -> None:
    from motet.engine.assemble import Settings
    from motet.engine.hosts.task import HostedRun

    with pytest.raises(motet.BadOption, match="cannot be sent to other processes"):
        HostedRun(A2C, (each for each in ()), "", 1, Settings(), "", {}).pack()
