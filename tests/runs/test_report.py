"""A run as a page: what is on it, that it needs nothing else, and that a damaged folder cannot speak through it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import motet
from motet import cli
from motet.runs.report import loop, timeline
from motet.runs.report.charts import chart, number
from motet.runs.report.page import Shown, page
from motet.runs.report.timeline import DrawnLane, DrawnSpan

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--hide-scrollbars")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run under a plan with two fragments, and its page."""
    folder = tmp_path_factory.mktemp("runs") / "cut"
    algorithm = motet.PPO(num_envs=4, num_steps=8, hidden=(8,), num_minibatches=2, update_epochs=1)
    motet.train(algorithm, "Catch-v0", motet.coarse(2, lag=1), total_timesteps=384, progress=False, run_dir=folder)
    assert cli.main(["report", str(folder), "--episodes", "2"]) == 0
    return folder


def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


class Page(HTMLParser):
    """What a page consists of."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_everything_is_on_the_page(made: Path) -> None:
    text = (made / "report.html").read_text()
    found = Page(text)
    words = " ".join(found.words)
    for each in ("PPO on Catch-v0", "return in evaluation", "coarse", "actors[0]", "actors[1]", "learner", "rollout",
                 "as predicted", "num_minibatches", "entropy", "computing", "sending"):  # fmt: skip
        assert each in words, each
    assert "Not shown" not in words and "differs" not in words
    assert sum(tag == "svg" for tag, _ in found.tags) >= 6
    films = [attrs["src"] for tag, attrs in found.tags if tag in ("video", "img")]
    assert len(films) == 1 and str(films[0]).startswith("data:")


def test_a_page_asks_for_nothing_and_runs_nothing(made: Path) -> None:
    found = Page((made / "report.html").read_text())
    assert not [tag for tag, _ in found.tags if tag in ("script", "link", "iframe", "object", "embed", "form", "a")]
    for tag, attrs in found.tags:
        assert not [name for name in attrs if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href", "action"):
            assert str(attrs.get(name) or "data:").startswith("data:"), (tag, name)
    (policy,) = [attrs["content"] for tag, attrs in found.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy).startswith("default-src 'none'")
    assert not re.search(r"url\((?!#)|@import", "".join(found.words))


def test_a_folder_cannot_speak_through_its_page(made: Path, tmp_path: Path) -> None:
    """Nothing of what somebody else's folder holds becomes a part of the page but as words."""
    run, evil = copied(made, tmp_path), "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
    config = json.loads((run / "config.json").read_text())
    config |= {"algorithm": evil, "environment": evil, "options": {evil: evil}}
    (run / "config.json").write_text(json.dumps(config))
    links = json.loads((run / "links.json").read_text())
    links["links"][0] |= {"link": evil, "source": evil, "rate": evil}
    (run / "links.json").write_text(json.dumps(links))
    told = json.loads((run / "timeline.json").read_text())
    told["lanes"][0] |= {"name": evil, "fragment": evil, "names": [evil] * len(told["lanes"][0]["names"])}
    (run / "timeline.json").write_text(json.dumps(told))
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"steps": 1, evil: 1.0}) + "\n")
    (run / "graph.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script><style>@import "x"</style>'
        '<image href="http://x"/><g onclick="x"><text style="background:url(http://x)">kept</text></g></svg>'
    )
    found = Page(page(run, Shown(evil, None, (evil,))))
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "image", "img"} and not [
        a for _, a in found.tags if any(n.startswith("on") for n in a)
    ]
    assert "kept" in found.words and not [a for _, a in found.tags if "http://x" in str(a)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("graph.svg", "<svg"),
        ("graph.svg", '<!DOCTYPE x [<!ENTITY a "a">]><svg xmlns="http://www.w3.org/2000/svg"/>'),
        ("links.json", "[]"),
        ("links.json", '{"links": [{}], "iterations": 1}'),
        ("timeline.json", "{}"),
        ("timeline.json", '{"lanes": [{"names": [], "spans": [["compute", 3, 0, 1]]}]}'),
        ("timeline.json", None),
        ("metrics.jsonl", ""),
    ],
)
def test_a_damaged_file_costs_its_part_alone(made: Path, tmp_path: Path, name: str, content: str | None) -> None:
    run = copied(made, tmp_path)
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content)
    words = " ".join(Page(page(run, Shown())).words)
    assert "Not shown" in words and "num_minibatches" in words


def test_bad_input_is_refused(made: Path, tmp_path: Path, capsys: Any) -> None:
    run = copied(made, tmp_path)
    for args, words in (
        ([tmp_path / "nowhere"], "There is no run's folder"),
        ([tmp_path], "is no run's folder"),
        ([run, "--episodes", "-1"], "--episodes must be at least 0"),
        ([run, "--episodes", "0", "--output", run / "config.json" / "page.html"], "cannot be written"),
    ):
        assert cli.main(["report", *map(str, args)]) == 2
        assert words in capsys.readouterr().err


def test_a_run_that_cannot_be_played_has_a_page_all_the_same(made: Path, tmp_path: Path) -> None:
    run = copied(made, tmp_path)
    (run / "policy.json").unlink()
    assert cli.main(["report", str(run), "--output", str(tmp_path / "page.html")]) == 0
    assert "Not played: " in (tmp_path / "page.html").read_text()


# The parts.


def test_a_chart_reaches_from_its_lowest_to_its_highest_value() -> None:
    root = ElementTree.fromstring(chart("loss", np.array([[0.0, -3.0], [10.0, 7.0]]), "steps"))
    (line,) = [each for each in root.iter("path") if each.get("class") == "line"]
    (x0, y0), (x1, y1) = (map(float, each.split()) for each in str(line.get("d"))[1:].split("L"))
    assert (x0, x1) == (50.0, 368.0) and y0 > y1
    ticks = [float(each.text or "") for each in root.iter("text") if each.get("class") == "tick y"]
    assert ticks[0] <= -3 and ticks[-1] >= 7
    for flat in (0.0, 5.0, -1e-9):
        assert "NaN" not in chart("flat", np.array([[1.0, flat]]), "steps").upper()
    assert [number(each) for each in (0.0, 1234.0, 12_345.0, 2.5e6, 0.00031)] == [
        "0",
        "1234",
        "12.3k",
        "2.5M",
        "0.00031",
    ]


def test_time_inside_a_program_is_the_environments() -> None:
    lane = DrawnLane("a", "a", (DrawnSpan("environments", "", 1, 3), DrawnSpan("compute", "", 0, 4)))
    assert lane.shares() == {"compute": 0.5, "environments": 0.5}


def test_a_timeline_is_of_when_all_are_looked_at() -> None:
    early = DrawnLane("a", "a", (DrawnSpan("wait", "", 0, 8), DrawnSpan("compute", "", 8, 10)))
    late = DrawnLane("b", "b", (DrawnSpan("compute", "", 6, 30),))
    cut = timeline.together([early, late])
    assert [(span.start, span.end) for lane in cut for span in lane.spans] == [(6, 8), (8, 10), (6, 10)]
    gone = DrawnLane("c", "c", (DrawnSpan("compute", "", 20, 21),))
    assert timeline.together([early, gone]) == [early, gone]


def test_the_loop_s_picture_keeps_all_its_shapes(made: Path) -> None:
    text = (made / "graph.svg").read_text()
    before, after = (ElementTree.fromstring(each) for each in (text, loop.inline(text)))
    for name in ("rect", "path", "text", "title", "marker"):
        assert len(list(before.iter(f"{loop.SVG}{name}"))) == len(list(after.iter(name))) > 0
    wanted = [str(each.get("fill")) for each in before.iter(f"{loop.SVG}rect")]
    assert wanted == [str(each.get("fill")) for each in after.iter("rect")]


# In a browser.


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")
@pytest.mark.parametrize("width", [360, 1200])
def test_a_browser_shows_it_without_any_trouble(made: Path, tmp_path: Path, width: int) -> None:
    """A script in a copy of it measures: its figures have a size, and nothing is wider than the window. (The window
    itself cannot be as narrow as a telephone everywhere, but the page can; its style asks for no window's width.)"""
    text = (made / "report.html").read_text()
    probe = """<script>addEventListener("load", () => {
      document.documentElement.style.width = "WIDTHpx";
      const right = each => each.getBoundingClientRect().right;
      const said = {beyond: document.documentElement.scrollWidth - innerWidth, figures: 0, empty: 0,
        film: !!document.querySelector("video,img"),
        wide: Math.max(...[...document.querySelectorAll("section,.card,.tile,p,h1,video,img")].map(right)),
        requests: performance.getEntriesByType("resource").filter(each => !each.name.startsWith("data:")).length};
      for (const each of document.querySelectorAll("svg")) {
        const box = each.getBoundingClientRect(); said.figures++; if (box.width < 100 || box.height < 50) said.empty++;
      }
      document.body.innerHTML = "<pre id=said>" + JSON.stringify(said) + "</pre>";
    })</script>""".replace("WIDTH", str(width))
    assert not re.search(r"@media[^{]*width", text)
    allowed = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';", 1)
    file = tmp_path / "probed.html"
    file.write_text(allowed.replace("</head>", f"{probe}</head>", 1))
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
               "--enable-logging=stderr", "--dump-dom", file.as_uri()]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'id="said">(.*?)</pre>', ran.stdout)
    assert found is not None, ran.stdout[-500:]
    said = json.loads(found[1])
    assert 0 < said["wide"] <= width and said["beyond"] <= 0, said
    assert said["figures"] >= 6 and said["empty"] == 0 and said["film"] and said["requests"] == 0, said
    assert "CONSOLE" not in ran.stderr, ran.stderr
