"""The planner: what is measured, what is kept, what is chosen, and how it says so."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import motet
from motet import planning
from motet.calibration import corrections
from motet.cli import main
from motet.cli.choosing import why
from motet.engine import profiles
from motet.engine.blank import USUAL, Blank, Pace, extent
from motet.engine.estimate import Estimate, estimate
from motet.engine.pools import Pools
from motet.engine.profile import Profiling, cover, items_of, messages_of
from motet.engine.rehearse import schedules_of
from motet.engine.stopwatch import Samples, calls_of, mostly
from motet.engine.timeline import Lane, Span
from motet.engine.trial import Trial, shortened
from motet.errors import BadOption
from motet.flow.graph import WHOLE, Cut, Graph
from motet.flow.trace import trace
from motet.flow.values import on_host
from motet.foretold import ELSE, Carried, Comparison, Term, compare, parts_of
from motet.plan import catalogue, search
from motet.plan.cost import Book, Fit, Profile
from motet.plan.machine import Machine
from motet.plan.plan import Plan
from motet.planning import _simplest_first
from motet.training import wants_profile

TINY = motet.A2C(num_envs=4, num_steps=4, hidden=(8,))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def graph_of(algorithm: motet.Algorithm = TINY, env: str = "CartPole-v1", *cuts: Cut) -> Graph:
    return trace(algorithm, motet.make(env), iterations=50, cuts=(WHOLE, *cuts))


def profile(graph: Graph, plans: Sequence[Plan], budget: float = 60.0) -> Profile:
    """As the planner does it."""
    with Pools(graph, plans) as pools, Profiling(graph, cover(graph, plans, "cpu"), pools) as found:
        until = time.perf_counter() + budget
        found.compile(until - 4)
        found.time(until - 58)  # as briefly as it can be
        return found.profile()


def test_a_profile_times_every_call_and_message_of_the_plans_it_was_given() -> None:
    plans = [motet.anakin(), motet.coarse(2)]
    graph = graph_of(TINY, "CartPole-v1", Cut(2, 1))
    found = profile(graph, plans)
    wanted = {key for plan in plans for key, _ in items_of(graph, plan, "cpu")}
    assert found.calls.keys() == wanted and not found.about["left out"]
    assert all(seconds > 0 for fit in found.calls.values() for _, seconds in fit.points)
    assert 0 < found.handling < 0.1 and found.reporting.keys() == {"learner", "others"}
    assert 0 < found.waking < 0.1 and 0 < found.crowding <= 1 and len(found.calling) == 2
    sent = {f"{ends:.0f}{key[1:]}" for key, ends in messages_of(graph, motet.coarse(2))}
    assert found.messages.keys() == sent and len(sent) == 4
    assert all(size > 0 and seconds > 0 for size, seconds in (*found.send, *found.receive))


def test_what_the_machine_did_meanwhile_counts_in_most_stretches() -> None:
    """Ends of episodes are in all of them, and count; where the machine stood still is in few."""
    episodes = [1.0, 1.0, 1.0, 5.0] * 90
    assert mostly(episodes) == 2.0
    assert mostly([*episodes[:100], *[50.0] * 60, *episodes[160:]]) == 2.0
    assert mostly([3.0]) == 3.0


def test_what_there_is_no_time_to_compile_is_left_out_and_named() -> None:
    """Calls of a plan that was begun too, so that one long compilation is not followed by others."""
    graph = graph_of(TINY, "CartPole-v1", Cut(2, 1))
    wanted = frozenset(key for key, _ in items_of(graph, motet.coarse(2), "cpu"))
    samples, trial = Samples(), Trial(graph, motet.coarse(2), {"cpu": jax.devices("cpu")}, wanted)
    try:
        trial.start()
        trial.compile(until=time.perf_counter() - 1)
        timed(trial, samples)
    finally:
        trial.close()
    assert len(trial.late) == 3 and not trial.wanted and not samples.calls
    found = profile(graph, [motet.anakin(), motet.coarse(2)], budget=0.0)
    assert found.about["left out"].count("no time was left") == 2


def test_how_long_a_call_will_take_to_compile_is_known_from_others() -> None:
    plan = motet.coarse(1)
    graph = graph_of(TINY)
    pace = Pace()
    calls = [call for each in schedules_of(graph, plan).values() for call in calls_of(each.body)]
    assert len(calls) == 2 and pace.expected(calls[0]) == USUAL * extent(calls[0].body)
    pace.note(calls[0], 2.0)
    larger = extent(calls[1].body) / extent(calls[0].body)
    assert pace.expected(calls[0]) == pytest.approx(2.0) and pace.expected(calls[1]) == pytest.approx(2.0 * larger)


def test_a_program_that_is_all_of_the_first_plan_is_always_compiled() -> None:
    """However long it may take: the run may need it, and all else is guessed without it."""
    graph, devices = graph_of(TINY), {"cpu": jax.devices("cpu")}
    late = time.perf_counter() - 100
    first, later = (Trial(graph, motet.anakin(), devices, frozenset()) for _ in range(2))
    try:
        first.start()
        first.compile(late, Pace())
        assert first.iteration == 2
        later.start()
        with pytest.raises(BadOption, match="no time was left"):
            later.compile(late, Pace(equations=100, seconds=1.0))
    finally:
        first.close()
        later.close()


def timed(trial: Trial, samples: Samples) -> None:
    trial.warm_up()
    trial.time_for(0.05)
    trial.note(samples)


def test_plans_start_from_the_state_that_the_first_one_made() -> None:
    """Nothing of a first state is compiled again; what is then computed is what the plan itself would compute."""
    graph, devices = graph_of(TINY, "CartPole-v1", Cut(2, 1)), {"cpu": jax.devices("cpu")}
    first, second, own = (Trial(graph, plan, devices, frozenset()) for plan in (motet.anakin(), *[motet.coarse(2)] * 2))
    try:
        first.start()
        second.start(first.cut())
        own.start()
        for one, other in zip(second.assembly.performers, own.assembly.performers, strict=True):
            assert all(isinstance(each, Blank) for each in one.programs.values())
            assert one.worker.started and one.worker.variables
            for name, leaves in one.worker.variables.items():
                for ours, theirs in zip(leaves, other.worker.variables[name], strict=True):
                    np.testing.assert_allclose(on_host(ours), on_host(theirs), rtol=1e-5)
    finally:
        for trial in (first, second, own):
            trial.close()


def test_a_large_state_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.engine.profile.SHARED", 0.0)
    plans, graph = [motet.anakin(), motet.coarse(2)], graph_of(TINY, "CartPole-v1", Cut(2, 1))
    found = profile(graph, plans)
    assert not found.about["left out"] and len(found.calls) == 3


def test_environments_are_still_while_calls_are_timed_and_timed_by_themselves() -> None:
    graph = graph_of(TINY, "gymnasium/CartPole-v1", Cut(2, 1))
    found = profile(graph, [motet.multi_learner(1), motet.coarse(2)])
    assert not found.about["left out"] and found.stack and found.asking > 0
    (fit,), (rested,) = found.environments.values(), found.rested.values()
    assert [size for size, _ in fit.points] == [size for size, _ in rested.points] == [2.0, 4.0]
    assert all(1e-6 < seconds < 0.1 for _, seconds in (*fit.points, *rested.points)) and fit.demand >= 1.0


def test_environments_that_break_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no display")

    graph = graph_of(TINY, "gymnasium/CartPole-v1")
    with Pools(graph, [motet.multi_learner(1)]) as pools:
        assert len(pools.pools) == 1
        monkeypatch.setattr(pools.pools[0], "step_for", broken)
        pools.step_for(0.01)
        assert not pools.fits() and pools.left_out == ["4 environments, 0 workers: RuntimeError: no display"]


def test_what_fails_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Trial.compile

    def broken(trial: Trial, until: float, pace: Pace) -> None:
        if trial.plan.name == "coarse":
            raise RuntimeError("no such device")
        real(trial, until, pace)

    monkeypatch.setattr(Trial, "compile", broken)
    graph = graph_of(TINY, "CartPole-v1", Cut(2, 1))
    found = profile(graph, [motet.anakin(), motet.coarse(2)])
    assert len(found.calls) == 1
    assert found.about["left out"] == "coarse (actors replicas=2, learner): RuntimeError: no such device"


def test_as_few_plans_are_run_as_hold_all_calls() -> None:
    graph = graph_of()
    plans = [
        motet.anakin(),
        motet.multi_learner(1),
        motet.coarse(1),
        motet.coarse(1, lag=1),
        motet.coarse(2),
        motet.coarse(4),
    ]
    found = cover(graph, plans, "cpu")
    assert [plan.fragments for plan in found] == [
        motet.anakin().fragments, motet.coarse(1).fragments, motet.coarse(2).fragments, motet.coarse(4).fragments
    ]  # fmt: skip
    # The learner's call is that of one actor. Two actors' calls lie between one and four, but not their messages.
    assert [len(keys) for keys in found.values()] == [1, 2, 0, 1]


def test_what_is_known_already_is_not_compiled() -> None:
    plan = motet.coarse(2)
    graph = graph_of(TINY, "CartPole-v1", Cut(2, 1))
    (wanted,) = (key for key, size in items_of(graph, plan, "cpu") if size == 2)
    samples, trial = Samples(), Trial(graph, plan, {"cpu": jax.devices("cpu")}, frozenset({wanted}))
    try:
        trial.start()
        trial.compile()
        timed(trial, samples)
        learner = next(each for each in trial.assembly.performers if each.worker.name == "learner")
        body = list(calls_of(learner.worker.schedule.body))
        assert body and all(isinstance(learner.programs[id(call)], Blank) for call in body)
    finally:
        trial.close()
    assert samples.calls.keys() == {wanted} and samples.messages and samples.reporting


def test_a_prefill_is_cut_short_and_nothing_else() -> None:
    graph = graph_of(motet.DQN(num_envs=4, learning_starts=10_000, hidden=(8,)))
    assert graph.root.body[:-1] != shortened(graph).root.body[:-1]
    assert graph.iteration is shortened(graph).iteration


def test_a_profile_is_kept_for_the_same_code_shapes_and_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def fake(algorithm: motet.Algorithm, *more: Any) -> Profile:
        measured.append(type(algorithm).__name__)
        return Profile(about={"seconds": "0.0", "left out": ""})

    monkeypatch.setattr(planning, "_measured", fake)
    env = motet.make("CartPole-v1")
    assert not planning.choose(TINY, env).from_cache
    assert planning.choose(TINY, env).from_cache and len(measured) == 1
    planning.choose(replace(TINY, num_envs=8), env)  # other shapes
    planning.choose(replace(TINY, discount=0.5), env)  # other code
    planning.choose(TINY, motet.make("Acrobot-v1"))
    planning.choose(TINY, env, again=True)
    assert len(measured) == 5
    for steps in (2, 2, 3):  # an environment of one's own whose code was changed
        planning.choose(TINY, motet.Gymnasium(lasting(steps)))
    assert len(measured) == 7
    folder = profiles.folder()
    assert folder is not None
    for file in folder.iterdir():
        file.write_text('{"calls": 3}')  # damaged
    planning.choose(TINY, env)
    assert len(measured) == 8


def lasting(steps: int) -> Callable[[], gymnasium.Env]:
    """An environment that is in no file, as in a notebook, and takes so many steps."""
    code = f"""
class Mine(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {{}}
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, {steps} > 2, False, {{}}
"""
    names: dict[str, Any] = {"gymnasium": gymnasium, "np": np, "__name__": "nowhere"}
    exec(code, names)
    return names["Mine"]


def test_calls_are_known_by_the_devices_that_run_them() -> None:
    """On a machine with accelerators their calls are measured, and those of parts that lie on processors too."""
    graph, plan = graph_of(), motet.coarse(1)
    moved = replace(plan, fragments={**plan.fragments, "actors": replace(plan.fragments["actors"], place="cpu:0")})
    assert {key.split()[0] for key, _ in items_of(graph, plan, "gpu")} == {"gpu"}
    kinds = {key.split()[0]: key for key, _ in items_of(graph, moved, "gpu")}
    assert kinds.keys() == {"gpu", "cpu"} and "unroll" in kinds["cpu"] and "gradient" in kinds["gpu"]
    machine = catalogue.a100_node()
    book = Book(graph, machine, Profile(calls={key: Fit(((4.0, 7.0),)) for key, _ in items_of(graph, moved, "gpu")}))
    assert estimate(graph, moved, book).iteration_seconds > 7.0
    assert not any("learner" in each or "actors" in each for each in estimate(graph, moved, book).modelled)


def test_connections_and_the_interpreter_are_said_to_be_modelled_where_nobody_measured_them() -> None:
    graph, plan = graph_of(TINY, "CartPole-v1", Cut(2, 1)), motet.coarse(2)
    whole = profile(graph, [plan])
    assert estimate(graph, plan, Book(graph, processors(2), whole)).word == "measured"
    partly = replace(whole, handling=0.0, reporting={})
    assert {"reports", "what Python does between requests"} <= set(predicted_of(graph, plan, partly).modelled)
    apart = replace(plan, fragments={**plan.fragments, "actors": replace(plan.fragments["actors"], place="cpu:0")})
    far = estimate(graph, replace(apart, fragments={**apart.fragments}), Book(graph, catalogue.a100_node()))
    assert "connections of devices" in far.modelled


def test_what_there_was_no_time_for_is_measured_when_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[float] = []

    def fake(*given: Any) -> Profile:
        measured.append(given[-2])
        return Profile(about={"seconds": "0.0", "left out": "coarse: no time was left"})

    monkeypatch.setattr(planning, "_measured", fake)
    for budget in (15.0, 15.0, 60.0, 15.0, 60.0):
        planning.choose(TINY, motet.make("CartPole-v1"), budget=budget)
    assert len(measured) == 2


def processors(cores: int) -> Machine:
    """A machine without accelerators."""
    return Machine("processors", cores, 1e11, (catalogue.processor("core", 1e11),))


def test_lag_is_not_taken_without_leave_and_what_is_given_up_is_said() -> None:
    """A learner and actors that take equally long: to overlap them would nearly double the speed."""
    algorithm = motet.PPO(num_envs=64, num_steps=32, update_epochs=8, num_minibatches=1, hidden=(64, 64))
    env, machine = motet.make("gymnasium/CartPole-v1"), processors(4)
    strict = planning.choose(algorithm, env, machine=machine, measure=False)
    assert strict.best.lag == 0 and strict.given_up is not None and strict.given_up.lag == 1
    free = planning.choose(algorithm, env, machine=machine, measure=False, lag=1)
    assert free.best.steps_per_second >= strict.given_up.steps_per_second > strict.best.steps_per_second
    careful = planning.choose(replace(TINY, num_envs=64), env, machine=machine, measure=False, lag=4)
    assert careful.best.lag == 0 and careful.given_up is None  # the algorithm cannot learn from lag
    stale = motet.IMPALA(num_envs=64, num_steps=32, hidden=(64, 64))  # says that it can learn from any lag
    assert planning.choose(stale, env, machine=machine, measure=False).best.lag == 1
    assert planning.choose(stale, env, machine=machine, measure=False, lag=0).best.lag == 0


def test_of_plans_that_are_about_as_good_the_simplest_is_taken() -> None:
    env, machine = motet.make("CartPole-v1"), processors(2)
    found = planning.choose(TINY, env, machine=machine, measure=False)
    one = next(each for each in found.estimates if each.plan.name == "anakin")
    other = next(each for each in found.estimates if search.size(each.plan) > search.size(one.plan))
    slightly, clearly = (replace(other, steps_per_second=one.steps_per_second * more) for more in (1.02, 1.2))
    assert _simplest_first((slightly, one), found.objective) == (one, slightly)
    assert _simplest_first((clearly, one), found.objective) == (clearly, one)
    said = why(replace(found, estimates=(one, slightly), given_up=None))
    assert "would be 2.0% better, which is too little for its additional parts." in said


def test_an_objective_that_nothing_meets_names_the_nearest() -> None:
    env = motet.make("CartPole-v1")
    with pytest.raises(BadOption, match=r"No plan meets throughput >= 1e\+12; the nearest is anakin\(\) with"):
        planning.choose(TINY, env, objective="throughput >= 1e12", measure=False)
    with pytest.raises(BadOption, match=r"the nearest is \w+\(.*\) with [\d.,e+]+ environment steps/J \(modelled\)"):
        planning.choose(TINY, env, objective="throughput-per-watt >= 1e12", measure=False)
    met = planning.choose(TINY, env, objective="throughput-per-watt", measure=False)
    assert met.best.steps_per_joule == max(each.steps_per_joule for each in met.estimates)
    fast = planning.choose(TINY, env, objective="time-per-update <= 1000", measure=False)
    assert fast.best.iteration_seconds == min(each.iteration_seconds for each in fast.estimates)


def test_what_does_not_fit_into_memory_is_no_choice() -> None:
    tiny = replace(processors(1), memory=1e3)
    with pytest.raises(BadOption, match="No plan fits into the memory"):
        planning.choose(TINY, motet.make("CartPole-v1"), machine=tiny, measure=False)


def test_choosing_repeats() -> None:
    first, second = (planning.choose(TINY, motet.make("CartPole-v1"), measure=False) for _ in range(2))
    assert first.estimates == second.estimates


# The command line.


def motet_says(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = main(list(args))
    out, err = capsys.readouterr()
    return code, out + err


A2C = ("a2c", "CartPole-v1", "--num-envs", "4", "--num-steps", "4", "--hidden", "8")


def test_motet_plan_shows_the_best_candidates_and_saves_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    code, said = motet_says(capsys, "plan", *A2C, "--no-profile", "--explain", "--save", str(file))
    assert code == 0
    assert "anakin() wins: an iteration takes" in said and "watts are modelled" in said
    assert "waits for" in said and "plans do not fit, among them:" in said
    assert Plan.from_json(file.read_text()).name == "anakin"
    code, said = motet_says(capsys, "plan", *A2C, "--plan", str(file))
    assert code == 0 and "many iterations are one compiled call" in said
    code, said = motet_says(capsys, "plan", *A2C, "--no-profile", "--objective", "throughput-per-watt")
    header = next(line for line in said.splitlines() if line.startswith("plan "))
    assert header.split() == ["plan", "steps/s", "bottleneck", "lag", "memory", "watts", "speed", "steps/J"]
    code, said = motet_says(capsys, "plan", *A2C, "--no-profile", "--json")
    assert json.loads(said)["name"] == "anakin"


def test_motet_plan_takes_machines_from_files_and_from_the_catalogue(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, said = motet_says(capsys, "plan", *A2C, "--machine", "a100-node", "--no-profile")
    assert code == 0 and "on a100-node" in said
    file = tmp_path / "mine.yaml"
    file.write_text(replace(catalogue.a100_node(), name="mine").to_text())
    code, said = motet_says(capsys, "plan", *A2C, "--machine", str(file), "--no-profile")
    assert code == 0 and "on mine" in said
    file.write_text(file.read_text().replace("cores: 128", "cores: -3").replace("kind: gpu", "kind: gpx"))
    code, said = motet_says(capsys, "plan", *A2C, "--machine", str(file), "--no-profile")
    assert code == 2 and "2 problems" in said and "cores must be a whole number" in said and "'gpx'" in said
    file.write_bytes(b"name: \xff\xfe")
    code, said = motet_says(capsys, "plan", *A2C, "--machine", str(file), "--no-profile")
    assert code == 2 and "is not text in UTF-8" in said
    code, said = motet_says(capsys, "plan", *A2C, "--machine", "a100")
    assert code == 2 and "Did you mean 'a100-node'" in said
    assert Machine.from_text(catalogue.a100_node().to_text()).cores == 128


# What was foretold, beside what came.


def test_a_run_says_what_was_foretold_beside_what_came_and_corrects_the_profile(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MOTET_PROFILE")  # as for users
    run = tmp_path / "run"
    code, said = motet_says(
        capsys, "train", *A2C, "--total-timesteps", "20_000", "--run-dir", str(run),
        "--evaluate-episodes", "0",
    )  # fmt: skip
    assert code == 0, said
    assert "predicted" in said and "measured" in said and "W modelled, " in said
    assert "planner: timing anakin" in said and "planner: chose " in said and "steps/s expected" in said
    found = Comparison.from_json((run / "prediction.json").read_text())
    assert found.predicted > 0 and found.measured > 0 and found.terms and found.profile
    assert all(math.copysign(1, each.predicted) > 0 for each in found.terms)  # or it would be shown as -0 ms
    before = planning.choose(TINY, motet.make("CartPole-v1"))
    assert before.from_cache and before.best.steps_per_second == pytest.approx(found.predicted)
    wrong = replace(found, terms=tuple(replace(each, measured=2 * each.predicted) for each in found.terms))
    (run / "prediction.json").write_text(wrong.to_json())
    code, said = motet_says(capsys, "calibrate", str(run))
    assert code == 0 and "takes 2.00 of what it was taken for" in said
    kept = profiles.load(found.profile)
    assert kept is not None and kept.about["calibrated"] == str(run)
    again = planning.choose(TINY, motet.make("CartPole-v1"))
    slower = estimate(again.graph, before.plan, again.book)
    assert again.from_cache and slower.iteration_seconds == pytest.approx(2 * before.best.iteration_seconds, rel=0.02)


def test_who_chooses_is_said_by_the_call_or_by_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wants_profile(True) and not wants_profile(False)
    monkeypatch.setenv("MOTET_PROFILE", "1")
    assert wants_profile(None) and not wants_profile(False)
    monkeypatch.setenv("MOTET_PROFILE", "0")
    assert not wants_profile(None) and wants_profile(True)
    monkeypatch.delenv("MOTET_PROFILE")
    assert wants_profile(None)


def test_where_the_planner_finds_nothing_the_rule_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard(motet.Callback):
        def __init__(self) -> None:
            self.said: list[str] = []

        def planning(self, text: str) -> None:
            self.said.append(text)

    def none(*_: Any, **__: Any) -> Any:
        raise BadOption("No plan fits")

    monkeypatch.setattr(planning, "choose", none)
    heard = Heard()
    result = motet.train(TINY, "CartPole-v1", total_timesteps=64, profile=True, callbacks=[heard], progress=False)
    assert heard.said == ["no plan was chosen, the usual rule holds: No plan fits"]
    assert result.plan.name == "anakin" and result.foretold is None
    motet.train(TINY, "CartPole-v1", motet.anakin(), total_timesteps=64, profile=True, progress=False)
    motet.train(TINY, "CartPole-v1", total_timesteps=64, profile=True, mode="serial", progress=False)
    assert len(heard.said) == 1  # a plan that is named is taken, and for debuggers there is nothing to choose


def lane(*spans: tuple[str, str, float, float]) -> Lane:
    return Lane("learner", "learner", tuple(Span(*span) for span in spans))  # type: ignore[arg-type]


def test_the_timeline_is_read_as_the_estimate_is_written() -> None:
    seen = parts_of(
        [
            lane(
                ("compute", "unroll", 0.0, 4.0),
                ("environments", "a step of the environments", 1.0, 2.5),
                ("send", "rollout: actors -> learner in iteration (0 -> 0)", 4.0, 5.0),
                ("wait", "policy: learner -> actors in iteration, carried (0 -> 0)", 5.0, 8.0),
                ("environments", "a step of the environments", 8.0, 10.0),
            )
        ],
        iteration=1.0,
    )
    assert seen["learner"] == pytest.approx({"unroll": 0.25, "environments": 0.35, "send rollout": 0.1})


def test_a_prediction_that_is_off_says_by_which_term() -> None:
    terms = (Term("actors", "unroll", 0.010, 0.011), Term("learner", "epochs", 0.010, 0.050, "calls x"))
    off = Comparison(1000.0, 500.0, terms, 10.0, None, "key")
    assert off.error == pytest.approx(1.0)
    assert "(+100%), most of all because of epochs of learner: 10 ms foretold, 50 ms measured" in off.warning
    assert Comparison(1000.0, 850.0, terms, 10.0, None).warning == ""
    assert "10 W modelled, not measured here" in off.lines()[-1]
    assert replace(off, measured_watts=12.0).lines()[-1].endswith("12 W measured")
    partly = replace(off, measured_watts=12.0, watts_without="gpu")  # which the plan used, and nothing counted
    assert partly.lines()[-1].endswith("12 W measured without gpu, for which nothing counts here")
    waits = (*terms, Term("actors", ELSE, 0.001, 0.030))  # for the learner, whose work explains more than half of it
    assert replace(off, terms=waits).worst == terms[1]
    assert replace(off, terms=(terms[0], waits[-1])).worst == waits[-1]
    carried = replace(off, links=(Carried("rollout: actors -> learner", 2e6, 1e6),))
    assert "rollout: actors -> learner" in carried.lines()[-3] and "1 MB/s" in carried.lines()[-3]
    assert Comparison.from_json(carried.to_json()) == carried
    nothing = Comparison(1000.0, 1000.0, (Term("all", "waiting", 1.6e-19, 0.001),), 10.0, None)
    assert "0 ms" in nothing.lines()[-3] and "e-" not in nothing.lines()[-3]
    profile = Profile({"x": Fit(((4.0, 0.01),)), "y": Fit(((4.0, 1.0),))})
    changed, corrected = corrections(off, profile)
    assert [term.what for term, _ in changed] == ["epochs"]
    assert corrected.calls == {"x": Fit(((4.0, 0.05),)), "y": Fit(((4.0, 1.0),))}


def test_a_run_in_parts_corrects_all_that_it_measured(tmp_path: Path) -> None:
    """Calls, steps of environments as they come there, messages; what no timeline shows is not taken for nothing."""
    plan = motet.sebulba(threads=1)
    algorithm = motet.IMPALA(num_envs=4, num_steps=8, hidden=(8,))
    env = motet.make("gymnasium/CartPole-v1")
    graph = trace(algorithm, env, iterations=200, cuts=(WHOLE, *plan.cuts()))
    known = profile(graph, [plan])
    predicted = predicted_of(graph, plan, known)
    result = motet.train(algorithm, env, plan, total_timesteps=32 * 400, progress=False)
    found = compare(graph, predicted, result)
    assert found is not None
    done = {(term.part, term.what): term for term in found.terms}
    assert all(term.measured > 0 for term in found.terms if term.what != ELSE), found.terms
    assert {("actors", "environments"), ("actors", "send rollout"), ("learner", "receive rollout")} <= done.keys()
    assert sum(term.predicted for term in found.terms if term.part == "actors") == pytest.approx(
        predicted.iteration_seconds
    )
    assert {each.link.partition(":")[0] for each in found.links} == {"policy", "rollout"}
    assert all(0.1 < each.measured / each.predicted < 10 for each in found.links)
    slow = replace(found, terms=tuple(replace(each, measured=2 * each.predicted) for each in found.terms))
    changed, corrected = corrections(slow, known)
    assert {term.what for term, _ in changed} == {term.what for term in found.terms if term.what != ELSE}
    asked = predicted_of(graph, plan, corrected)
    for name, part in asked.parts.items():
        for what, seconds in part.busy.items():
            if (name, what) in done and not what.startswith(("send", "receive")):
                assert seconds == pytest.approx(2 * done[name, what].predicted, rel=0.1), (name, what)
    for key, fit in known.messages.items():
        pairs = zip(fit.points, corrected.messages[key].points, strict=True)
        assert all(new == pytest.approx((size, 2 * seconds)) for (size, seconds), new in pairs)


def predicted_of(graph: Graph, plan: Plan, known: Profile) -> Estimate:
    return estimate(graph, plan, Book(graph, processors(2), known))


def test_a_run_that_no_planner_chose_for_cannot_calibrate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    motet.train(TINY, "CartPole-v1", total_timesteps=64, run_dir=run, progress=False)
    code, said = motet_says(capsys, "calibrate", str(run))
    assert code == 2 and "has no prediction.json" in said
    (run / "prediction.json").write_text("{}")
    assert "is damaged" in motet_says(capsys, "calibrate", str(run))[1]
