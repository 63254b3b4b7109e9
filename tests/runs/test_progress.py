"""What a person sees of a run, with and without a terminal."""

from __future__ import annotations

import io
import re
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

import motet
from motet.runs.progress import Lines, Screen, duration, line, live_display, resample, sparkline

GRAPH = SimpleNamespace(algorithm="PPO", environment="CartPole-v1")


def console(width=80, terminal=True):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, record=True, color_system=None)


def row(steps, seconds, score=100.0, **more):
    return {
        "iteration": steps // 100,
        "steps": steps,
        "seconds": seconds,
        "steps_per_second": 1000,
        "episodes": 3,
        "return": score,
        "length": score,
        "policy_loss": -0.01,
        "entropy": 0.69,
        "loss": 0.314159,
        **more,
    }


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def plain(clock):
    out = console(terminal=False)
    lines = Lines(out, interval=5.0, clock=clock)
    lines.begin(GRAPH, motet.anakin(), 20_000)
    return lines, out


def shown(screen, width=80):
    """What the panel looks like now."""
    out = console(width)
    screen.console = out
    out.print(screen.render())
    return out.export_text()


def test_the_display_follows_the_terminal():
    assert isinstance(live_display(console(terminal=True)), Screen)
    assert isinstance(live_display(console(terminal=False)), Lines)


def test_without_a_terminal_there_is_a_line_every_few_seconds_and_a_last_one():
    clock = Clock()
    lines, out = plain(clock)
    for tick in range(1, 41):
        clock.now = 0.5 * tick
        lines.row(row(500 * tick, clock.now))
    lines.end()
    printed = out.export_text(clear=False).splitlines()
    assert printed[0] == "PPO on CartPole-v1, plan anakin, 20,000 steps"
    assert [text.split("/")[0] for text in printed[1:]] == [
        "steps 500",
        "steps 5,500",
        "steps 10,500",
        "steps 15,500",
        "steps 20,000",
    ]
    assert printed[2] == "steps 5,500/20,000  1,000 steps/s  return 100.0  loss 0.314  left 14s"
    assert "left" not in printed[-1]
    assert "\x1b" not in out.file.getvalue()


def test_without_a_terminal_the_last_row_is_not_printed_twice():
    lines, out = plain(Clock())
    lines.row(row(20_000, 1.0))
    lines.end()
    lines.end()
    assert out.export_text().count("20,000/20,000") == 1


def test_without_a_terminal_compiling_is_said_once():
    lines, out = plain(Clock())
    for text in ("actors[0]: compiling unroll", "actors[0]: running unroll", "learner: compiling targets"):
        lines.status(text)
    assert out.export_text().splitlines()[1:] == ["compiling"]


def test_a_run_that_reports_nothing_ends_quietly():
    lines, out = plain(Clock())
    lines.end()
    assert len(out.export_text().splitlines()) == 1


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_panel_fits_its_terminal_and_never_changes_height(width):
    screen = Screen(console(width))
    screen.progress.begin(GRAPH, motet.coarse(), 20_000)
    pictures = [shown(screen, width)]
    screen.status("actors[0]: compiling unroll and a very long list of other things that have to be compiled as well")
    pictures.append(shown(screen, width))
    for tick in range(1, 200):
        screen.row(row(100 * tick, 0.5 * tick, score=float(tick)))
    pictures.append(shown(screen, width))
    screen.status("actors[0]: running unroll")
    pictures.append(shown(screen, width))
    assert {len(picture.splitlines()) for picture in pictures} == {6}
    assert max(len(text) for picture in pictures for text in picture.splitlines()) <= width


def test_the_panel_shows_what_is_known():
    screen = Screen(console())
    screen.progress.begin(GRAPH, motet.coarse(), 20_000)
    for tick in range(1, 11):
        screen.row(row(1000 * tick, 0.5 * tick, score=10.0 * tick))
    picture = shown(screen)
    for words in (
        "PPO on CartPole-v1, plan coarse",
        "10,000/20,000 steps  50%",
        "2,000 steps/s",
        "left 5s",
        "return 100.0  ▁▂▃▃▄▅▆▆▇█",
        "30 episodes",
        "loss 0.314  policy_loss -0.01  entropy 0.69",
    ):
        assert words in picture


def test_the_panel_says_compiling_only_while_something_is_compiled():
    screen = Screen(console())
    screen.progress.begin(GRAPH, motet.coarse(), 20_000)
    for replica in (0, 1):
        screen.status(f"actors[{replica}]: compiling unroll")
    screen.status("learner: compiling targets + epochs")
    assert "compiling unroll for actors, targets + epochs for learner" in shown(screen)
    for who in ("actors[0]", "actors[1]"):
        screen.status(f"{who}: running unroll")
    assert "compiling targets + epochs for learner" in shown(screen)
    screen.status("learner: running targets + epochs")
    assert "compiling" not in shown(screen)
    screen.status("compiling the training loop")
    assert re.search(r"[⠀-⣿] compiling the training loop", shown(screen))


def test_the_live_panel_takes_rows_from_many_threads_and_ends_twice():
    out = console()
    screen = live_display(out)
    screen.begin(GRAPH, motet.anakin(), 1_000)

    def work(which):
        for tick in range(50):
            screen.status(f"actors[{which}]: {'compiling' if tick % 2 else 'running'} unroll")
            screen.row(row(1_000, 1.0))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    screen.end()
    screen.end()
    assert screen.progress.episodes == 4 * 50 * 3
    assert "1,000/1,000 steps 100%" in out.export_text()
    assert threading.active_count() == 1 or not any("Live" in type(t).__name__ for t in threading.enumerate())


def test_a_long_curve_takes_bounded_memory():
    screen = Screen(console())
    for tick in range(3_000):
        screen.row(row(tick, float(tick), score=float(tick)))
    curve = screen.progress.curve
    assert len(curve) <= 1024
    assert curve == sorted(curve) and curve[-1][0] > 2_980


def test_a_curve_is_even_in_steps_though_later_rows_are_rarer():
    many = [(float(steps), 0.0) for steps in range(100)]
    few = [(float(steps), 1.0) for steps in range(100, 201, 10)]
    assert sparkline(many + few, 8) == "▁▁▁▁████"


def test_time_left_does_not_count_compiling():
    """A program that is compiled in mid-run, as a phase's first one is, does not make what comes after look slow."""
    screen = Screen(console())
    screen.progress.begin(GRAPH, motet.anakin(), 10_000)
    screen.status("compiling the training loop")
    screen.status("running the training loop")
    screen.row(row(1_000, 20.0))
    screen.row(row(2_000, 21.0))
    assert screen.progress.left == 8.0
    screen.status("compiling phase")
    assert screen.progress.first is None
    screen.status("running phase")
    screen.row(row(3_000, 51.0))
    screen.row(row(4_000, 52.0))
    assert screen.progress.left == 6.0


def test_the_first_line_says_how_fast_it_goes():
    """A row an iteration: the first comes before any speed is known, and would be all that is said for five seconds."""
    clock = Clock()
    lines, out = plain(clock)
    lines.row(row(500, 8.0, steps_per_second=None))
    lines.row(row(1_000, 8.5))
    assert [text for text in out.export_text().splitlines() if text.startswith("steps")] == [
        "steps 1,000/20,000  1,000 steps/s  return 100.0  loss 0.314  left 19s"
    ]


def test_the_line_leaves_out_what_is_not_known():
    screen = Screen(console())
    screen.progress.begin(GRAPH, motet.anakin(), 1_000)
    screen.row({"steps": 10, "seconds": 1.0, "steps_per_second": None, "episodes": 0, "return": None, "length": None})
    assert line(screen.progress) == "steps 10/1,000"


def test_a_sparkline_goes_from_the_lowest_to_the_highest():
    assert sparkline([(step, step) for step in range(8)], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([(0, 5), (1, 5), (2, 5)], 8) == "▁▁▁"
    assert sparkline([], 8) == ""


@pytest.mark.parametrize(("count", "most"), [(0, 4), (3, 4), (4, 4), (9, 4), (1000, 7)])
def test_resampling_keeps_the_mean_of_equal_stretches(count, most):
    values = [(float(step), float(step)) for step in range(count)]
    points = resample(values, most)
    assert len(points) == min(count, most)
    assert points == sorted(points)
    if count <= most:
        assert points == values


@pytest.mark.parametrize(("seconds", "words"), [(2.4, "2s"), (59.7, "1m00s"), (125, "2m05s"), (3720, "1h02m")])
def test_durations_are_short(seconds, words):
    assert duration(seconds) == words
