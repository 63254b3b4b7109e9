"""What raises while it is profiled is left out: a device, all of a kind, or a plan with its calls."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import motet
from motet import planning
from motet.candidates import against
from motet.cli import main
from motet.engine import profiles
from motet.engine.compiled import CompiledCall
from motet.engine.detect import detect
from motet.engine.pools import Pools
from motet.engine.profile import Profiling, cover
from motet.engine.raised import ABOUT, Fault, Raised, needed
from motet.errors import BadOption
from motet.flow.graph import WHOLE, Cut
from motet.flow.trace import trace
from motet.plan import catalogue
from motet.plan.cost import Profile
from motet.plan.machine import Machine

TINY = motet.A2C(num_envs=4, num_steps=4, hidden=(8,))
A2C = ("a2c", "CartPole-v1", "--num-envs", "4", "--num-steps", "4", "--hidden", "8")


@pytest.fixture(autouse=True)
def own_cache_and_little_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Profiling.time
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Profiling, "time", lambda profiling, until: real(profiling, until - 1000))


def breaks(monkeypatch: pytest.MonkeyPatch, *devices: int) -> None:
    """Nothing can be compiled for these devices any more."""
    real = CompiledCall._compile

    def broken(call: CompiledCall, *given: Any) -> Any:
        if any(device.id in devices for device in call.home.place.devices):
            raise RuntimeError("no such device")
        return real(call, *given)

    monkeypatch.setattr(CompiledCall, "_compile", broken)


def test_a_device_that_raises_is_in_no_plan_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(monkeypatch, 1)
    choice = planning.choose(TINY, motet.make("CartPole-v1"), budget=60.0)
    assert choice.left_out == "left out, since it raised while it was profiled: cpu:1 (RuntimeError: no such device)"
    machine = choice.book.machine
    assert machine.counts == {"cpu": 4} and choice.considered >= 1
    for each in choice.estimates:
        assert "cpu:1" not in needed(each.plan, machine)
    assert choice.given_up is None or "cpu:1" not in needed(choice.given_up.plan, machine)
    reasons = {each.reasons[0] for each in choice.refused}
    assert "cpu:1 raised RuntimeError: no such device" in reasons
    again = planning.choose(TINY, motet.make("CartPole-v1"), budget=60.0)
    assert again.from_cache and again.left_out == choice.left_out and again.plan == choice.plan
    assert main(["plan", *A2C]) == 0
    assert choice.left_out in capsys.readouterr().out.splitlines()


def test_a_plan_that_raises_where_its_devices_work_is_left_out_with_all_that_have_its_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever lag they have, and whatever they are called."""
    real = CompiledCall._compile

    def broken(call: CompiledCall, *given: Any) -> Any:
        if call.home.lowering.cut.parts == 2 and call.home.replica == 1 and "unroll" in call.label:
            raise RuntimeError("too many cooks")
        return real(call, *given)

    monkeypatch.setattr(CompiledCall, "_compile", broken)
    plans, machine = [motet.anakin(), motet.multi_learner(2), motet.coarse(2)], replace(detect(), name="here")
    graph = trace(TINY, motet.make("CartPole-v1"), iterations=50, cuts=(WHOLE, Cut(2, 2), Cut(2, 1)))
    with Pools(graph, plans) as pools, Profiling(graph, cover(graph, plans, "cpu"), pools) as found:
        found.compile(math.inf)
        raised = Raised(tuple(found.faults), frozenset(found.works))
    assert raised.works == {"cpu:0", "cpu:1"} and not raised.broken
    assert (
        raised.said(lambda plan: plan.name)
        == "left out, since it raised while it was profiled: coarse (RuntimeError: too many cooks)"
    )
    speaks = against(graph, machine, raised)
    assert "too many cooks" in speaks(motet.coarse(2)) and "too many cooks" in speaks(motet.coarse(2, lag=1))
    assert "too many cooks" in speaks(motet.sebulba(actors=1, threads=2, learners=2))
    assert not any(speaks(each) for each in (*plans[:2], motet.coarse(4), motet.coarse(1)))


def test_where_every_device_raises_the_written_rule_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard(motet.Callback):
        def __init__(self) -> None:
            self.said: list[str] = []

        def planning(self, text: str) -> None:
            self.said.append(text)

    breaks(monkeypatch, 0, 1, 2, 3)
    env, heard = motet.make("CartPole-v1"), Heard()
    with pytest.raises(BadOption, match=r"No plan is left for A2C.*: left out, .*: cpu \(RuntimeError: no such device"):
        planning.choose(TINY, env, budget=60.0)
    monkeypatch.undo()
    monkeypatch.setattr(planning, "_measured", lambda *given: everywhere())
    result = motet.train(TINY, env, total_timesteps=64, profile=True, callbacks=[heard], progress=False)
    assert result.plan.name == "anakin" and result.foretold is None
    (said,) = heard.said
    assert said.startswith("no plan was chosen, the usual rule holds: No plan is left for") and "cpu (" in said


def everywhere() -> Profile:
    """A profile in which the only kind of device raised."""
    raised = Raised((Fault(motet.anakin(), "RuntimeError: no such device", ("cpu:0",)),))
    return Profile(about={"seconds": "0.0", "left out": "", ABOUT: raised.to_json()})


def test_what_train_leaves_out_it_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fault = Fault(motet.coarse(2), "RuntimeError: no such device", ("cpu:1",))
    about = {"seconds": "0.0", "left out": "", ABOUT: Raised((fault,), frozenset({"cpu:0"})).to_json()}
    monkeypatch.setattr(planning, "_measured", lambda *given: Profile(about=about))
    monkeypatch.setenv("MOTET_PROFILE", "1")
    assert main(["train", *A2C, "--total-timesteps", "64", "--evaluate-episodes", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = "planner: left out, since it raised while it was profiled: cpu:1 (RuntimeError: no such device)"
    assert said in lines and any(line.startswith("planner: chose anakin()") for line in lines)


def test_what_lag_would_bring_is_said_of_plans_that_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that lag needs several devices here."""
    algorithm = motet.PPO(num_envs=64, num_steps=32, update_epochs=8, num_minibatches=1, hidden=(64, 64))
    env, found = motet.make("gymnasium/CartPole-v1"), []
    for faults in ((), (Fault(motet.coarse(2), "RuntimeError: no such device", ("cpu:1",)),)):
        about = {ABOUT: Raised(faults, frozenset({"cpu:0"})).to_json()}
        machine = replace(detect(), cores=4)
        found.append(planning.choose(algorithm, env, machine=machine, known=Profile(about=about)))
    assert found[0].given_up is not None and "cpu:1" in needed(found[0].given_up.plan, found[0].book.machine)
    assert found[1].given_up is None


def test_a_kind_that_raises_is_left_out_and_one_of_several_devices_leaves_the_others() -> None:
    machine = catalogue.a100_node()
    plan = motet.coarse(1)
    moved = replace(
        plan, fragments={name: replace(each, place="cpu:0") for name, each in plan.fragments.items()}
    )  # all of it on the processor

    def found(raised: Raised, plan: motet.Plan, machine: Machine = machine) -> str:
        return raised.against(plan, machine, set)

    kind = Raised((Fault(motet.anakin(), "E", ("gpu:0",)),), frozenset({"cpu:0"}))
    assert kind.broken == {"gpu": "E"}
    assert found(kind, motet.coarse(4)) == "gpu raised E" and not found(kind, moved)
    one = Raised((Fault(motet.anakin(8), "F", tuple(f"gpu:{n}" for n in range(8))),
                  Fault(plan, "E", ("gpu:1",))), frozenset({"gpu:0"}))  # fmt: skip
    assert one.broken == {"gpu:1": "E"}  # which accounts for the plan over all of them
    assert found(one, plan) == "gpu:1 raised E" and not found(one, motet.anakin())
    store = Raised((Fault(motet.pearl(replay="host"), "E", ("host",)),), frozenset({"gpu:0", "cpu:0"}))
    assert store.broken == {"host": "E"} and not found(store, motet.pearl())
    assert found(store, motet.pearl(2, replay="host")) == "host raised E"
    assert not Raised().said(str) and not found(Raised(), plan)


def test_what_raised_is_kept_and_a_damaged_note_of_it_is_no_profile() -> None:
    whole = Raised((Fault(motet.coarse(2), "E", ("cpu:1",), (("cpu x1 call unroll", 2.0),)),), frozenset({"cpu:0"}))
    profiles.save("kept", Profile(about={ABOUT: whole.to_json()}))
    found = profiles.load("kept")
    assert found is not None and Raised.of(found) == whole
    profiles.save("kept", Profile(about={ABOUT: json.dumps({"faults": 3})}))
    assert profiles.load("kept") is None


def test_a_long_error_is_said_in_one_line() -> None:
    why = "XlaRuntimeError: INTERNAL\n" + "every word of a compiler " * 50
    (line,) = Raised((Fault(motet.anakin(), why, ("gpu:0",)),)).said(str).splitlines()
    assert len(line) < 250 and line.endswith("...)")
