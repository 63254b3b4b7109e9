"""Scale on paper, against what others have published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import motet
from motet.cli import main
from motet.errors import BadOption
from motet.flow.host import HostEnvironment
from motet.plan import catalogue
from motet.plan.cost import Fit, Profile
from motet.plan.machine import Connection, Machine
from motet.plan.plan import Plan
from motet.plan.presets import PRESETS
from motet.scaling import counts_of, plans_for, sweep

PUBLISHED = {8: 0.21e6, 16: 0.43e6, 32: 0.87e6, 64: 1.72e6, 128: 3.43e6}
"""An open Sebulba PPO on Breakout, TPU v4-8 to v4-128: frames a second. v4-8 is one host with four chips."""


class Pictures(HostEnvironment):
    """Four frames of 84 x 84, as Atari's are usually shown. It is never stepped here."""

    name = "pictures"
    observation_space = motet.Box(0, 255, (84, 84, 4), "uint8")
    action_space = motet.Discrete(4)


def test_sebulba_scales_as_was_published() -> None:
    """How fast one host is depends on its environments, and is taken from the publication; what more hosts bring is
    the model's: within 10% of what came, up to v4-128."""
    envs, hosts = 120, [1, 2, 4, 8, 16]
    algorithm = motet.PPO(num_envs=envs // 4, num_steps=32, torso="nature", num_minibatches=2, update_epochs=4)

    def plans(devices: int, hosts: int, lag: int) -> dict[str, Plan]:
        return {"sebulba": motet.sebulba(actors=hosts, threads=2, learners=devices - hosts, lag=lag)}

    step = envs / (PUBLISHED[8] / 4)  # two threads with half of a host's environments each, which have own threads
    measured = Profile(environments={"0": Fit(((envs / 2, step), (float(envs), 2 * step)), demand=50.0)})
    points = sweep(
        algorithm,
        Pictures(),
        catalogue.find("tpu-v4-pod"),
        [4 * each for each in hosts],
        plans=plans,
        measured=measured,
    )
    found = np.array([point.estimate.steps_per_second for point in points])
    wanted = np.array(list(PUBLISHED.values()))
    np.testing.assert_allclose(found / found[0], wanted / wanted[0], rtol=0.1)


SMALL = motet.PPO(num_envs=32, num_steps=64, hidden=(64, 64), num_minibatches=4, update_epochs=4)
LARGE = replace(SMALL, hidden=(2048, 2048))
MANY = replace(SMALL, num_envs=256)
CLUSTER = catalogue.find("p100-cluster")


def ahead(algorithm: motet.PPO, devices: int, machine: object = CLUSTER) -> float:
    """How much faster a learner on each device is than one learner for all."""
    points = sweep(algorithm, motet.make("CartPole-v1"), machine, [devices])  # type: ignore[arg-type]
    found = {point.name: point.estimate.steps_per_second for point in points}
    return found["anakin"] / found["coarse, one learns"]


def test_one_learner_wins_with_few_devices_and_small_models_and_many_learners_elsewhere() -> None:
    """MSRL's finding: one learner wins with few devices and a small model; with more devices and environments, a larger
    model, or a slower network, a learner on each device does."""
    assert ahead(SMALL, 4) < 1
    assert ahead(LARGE, 4) > 1.5
    assert ahead(MANY, 4) < 1.1 < 2 < ahead(MANY, 64)
    slow = replace(CLUSTER, connections={**CLUSTER.connections, "network": Connection(200e-6, 0.05e9)})
    assert ahead(MANY, 32, slow) > 2 * ahead(MANY, 32)


def test_every_preset_that_can_use_the_devices_has_a_curve() -> None:
    """A replay lets `pearl` in; environments of the host leave `anakin` out. What does the same is there once."""

    def names(algorithm: motet.Algorithm, env: object) -> list[str]:
        points = sweep(algorithm, env, catalogue.find("tpu-v3-pod"), [8, 32])  # type: ignore[arg-type]
        assert {each.name for each in points if each.devices == 8} == {
            each.name for each in points if each.devices == 32
        }
        return sorted({point.name.partition(",")[0] for point in points})

    apart = ["batched", "central", "coarse", "fine"]
    replays = motet.DQN(num_envs=12, batch_size=12, buffer_size=2400, learning_starts=120, hidden=(8,))
    assert names(replays, motet.make("CartPole-v1")) == ["anakin", *apart, "pearl", "sebulba"]
    waves = motet.A2C(num_envs=12, num_steps=4, hidden=(8,))
    assert names(waves, Pictures()) == [*apart, "multi_learner", "sebulba"]
    layouts = plans_for(32, 4)
    assert {plan.name for plan in layouts.values()} == set(PRESETS) and len({*layouts.values()}) == len(layouts) == 9


def test_what_does_not_fit_into_memory_is_no_point_of_a_curve() -> None:
    """One learner for all needs the most; where nothing fits, it is said what is too small."""
    algorithm, env = motet.PPO(num_envs=64, num_steps=128), motet.make("CartPole-v1")
    everything = {point.name: point.estimate.memory.bytes for point in sweep(algorithm, env, CLUSTER, [16])}
    most = max(everything, key=everything.__getitem__)

    def with_memory(size: float) -> Machine:
        return replace(CLUSTER, devices=tuple(replace(each, memory=size) for each in CLUSTER.devices))

    less = sweep(algorithm, env, with_memory(0.9 * everything[most]), [16])
    assert most not in {point.name for point in less} and less
    with pytest.raises(BadOption, match=r"No plan fits p100-cluster with 16 devices, .* has too little memory"):
        sweep(algorithm, env, with_memory(10.0), [16])


def test_a_sweep_is_read() -> None:
    assert counts_of("devices=16..128") == [16, 32, 64, 128]
    assert counts_of("devices=4..4") == [4]
    for text in ("16..32", "hosts=1..2", "devices=8", "devices=8..4", "devices=0..4", "devices=-1..4"):
        with pytest.raises(BadOption, match="--sweep must"):
            counts_of(text)


def test_motet_simulate_prints_a_table_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "curve.png"
    args = ["simulate", "a2c", "CartPole-v1", "--num-envs", "4", "--hidden", "8", "--machine", "tpu-v3-pod"]
    assert main([*args, "--sweep", "devices=8..32", "--output", str(file)]) == 0
    said = capsys.readouterr().out
    for plan in ("anakin", "coarse, one learns", "fine, one decides", "batched, one host steps", "central"):
        assert [line.split()[-5] for line in said.splitlines() if line.startswith(plan)]
    assert "pearl" not in said and "modelled" in said and "Assumed" in said
    assert file.read_bytes().startswith(b"\x89PNG")
    assert main([*args, "--sweep", "devices=12..12"]) == 2
    assert "do not fill whole hosts" in capsys.readouterr().err
