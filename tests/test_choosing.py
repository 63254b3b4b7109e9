"""What `motet plan` and `motet train` say of a choice: what lag would bring, over which hosts, what was wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import motet
from motet import planning
from motet.bounds import Outside
from motet.cli import main
from motet.cli.report import summary
from motet.errors import BadOption
from motet.flow.graph import Graph
from motet.flow.trace import trace
from motet.foretold import Comparison, Term
from motet.plan import catalogue
from motet.plan.check import violations
from motet.plan.cost import Profile
from motet.plan.plan import Plan

TINY = motet.A2C(num_envs=4, num_steps=4, hidden=(8,))
A2C = ("a2c", "CartPole-v1", "--num-envs", "4", "--num-steps", "4", "--hidden", "8")
RUN = ("--total-timesteps", "64", "--evaluate-episodes", "0")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MOTET_PROFILE", "1")


def graph_of(environments: int) -> Graph:
    return trace(replace(TINY, num_envs=environments), motet.make("CartPole-v1"), iterations=5)


def chosen(monkeypatch: pytest.MonkeyPatch, more: float) -> str:
    """Every choice is the same, and gave up so many times its speed -> what is said of that."""
    real = planning.choose(TINY, motet.make("CartPole-v1"), measure=False)
    late = replace(real.best, plan=motet.coarse(1, lag=1), steps_per_second=more * real.best.steps_per_second)
    choice = replace(real, given_up=late, words={**real.words, late.plan: "coarse(actors=1, lag=1)"})
    monkeypatch.setattr(planning, "choose", lambda *_, **__: choice)
    return (
        f"It keeps to lag 0: coarse(actors=1, lag=1) would give {late.steps_per_second:,.0f} steps/s, where the acting "
        "policy is 1 iteration old (--max-lag 1)."
    )


def test_both_commands_say_what_lag_would_have_brought(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = chosen(monkeypatch, 1.5)
    assert main(["plan", *A2C]) == 0
    assert sentence in " ".join(capsys.readouterr().out.split())
    assert main(["train", *A2C, *RUN]) == 0
    assert f"planner: {sentence}" in capsys.readouterr().out.splitlines()


def test_train_says_nothing_of_what_lag_would_hardly_have_brought(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen(monkeypatch, 1.02)
    assert main(["train", *A2C, *RUN]) == 0
    assert "keeps to lag" not in capsys.readouterr().out


def test_a_plan_for_hosts_lies_on_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert main(["plan", *A2C, "--hosts", "2", "--no-profile", "--save", str(file)]) == 0
    said = capsys.readouterr().out
    assert "on 2 x " in said.splitlines()[0] and " wins: an iteration takes" in said
    plan = Plan.from_json(file.read_text())
    assert plan.hosts == 2
    assert not violations(graph_of(4), plan, {"cpu": 4}, traced=False)
    assert main(["plan", *A2C, "--plan", str(file)]) == 0
    assert main(["plan", *A2C, "--hosts", "0", "--no-profile"]) == 2
    assert "hosts must be at least 1, got 0" in capsys.readouterr().err


def test_hosts_like_this_one_take_what_this_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured once: with plans of one host, under the key of one."""
    measured: list[Any] = []

    def fake(*given: Any) -> Profile:
        measured.append(given)
        return Profile(about={"seconds": "0.0", "left out": ""})

    monkeypatch.setattr(planning, "_measured", fake)
    env = motet.make("CartPole-v1")
    wide = planning.choose(TINY, env, hosts=2)
    ((_, _, graph, machine, plans, *_),) = measured
    assert machine.hosts == 1 and wide.book.machine.hosts == 2 and wide.book.here
    assert all(not violations(graph, plan, machine.counts, traced=False) for plan in plans)
    alone = planning.choose(TINY, env)
    assert alone.from_cache and alone.profile == wide.profile and alone.plan.hosts == 1
    assert wide.plan.hosts == 2 and wide.spelled(wide.plan) in wide.words.values()
    assert any("nothing lies on host 1" in each.reasons[0] for each in wide.refused)
    few = planning.choose(TINY, env, machine=catalogue.find("p100-cluster"), hosts=2, measure=False)
    assert few.book.machine.name == "2 x p100-cluster" and few.plan.hosts == 2
    three = planning.choose(replace(TINY, num_envs=6), env, hosts=3, measure=False).plan
    assert three.hosts == 3 and not violations(graph_of(6), three, {"cpu": 4}, traced=False)
    with pytest.raises(BadOption, match=r"No plan fits .* on 3 x "):  # four environments
        planning.choose(TINY, env, hosts=3, measure=False)


def test_train_over_hosts_says_which_rule_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("motet.engine.hosts.cluster.find_spec", lambda name: None)  # it ends before it starts Ray
    assert main(["train", *A2C, *RUN, "--hosts", "2"]) == 2
    said = capsys.readouterr()
    line = (
        "planner: what hosts take is not measured, so the usual rule holds: coarse over hosts=2 (`motet plan --hosts 2"
    )
    assert line in said.out and "pip install 'motet[ray]'" in said.err
    main(["train", *A2C, *RUN, "--hosts", "2", "--no-profile"])
    main(["train", *A2C, *RUN, "--hosts", "2", "--preset", "coarse"])
    assert "usual rule" not in capsys.readouterr().out


def test_the_help_says_who_chooses_where_no_plan_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "a2c", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "without any, the planner measures and chooses" in said and "all in one program, which" not in said


def test_the_nearest_plan_is_named_as_one_writes_it() -> None:
    machine = replace(catalogue.a100_node(), hosts=1)
    algorithm = motet.PPO(num_envs=512, num_steps=128, hidden=(2048, 2048))
    with pytest.raises(BadOption, match=r"the nearest is \w+\(\w+=\d+.*\) with [\d.,e+]+ environment steps/s"):
        planning.choose(
            algorithm, motet.make("CartPole-v1"), machine=machine, objective="throughput >= 1e12", measure=False
        )


def ended(comparison: Comparison | None) -> Any:
    told: dict[str, Any] = dict.fromkeys(("history", "links", "accounts", "warnings"), ())
    return SimpleNamespace(
        **told, steps=64, iterations=4, seconds=1.0, compile_seconds=0.5, stopped="", best=None, run_dir=None,
        foretold=comparison,
    )  # fmt: skip


@pytest.mark.parametrize("came", [500.0, 1600.0])
def test_a_prediction_that_is_off_is_a_warning_at_the_end(came: float) -> None:
    off = Comparison(1000.0, came, (Term("learner", "epochs", 0.010, 0.050),), 10.0, None)
    lines = summary(ended(off), 64, Outside()).splitlines()
    (said,) = (line for line in lines if line.startswith("warning"))
    assert f"The planner foretold 1,000 steps/s and {came:,.0f} came" in said and "because of epochs of learner" in said
    near = replace(off, measured=900.0)
    assert "warning" not in summary(ended(near), 64, Outside())
    assert "warning" not in summary(ended(None), 64, Outside())
