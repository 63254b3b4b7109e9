"""What a run's folder says of its parts: the picture of the loop, the links, and the timeline."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import motet
from motet.engine.timeline import Lane, Span
from motet.runs.anatomy import timeline

SMALL = motet.PPO(num_envs=4, num_steps=8, hidden=(8,), num_minibatches=2, update_epochs=1)


def test_times_are_written_from_the_first_moment_on() -> None:
    one = Lane("a", "a", (Span("compute", "x", 10.0, 10.5), Span("wait", "y", 10.5, 11.0)))
    other = Lane("b", "b", (Span("compute", "x", 10.25, 10.75),))
    told = timeline((one, other))
    assert [lane["spans"] for lane in told["lanes"]] == [
        [["compute", 0, 0, 500_000], ["wait", 1, 500_000, 1_000_000]],
        [["compute", 0, 250_000, 750_000]],
    ]
    assert timeline(()) == {"unit": "microseconds", "lanes": []}


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> motet.Result:
    folder = tmp_path_factory.mktemp("runs") / "cut"
    plan = motet.coarse(actors=2, lag=1)
    return motet.train(SMALL, "CartPole-v1", plan, total_timesteps=256, progress=False, run_dir=folder)


def folder(result: motet.Result) -> Path:
    assert result.run_dir is not None
    return result.run_dir


def test_links_are_told_as_predicted_and_as_counted(cut: motet.Result) -> None:
    told = json.loads((folder(cut) / "links.json").read_text())
    assert told["iterations"] == 8
    assert {(row["link"], row["source"], row["target"]) for row in told["links"]} == {
        ("rollout", "actors", "learner"),
        ("policy", "learner", "actors"),
    }
    for row in told["links"]:
        assert row["measured"] == row["predicted"] and row["measured"]["bytes"] > 0
    assert {row["link"]: row["ages"] for row in told["links"]}["policy"].keys() == {"1"}


def test_the_timeline_is_the_result_s(cut: motet.Result) -> None:
    told = json.loads((folder(cut) / "timeline.json").read_text())
    assert told == timeline(cut.timeline) and all(lane["spans"] for lane in told["lanes"])


def test_the_loop_is_drawn_with_its_fragments(cut: motet.Result) -> None:
    root = ElementTree.fromstring((folder(cut) / "graph.svg").read_text())
    words = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"actors", "learner", "act", "gradient"} <= words
    colours = {
        text.text: rect.get("fill")
        for group in root.iter("{http://www.w3.org/2000/svg}g")
        for rect in group.findall("{*}rect")
        for text in group.findall("{*}text")
    }
    assert colours["act"] == colours["env"] != colours["gradient"] == colours["apply"]


def test_a_file_that_cannot_be_written_costs_the_run_nothing_else(tmp_path: Path) -> None:
    run = tmp_path / "run"

    class Hinder(motet.Callback):
        def begin(self, run: object) -> None:
            (tmp_path / "run" / "links.json").mkdir()

    result = motet.train(SMALL, "CartPole-v1", total_timesteps=64, progress=False, run_dir=run, callbacks=[Hinder()])
    assert (run / "timeline.json").is_file() and (run / "policy.json").is_file()
    assert result.run_dir == run
