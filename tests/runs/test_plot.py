"""Curves of runs: which belong together, what is drawn of several, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import motet
from motet import cli
from motet.runs.curves import grouped, read_log, thinned, usual_metrics
from motet.runs.plot import plot, short_number, together
from motet.runs.report.page import Shown, page
from motet.runs.spread import bootstrap, iqm


def make_run(folder: Path, seed: int = 0, rows: int = 8, **options: Any) -> Path:
    """A run's folder as `train` leaves it."""
    folder.mkdir()
    config = {"algorithm": "ppo", "environment": "CartPole-v1", "environment_options": {}, "options": options}
    (folder / "config.json").write_text(json.dumps({**config, "seed": seed, "versions": {"jax": str(seed)}}))
    (folder / "plan.json").write_text('{"name": "anakin"}')
    lines = [
        {
            "iteration": k + 1,
            "steps": 10 * (k + 1),
            "seconds": seed + k,
            "return": None if not k else seed + k,
            "loss": -k,
        }
        for k in range(rows)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_interquartile_mean_leaves_out_both_quarters() -> None:
    assert iqm(np.array([[100.0], [1.0], [2.0], [3.0], [-50.0]])).tolist() == [2.0]
    assert iqm(np.array([[1.0], [2.0], [6.0]])).tolist() == [3.0]  # of three, none can be left out
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(iqm(values), np.sort(values, 0)[10:30].mean(0))


def test_the_band_lies_around_the_mean_and_narrows_with_more_runs() -> None:
    chance = np.random.default_rng(0)
    few, many = chance.normal(size=(5, 4)), chance.normal(size=(80, 4))
    widths = []
    for runs in (few, many):
        low, high = bootstrap([runs], samples=400)
        assert (low <= iqm(runs)).all() and (iqm(runs) <= high).all()
        widths.append((high - low).mean())
    assert widths[1] < widths[0] / 2
    assert all((one == other).all() for one, other in zip(bootstrap([few]), bootstrap([few]), strict=True))


def test_runs_are_drawn_from_their_own_stratum() -> None:
    """Two tasks of other scales: drawn together, a sample could be all of one of them."""
    low, high = bootstrap([np.zeros((4, 1)), np.full((4, 1), 10.0)], samples=200)
    assert low.tolist() == high.tolist() == [5.0]
    mixed = bootstrap([np.concatenate([np.zeros((4, 1)), np.full((4, 1), 10.0)])], samples=200)
    assert mixed[1] - mixed[0] > 3


def test_runs_that_differ_by_their_seeds_alone_belong_together(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"a{seed}", seed, clip=0.1) for seed in range(3)]
    runs += [make_run(tmp_path / f"b{seed}", seed, clip=0.2) for seed in range(2)]
    groups = grouped([read_log(run) for run in runs])
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("ppo, CartPole-v1, clip=0.1", 3),
        ("ppo, CartPole-v1, clip=0.2", 2),
    ]


def test_seconds_count_from_the_first_row(tmp_path: Path) -> None:
    run = read_log(make_run(tmp_path / "run", seed=7, rows=4))
    assert run.curve("return", "steps").tolist() == [[20, 8], [30, 9], [40, 10]]
    assert run.curve("return", "seconds").tolist() == [[1, 8], [2, 9], [3, 10]]


def test_curves_meet_as_far_as_all_of_them_reach() -> None:
    grid, values = together([np.array([[0.0, 0.0], [4.0, 4.0]]), np.array([[1.0, 10.0], [9.0, 18.0]])])
    assert (grid[0], grid[-1]) == (1.0, 4.0)
    np.testing.assert_allclose(values, [grid, grid + 9])


def test_long_curves_are_thinned_to_means() -> None:
    points = np.arange(4000.0).reshape(-1, 2)
    few = thinned(points, 100)
    assert len(few) == 100
    np.testing.assert_allclose(few.mean(0), points.mean(0))


def test_a_picture_has_a_panel_for_each_metric_and_axis(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(make_run(tmp_path / f"run{seed}", seed)) for seed in range(3)]
    assert cli.main(["plot", runs[0]]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "run0" / "plots" / "return.png")
    assert cli.main(["plot", *runs, "--metric", "return", "loss", "--over", "steps"]) == 0
    with Image.open("run0/plots/return.png") as one, Image.open("plot.png") as other:
        assert one.width > 1.5 * other.width and other.height > 1.5 * one.height
        colours = {tuple(colour) for colour in np.asarray(other.convert("RGB")).reshape(-1, 3)[::7].tolist()}
    assert (0x00, 0x72, 0xB2) in colours


def evaluated(run: Path, scores: list[float]) -> Path:
    """The run, with evaluations after every 20 steps."""
    rows = [
        {"iteration": 2 * k + 2, "steps": 20 * k + 20, "seconds": 0.5, "eval/return": score, "eval/return_std": 0.0}
        for k, score in enumerate(scores)
    ]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"iterat')
    return run


def test_evaluations_are_curves_too_over_the_steps_and_seconds_of_their_policies(tmp_path: Path, capsys: Any) -> None:
    run = evaluated(make_run(tmp_path / "run", seed=5), [3.0, 7.0])
    log = read_log(run)
    np.testing.assert_array_equal(log.curve("eval/return", "steps"), [[20, 3], [40, 7]])
    np.testing.assert_array_equal(log.curve("eval/return", "seconds"), [[1, 3], [3, 7]])
    assert usual_metrics([log]) == ("return", "eval/return")
    plain = make_run(tmp_path / "plain")
    assert usual_metrics([log, read_log(plain)]) == ("return",)
    assert cli.main(["plot", str(run)]) == cli.main(["plot", str(plain)]) == 0
    with Image.open(run / "plots/return.png") as two, Image.open(plain / "plots/return.png") as one:
        assert two.height > 1.5 * one.height  # a panel more
    assert cli.main(["plot", str(plain), "--metric", "eval/return"]) == 2
    assert "There is no metric in" in capsys.readouterr().err


def test_a_report_shows_evaluations(tmp_path: Path) -> None:
    run = evaluated(make_run(tmp_path / "run"), [3.0, 7.0])
    text = page(run, Shown())
    assert text.count("eval/return over") == 2 and text.count("in evaluations") == 2
    assert "eval/return_std over" in text
    assert "eval/" not in page(make_run(tmp_path / "plain"), Shown())


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda run: (run / "config.json").unlink(), [], "is no run's folder"),
        (lambda run: (run / "config.json").write_text("{"), [], "config.json is damaged"),
        (lambda run: (run / "config.json").write_text("[]"), [], "should hold an object"),
        (lambda run: (run / "metrics.jsonl").unlink(), [], "has nothing to show: it holds no rows"),
        (lambda run: (run / "metrics.jsonl").write_text(""), [], "has nothing to show"),
        (lambda run: (run / "metrics.jsonl").write_text('{"return": null}\n'), [], "rows hold no numbers"),
        (lambda run: (run / "metrics.jsonl").write_text('x\n{"return": 1}\n'), [], "line 1 is no row"),
        (lambda run: (run / "metrics.jsonl").write_text('[1]\n{"return": 1}\n'), [], "line 1 is no row"),
        (lambda run: None, ["--metric", "retrun"], "no metric in .*Did you mean 'return'. Known: loss, return"),
        (lambda run: None, ["--output", "plot.bmp"], "A plot is a .png, .svg, .pdf file"),
        (lambda run: None, ["--output", "run/config.json/plot.png"], "cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    tmp_path: Path, monkeypatch: Any, capsys: Any, change: Any, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    change(make_run(tmp_path / "run"))
    assert cli.main(["plot", "run", *options]) == 2
    said = capsys.readouterr().err
    assert re.search(words, said), said


def test_a_row_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", rows=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"steps": 40, "ret')
    assert len(read_log(folder).rows) == 3
    with pytest.raises(motet.BadOption, match="There is no folder"):
        read_log(tmp_path / "nowhere")
    with pytest.raises(motet.BadOption, match="at least one"):
        plot([], tmp_path / "plot.png")


def test_numbers_are_short() -> None:
    assert [short_number(each) for each in (0, 250, 2500, 1.5e6, 2e9)] == ["0", "250", "2.5k", "1.5M", "2G"]
