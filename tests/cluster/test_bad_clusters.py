"""What is wrong with a real cluster is said before anything is computed, and nothing is left running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import motet
from tests.cluster.processes import gone, hosts
from tests.laws.cases import ALGORITHMS

pytestmark = pytest.mark.cluster


def train(env: Any = "CartPole-v1", **cluster: Any) -> Any:
    options = motet.Cluster(hosts=2, **cluster)
    return motet.train(ALGORITHMS["a2c"], env, motet.coarse(2), total_timesteps=400, progress=False, cluster=options)


def test_what_was_asked_for_is_shown_beside_what_each_node_has(ray_cluster: Any) -> None:
    with pytest.raises(motet.BadOption) as caught:
        train(cpus=64, wait=1)
    said = str(caught.value)
    assert "after 1 s: 2 with 64 CPU each were asked for. The cluster has 2 node(s)" in said
    assert said.count(": 4 CPU") == 2 and "ray start" in said


def test_hosts_have_nodes_of_their_own_if_as_many_are_large_enough() -> None:
    from motet.engine.hosts.on_ray import strategy

    head, worker = {"Resources": {"CPU": 0.0}}, {"Resources": {"CPU": 4.0}}
    two = [{"CPU": 1.0}] * 2
    assert strategy([head, worker, worker], two, hurry=False) == "STRICT_SPREAD"
    assert strategy([head, worker], two, hurry=False) == "SPREAD"  # a head that hosts nobody is no room
    assert strategy([worker, worker], two, hurry=True) == "SPREAD"
    assert strategy([worker, worker], [{"CPU": 1.0, "GPU": 1.0}] * 2, hurry=False) == "SPREAD"


def test_code_that_only_the_driver_has_is_told_how_to_send(
    ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(hosts())
    file = tmp_path / "only_here.py"
    file.write_text("from motet.envs.cartpole import CartPole\nclass Mine(CartPole): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    env = __import__("only_here").Mine()
    file.unlink()
    with pytest.raises(motet.BadOption, match=r"No module named 'only_here'.*--working-dir") as caught:
        train(env)
    assert any("raised on host" in note for note in caught.value.__notes__)
    assert gone(15, before)


def test_processes_that_were_started_for_nothing_end(ray_cluster: Any) -> None:
    """They start while the loop is traced, and what is wrong may be found out then."""
    before = set(hosts())
    cluster = motet.Cluster(hosts=2, address=ray_cluster.address)
    with pytest.raises(motet.BadPlan):
        motet.train(motet.PPO(), "CartPole-v1", motet.central(2), progress=False, cluster=cluster)
    assert gone(15, before)


def test_no_cluster_at_the_address_is_said() -> None:
    command = "train a2c CartPole-v1 --hosts 2 --address 127.0.0.1:1 --total-timesteps 2000 --evaluate-episodes 0"
    told = subprocess.run(
        [sys.executable, "-m", "motet", *command.split()], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert told.returncode == 2, told
    assert "There is no Ray cluster at '127.0.0.1:1'" in told.stderr and "ray start --head" in told.stderr
