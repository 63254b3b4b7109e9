"""Machines are values; a file that describes none says everything that is wrong with it."""

from __future__ import annotations

import pytest

from motet.engine.detect import detect
from motet.errors import BadMachine, UnknownName
from motet.plan import catalogue
from motet.plan.machine import KINDS, Machine

MINE = """
name: mine
cores: 8
memory: 32e9
devices:
  - {kind: gpu, name: card, memory: 8e9, peak: 10e12, bandwidth: 500e9, watts: 200, count: 2}
  - {kind: cpu, name: core, memory: 32e9, peak: 50e9, bandwidth: 1e10, watts: 8}
connections:
  network: {latency: 1e-4, bandwidth: 1e8}
"""


@pytest.mark.parametrize("name", catalogue.CATALOGUE)
def test_a_machine_is_its_text(name: str) -> None:
    machine = catalogue.find(name)
    assert Machine.from_text(machine.to_text()) == machine
    assert machine.name == name
    assert "Assumed" in machine.source and all(device.kind in KINDS for device in machine.devices)


def test_numbers_are_read_as_people_write_them() -> None:
    machine = Machine.from_text(MINE)
    assert machine.memory == 32e9 and machine.devices[0].peak == 10e12  # which YAML takes for text
    assert machine.counts == {"gpu": 2, "cpu": 1}
    assert machine.connections["network"].seconds(1e8) == pytest.approx(1.0001)
    assert machine.connections["host"].bandwidth > 0  # assumed


def test_this_machine_is_one() -> None:
    here = detect()
    assert here.cores >= 1 and here.memory > 1e9 and here.devices[0].count == 4  # as the tests have it
    assert Machine.from_text(here.to_text()) == here


def test_every_mistake_is_said_at_once() -> None:
    changes = {
        "cores: 8\n": "",
        "peak: 10e12": "peak: -1",
        "kind: cpu": "kind: gpuu",
        "network": "netwrok",
        "count: 2": "cuont: 2",
        "memory: 32e9\n": "memory: much\n",
    }
    text = MINE
    for old, new in changes.items():
        text = text.replace(old, new)
    with pytest.raises(BadMachine) as caught:
        Machine.from_text(text)
    assert list(caught.value.violations) == [
        "the machine lacks 'cores'",
        "the machine: memory must be a number above 0, got 'much'",
        "device 1 has the unknown key 'cuont'; did you mean 'count'?",
        "device 1: peak must be above 0, got -1",
        "device 2 is of the unknown kind 'gpuu'; kinds are cpu, gpu, tpu, fpga; did you mean 'gpu'?",
        "there is no connection 'netwrok'; there are process, host, devices, network; did you mean 'network'?",
    ]


@pytest.mark.parametrize("text", ["", "- a list", "name: [", "devices: 3", "a: &a [*a]", "cores: 1.5", "cores: .nan"])
def test_what_is_no_machine_is_refused(text: str) -> None:
    with pytest.raises(BadMachine):
        Machine.from_text(text)


def test_a_pod_is_taken_in_whole_hosts() -> None:
    pod = catalogue.find("tpu-v3-pod")
    assert pod.counts["tpu"] == 2048
    assert (pod.with_devices(64).hosts, pod.with_devices(64).counts["tpu"]) == (8, 64)
    assert pod.with_devices(4).counts["tpu"] == 4
    with pytest.raises(BadMachine, match="do not fill whole hosts"):
        pod.with_devices(12)


def test_an_unknown_machine_is_met_with_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'tpu-v3-pod'"):
        catalogue.find("tpu-v3-pods")
