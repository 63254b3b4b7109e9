"""What a person sees of a run, with and without a terminal."""

from __future__ import annotations

import io
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import motet
from motet.runs import display
from motet.runs.display import Lines, Screen, line, live_display
from motet.runs.glyphs import bar, duration, moment, resample, size, sparkline

GRAPH = SimpleNamespace(algorithm="PPO", environment="CartPole-v1")


LINKS = [("rollout", "actors", "learner"), ("policy", "learner", "actors")]
USAGE = {
    "actors/iteration_seconds": 0.0123,
    "actors/computing": 0.5,
    "actors/waiting/learner": 0.4,
    "actors/waiting/environments": 0.1,
    "learner/iteration_seconds": 0.0123,
    "learner/computing": 1.0,
    "rollout/bytes_per_second": 12_300_000.0,
    "rollout/depth": 2.0,
    "rollout/lag": 0.0,
    "policy/bytes_per_second": 850.0,
    "policy/depth": 1.0,
    "policy/lag": 1.0,
    "compile_seconds": 3.21,
}


def run(plan, total_steps, **how):
    links = LINKS if len(plan.fragments) > 1 else []
    told = {"graph": GRAPH, "plan": plan, "total_steps": total_steps, "links": links, "how": how}
    told["waits"] = bool(links)
    return SimpleNamespace(**told, run_dir=Path("run"), notes=(), first_iteration=0, history=(), evaluations=())


def evaluation(steps, mean, best=False):
    curves = {"steps": steps, "eval/return": mean, "eval/return_std": 1.0}
    return SimpleNamespace(steps=steps, scores=f"return {mean}", is_best=best, row=lambda: curves)


def console(width=80, terminal=True, height=40):
    options = {"force_terminal": terminal, "width": width, "height": height, "record": True, "color_system": None}
    return Console(file=io.StringIO(), **options)


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
    lines.begin(run(motet.anakin(), 20_000))
    return lines, out


def shown(screen, width=80, height=40):
    """What the panel looks like now."""
    out = console(width, height=height)
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


@pytest.mark.parametrize(("width", "height"), [(40, 30), (60, 20), (80, 24), (120, 40), (60, 9), (60, 4)])
def test_the_panel_fits_its_terminal_and_never_changes_height(width, height):
    screen = Screen(console(width))
    screen.progress.begin(run(motet.coarse(), 20_000, eval_steps=100))
    pictures = [shown(screen, width, height)]
    screen.status("actors[0]: compiling unroll and a very long list of other things that have to be compiled as well")
    pictures.append(shown(screen, width, height))
    for tick in range(1, 200):
        screen.row(row(100 * tick, 0.5 * tick, score=float(tick)))
    pictures.append(shown(screen, width, height))
    screen.status("actors[0]: running unroll")
    screen.usage(USAGE)
    screen.evaluation(evaluation(10_000, 123_456.7, best=True))
    screen.checkpoint(7)
    pictures.append(shown(screen, width, height))
    rows = {len(picture.splitlines()) for picture in pictures}
    assert rows == {min(14, height - 1)}
    assert max(len(text) for picture in pictures for text in picture.splitlines()) <= width - 3
    assert all(f"{screen.progress.steps:,}/20,000 steps" in picture for picture in pictures[2:])


def test_the_panel_shows_what_is_known():
    screen = Screen(console())
    screen.progress.begin(run(motet.coarse(), 20_000))
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


@pytest.mark.parametrize("width", [120, 60])
def test_the_panel_shows_what_each_part_does_and_what_went_over_links(width):
    screen = Screen(console(width))
    screen.progress.begin(run(motet.coarse(), 20_000, eval_steps=100))
    screen.row({**row(1_000, 0.5), "restarts": 2})
    assert "eval   not yet" in shown(screen, width) and "not saved yet" in shown(screen, width)
    screen.usage(USAGE)
    screen.evaluation(evaluation(1_000, 20.0, best=True))
    screen.evaluation(evaluation(2_000, 10.0))
    screen.checkpoint(7)
    wide = (
        "actors   ██████████··········  50% computing  waits for learner 40%, environments 10%  12.3 ms an iteration",
        "learner  ████████████████████ 100% computing",
        "rollout  actors → learner",
        "12.3 MB/s   depth 2   lag 0",
        "850 B/s   depth 1   lag 1",
        "eval   10.0 ± 1.0  █▁",
        "best 20.0 at 1k",
        "saved 0s ago   restarts 2   compiled 3.21 s",
    )
    narrow = ("actors   ████····  50%  learner 40%, enviro", "12.3 ms", "850 B/s   depth 1   lag 1", "restarts 2")
    for words in wide if width == 120 else narrow:
        assert words in re.sub(r"(?<=%)  +(?=12)", "  ", shown(screen, width)), shown(screen, width)


def test_a_run_of_one_part_says_how_long_an_iteration_takes():
    screen = Screen(console())
    screen.progress.begin(run(motet.anakin(), 20_000))
    screen.row(row(1_000, 0.5))
    screen.usage({"all/iteration_seconds": 0.000085, "compile_seconds": 3.0})
    picture = shown(screen)
    assert "85 us an iteration" in picture and "compiled 3 s" in picture and len(picture.splitlines()) == 7
    assert "eval" not in picture


def test_a_heart_beats_when_nothing_comes_to_its_end():
    clock = Clock()
    screen = Screen(console())
    screen.progress.clock = clock
    screen.progress.begin(run(motet.coarse(), 20_000))
    screen.status("learner: compiling targets")
    clock.now = 12.4
    assert "compiling targets for learner, 12s" in shown(screen)
    screen.status("learner: running targets")
    screen.row(row(1_000, 0.5))
    clock.now = 16.0
    screen.row(row(2_000, 4.0))
    clock.now = 28.0
    assert "nothing new" not in shown(screen)  # its rows are a few seconds apart
    clock.now = 36.0
    assert "nothing new for 20s; learner: running targets" in shown(screen)
    screen.end()
    assert "nothing new" not in shown(screen)


def test_a_run_that_goes_on_shows_what_was_before():
    screen = Screen(console())
    begun = run(motet.anakin(), 20_000, eval_steps=100)
    begun.history, begun.first_iteration = [row(1_000 * tick, float(tick), score=float(tick)) for tick in (1, 2, 3)], 30
    begun.evaluations = [evaluation(1_000, 20.0).row(), evaluation(2_000, 10.0).row()]
    screen.progress.begin(begun)
    picture = shown(screen)
    for words in (
        "3,000/20,000 steps",
        "return 3.0  ▁▅█",
        "9 episodes",
        "eval   10.0",
        "best 20.0 at 1k",
        "saved 0s ago",
    ):
        assert words in picture
    assert "steps/s" not in picture  # of which nothing is known yet


def test_in_a_pipe_a_heart_beats_too_ever_more_slowly():
    clock = Clock()
    lines, out = plain(clock)
    lines.status("compiling the training loop")
    for now in range(100):
        clock.now = float(now)
        lines.beat()
    lines.end()
    assert [text for text in out.export_text().splitlines() if "loop" in text] == [
        f"compiling the training loop, {when}" for when in ("10s", "30s", "1m10s")
    ]


def test_in_a_pipe_evaluations_and_the_wish_to_stop_have_a_line():
    lines, out = plain(Clock())
    lines.evaluation(evaluation(2_000, 10.0, best=True))
    lines.status("stopping after this iteration, to save the run")
    printed = out.export_text().splitlines()
    assert printed[1].startswith("evaluation after 2,000 steps: ") and printed[1].endswith("the best so far")
    assert printed[2].startswith("stopping after this iteration")


def test_whoever_leaves_a_pipe_takes_no_run_along(capsys):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as broken:
        lines = live_display(display.Plain(file=broken, force_terminal=False))
        lines.begin(run(motet.anakin(), 20_000))
        lines.row(row(1_000, 0.5))
        lines.end()
        assert capsys.readouterr().err == f"motet: {display.UNREAD}\n"
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # what is left in the buffer goes nowhere


def test_drawing_takes_a_small_part_of_the_time():
    """Two pictures a second, of the largest kind, take less than 2% of a core."""
    screen = Screen(console(120))
    screen.progress.begin(run(motet.coarse(), 20_000, eval_steps=100))
    for tick in range(1, 2_000):
        screen.row(row(100 * tick, 0.5 * tick, score=float(tick)))
    screen.usage(USAGE)
    out = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    screen.console = out
    seconds = []
    for _ in range(10):
        began = time.process_time()
        out.print(screen.render())
        seconds.append(time.process_time() - began)
    assert min(seconds) * display.REFRESHED < 0.02


def test_the_panel_says_compiling_only_while_something_is_compiled():
    screen = Screen(console())
    screen.progress.begin(run(motet.coarse(), 20_000))
    for replica in (0, 1):
        screen.status(f"actors[{replica}]: compiling unroll")
    screen.status("learner: compiling targets + epochs")
    assert "compiling unroll for actors, targets + epochs for learner" in shown(screen)
    for who in ("actors[0]", "actors[1]"):
        screen.status(f"{who}: running unroll")
    assert "compiling targets + epochs for learner" in shown(screen)
    screen.status("learner: running targets + epochs")
    assert "compiling t" not in shown(screen)
    screen.status("compiling the training loop")
    assert re.search(r"[⠀-⣿] compiling the training loop", shown(screen))


def test_the_live_panel_takes_rows_from_many_threads_and_ends_twice():
    out = console()
    screen = live_display(out)
    screen.begin(run(motet.anakin(), 1_000))

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
    screen.progress.begin(run(motet.anakin(), 10_000))
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
    screen.progress.begin(run(motet.anakin(), 1_000))
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


def test_shares_times_and_sizes_are_short():
    assert [bar(share, 4) for share in (0.0, 0.03125, 0.5, 1.0, 2.0)] == ["    ", "▏   ", "██  ", "████", "████"]
    assert [moment(each) for each in (0.0, 8.5e-5, 0.0123, 1.2)] == ["0 us", "85 us", "12.3 ms", "1.2 s"]
    assert [size(each) for each in (0.0, 850.0, 12_300.0, 1.2e6, 3.45e9)] == [
        "0 B", "850 B", "12.3 kB", "1.2 MB", "3.45 GB",
    ]  # fmt: skip


@pytest.mark.parametrize(("seconds", "words"), [(2.4, "2s"), (59.7, "1m00s"), (125, "2m05s"), (3720, "1h02m")])
def test_durations_are_short(seconds, words):
    assert duration(seconds) == words


def test_the_live_display_says_what_the_planner_does_above_its_panel():
    out = console(width=60)
    screen = Screen(out)
    screen.planning("chose coarse(2), 1,000 steps/s expected [measured]")
    screen.planning("It keeps to lag 0: " + "a long sentence " * 6)
    said = out.export_text().splitlines()
    assert said[0] == "planner: chose coarse(2), 1,000 steps/s expected [measured]"  # no markup
    assert len(said) == 2 and not screen.live.is_started  # one line, however narrow the terminal is
