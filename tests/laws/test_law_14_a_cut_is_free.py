"""Law 14: between two iterations of every worker lies a consistent cut of the whole run, and nobody waits to take it.

The run that gives the cut goes on to its end. Another one goes on from the file. Both must be one trajectory, bit for
bit: what workers hold, what lies in replays, what was sent, and every metric.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
from motet.algorithms.impala import IMPALA
from motet.engine.assemble import Assembly, Programs, Settings
from motet.engine.cut import load
from motet.engine.cutter import Cutter
from motet.engine.packing import pack, unpack
from motet.engine.place import devices_for
from motet.engine.run import Outcome, Reporter, finish, prepare
from motet.errors import MotetError
from motet.flow.graph import Graph
from motet.plan.plan import Plan
from motet.runs import checkpoints
from motet.runs.metrics import Meter, Row
from tests.laws.cases import ALGORITHMS, assert_identical, traced
from tests.laws.test_law_5_lag_is_exact import jitter
from tests.sharing import sharing

ROUNDS = 7
KNOWN = {
    **ALGORITHMS,
    "ppo-gru": replace(ALGORITHMS["ppo"], core="gru", core_size=8, normalize_observation=True),
    "impala": IMPALA(num_envs=8, num_steps=5, hidden=(16,)),
}
CASES: dict[str, tuple[str, Plan]] = {
    "ppo-anakin": ("ppo", motet.anakin()),
    "ppo-anakin-2": ("ppo", motet.anakin(2)),
    "ppo-coarse": ("ppo", motet.coarse(2)),
    "ppo-coarse-lag": ("ppo", motet.coarse(2, lag=1)),
    "ppo-coarse-lag-3": ("ppo", motet.coarse(2, lag=3)),
    "ppo-fine": ("ppo", motet.fine(2)),
    "ppo-sebulba": ("ppo", motet.sebulba(lag=1)),
    "ppo-gru-anakin": ("ppo-gru", motet.anakin()),
    "ppo-gru-coarse-lag": ("ppo-gru", motet.coarse(2, lag=1)),
    "a2c-central": ("a2c", motet.central(2)),
    "impala-coarse-lag": ("impala", motet.coarse(2, lag=1)),
    "sac-anakin": ("sac", motet.anakin()),
    "sac-pearl": ("sac", motet.pearl(2, lag=1)),
    "dqn-central": ("dqn", motet.central(2)),
    "dqn-anakin": ("dqn-prioritised", motet.anakin()),
    "dqn-pearl-2": ("dqn-prioritised", motet.pearl(2, lag=1, prefetch=2)),
    "dqn-pearl-host": ("dqn-prioritised", motet.pearl(lag=1, prefetch=2, replay="host")),
    "dqn-pearl-opencl": ("dqn-prioritised", motet.pearl(lag=1, prefetch=1, replay="opencl:0")),
}
_programs: dict[str, Programs] = {}


@dataclass
class Ran:
    """A run that came to its end."""

    graph: Graph
    assembly: Assembly
    outcome: Outcome
    rows: list[Row]
    replays: list[dict[str, np.ndarray]]

    def everything(self) -> Any:
        """All that two runs of one trajectory have in common: not how long it took."""
        rows = [{name: row[name] for name in row if name not in ("seconds", "steps_per_second")} for row in self.rows]
        held = [each.worker.state().variables for each in self.assembly.performers]
        return held, self.replays, rows, self.outcome.links


def ran(
    case: str, start: checkpoints.Checkpoint | None = None, on_cut: Callable[[Any], None] = lambda cut: None
) -> Ran:
    """Run a case, from a checkpoint if there is one, taking cuts wherever it can."""
    name, plan = CASES[case]
    graph = traced(KNOWN[name], plan, iterations=ROUNDS)
    meter = Meter(graph.steps_per_iteration, graph.prefill_steps, lambda row: None, lambda text: None)
    reporter = Reporter(graph, plan, meter, jitter(3))
    meter.use(reporter.columns.names, reporter.columns.every)
    cutter = Cutter(reporter, lambda iteration: iteration > 1, on_cut, meter.state)
    reporter.visitors, reporter.on_told = [cutter], cutter.rows_told
    shared = _programs.setdefault(case, {})
    assembly = prepare(graph, plan, devices_for(plan), reporter, Settings(seed=3), shared)
    if start is not None:
        cut = unpack(start.told["cut"], start.arrays)
        load(assembly, cut)
        meter.load(cut.iteration, cut.watched, start.told["history"])
    replays: list[dict[str, np.ndarray]] = []
    closing = [each.replay.close for each in assembly.performers]
    for each, close in zip(assembly.performers, closing, strict=True):

        def note(replay: Any = each.replay, close: Any = close) -> None:
            replays.append(replay.store.state() if replay.store else {})
            close()

        each.replay.close = note  # type: ignore[method-assign]
    outcome = finish(assembly, reporter, ROUNDS)
    meter.finish()
    return Ran(graph, assembly, outcome, list(meter.history), replays)


def saved(case: str, folder: Path) -> tuple[Ran, list[Path]]:
    """A run that goes to its end, and the checkpoints that it left on its way."""

    def save(cut: Any) -> None:
        told, arrays = pack(cut)
        checkpoints.save(folder, cut.iteration, {"cut": told}, arrays)

    return ran(case, on_cut=save), checkpoints.all_of(folder)


def read(path: Path, whole: Ran) -> checkpoints.Checkpoint:
    """A checkpoint, with the rows that a run's folder has of the time before it."""
    found = checkpoints.read(path)
    iteration = found.told["cut"]["iteration"]
    history = [row for row in whole.rows if int(row["iteration"] or 0) <= iteration]
    return replace(found, told={**found.told, "history": history})


@pytest.mark.parametrize("case", [pytest.param(case, marks=sharing(f"cut-{case}")) for case in CASES])
def test_whoever_goes_on_from_a_cut_goes_the_same_way(case: str, tmp_path: Path) -> None:
    whole, paths = saved(case, tmp_path)
    numbers = [int(path.name) for path in paths]
    assert numbers[-1] == ROUNDS and len(numbers) >= 2, numbers
    for path in {paths[0], paths[len(paths) // 2]}:
        resumed = ran(case, read(path, whole))
        assert_identical(whole.everything(), resumed.everything())


def parts(arrays: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """What a checkpoint consists of: the arrays of each variable and message, and each array of a replay."""
    found: dict[str, list[str]] = {}
    for name in arrays:
        found.setdefault(name if "/replay/" in name else name.rpartition("/")[0], []).append(name)
    return found


@pytest.mark.parametrize("case", ["ppo-gru-coarse-lag", "dqn-pearl-host"])
def test_nothing_of_a_cut_can_be_spared(case: str, tmp_path: Path) -> None:
    """With any one part left out a run does not begin; with any one emptied it goes another way."""
    whole, paths = saved(case, tmp_path)
    expected, original = whole.everything(), read(paths[0], whole)
    for part, names in parts(original.arrays).items():
        without = {name: array for name, array in original.arrays.items() if name not in names}
        with pytest.raises(MotetError, match="lacks"):
            ran(case, replace(original, arrays=without))
        if part.endswith(("/variable/policy", "/variable/priorities")) and not part.startswith("learner"):
            continue  # the message that is due at once replaces it
        if not any(original.arrays[name].any() for name in names):
            continue  # nothing is in it yet
        emptied = {name: np.zeros_like(original.arrays[name]) for name in names}
        try:
            resumed = ran(case, replace(original, arrays={**original.arrays, **emptied}))
        except MotetError:
            continue
        with pytest.raises(AssertionError):
            assert_identical(expected, resumed.everything())


@pytest.mark.parametrize("what", ["watched", "messages", "traffic"])
def test_what_a_cut_says_counts_too(what: str, tmp_path: Path) -> None:
    """Sums and windows of metrics, messages under way, what the links have carried."""
    case = "ppo-gru-coarse-lag"
    whole, paths = saved(case, tmp_path)
    original = read(paths[-2], whole)  # when episodes have ended
    told = json.loads(json.dumps(original.told))
    arrays = dict(original.arrays)
    if what == "watched":
        told["cut"]["watched"].update(
            window=[], total=[0.0, 0.0, 0.0], sums=[0.0] * len(told["cut"]["watched"]["sums"])
        )
    else:
        for share in told["cut"]["workers"].values():
            share[what] = {}
        arrays = {name: array for name, array in arrays.items() if what != "messages" or "/message/" not in name}
    if what == "messages":
        with pytest.raises(MotetError, match="should be under way"):
            ran(case, replace(original, told=told, arrays=arrays))
        return
    with pytest.raises(AssertionError):
        assert_identical(whole.everything(), ran(case, replace(original, told=told, arrays=arrays)).everything())
