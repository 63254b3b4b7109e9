"""What a run costs that is watched, recorded and saved, beside the same run without any of it.

The difference that is asked for is smaller than what machines change by from one minute to the next. So both runs take
turns: every few seconds the one is stopped and the other goes on. Of each the time counts in which it was let run.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.claims import ROOT, Claim, Measurement, _environment

RUN = """
import os, tempfile, motet

class Marks(motet.Callback):
    "Says when the first tenth of the run is over, which warms up, and when nearly all of it is."
    marks = [{steps} // 10, {steps} * 19 // 20]
    def row(self, row):
        if self.marks and row["steps"] > self.marks[0]:
            del self.marks[0]
            os.write({pipe}, f"{{row['steps']}}\\n".encode())

algorithm = motet.{algorithm}(**{options})
more = {{"progress": False}}
with tempfile.TemporaryDirectory() as base:
    if {kept}:
        more = {{"progress": True, "run_dir": base + "/run", "checkpoint_seconds": {seconds}}}
    motet.train(algorithm, {env!r}, motet.anakin(), total_timesteps={steps}, callbacks=[Marks()], **more)
"""
TURN = 4.0
"""Seconds that one run has before it is the other's turn."""


class Side:
    """A run in a process of its own, and the time that it has had."""

    def __init__(self, code: str, settings: Mapping[str, Any]):
        read, write = os.pipe()
        self.marks: list[tuple[float, float]] = []
        """Steps, and seconds of its own until then."""
        self.had = 0.0
        self.since: float | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-c", code.format(pipe=write, **settings)],
            cwd=ROOT, env=_environment(TERMINAL), pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(write)
        self.stop()
        self.reader = threading.Thread(target=self._listen, args=(read,), daemon=True)
        self.reader.start()

    def _listen(self, pipe: int) -> None:
        with os.fdopen(pipe) as lines:
            for line in lines:
                self.marks.append((float(line), self.had + (time.monotonic() - (self.since or time.monotonic()))))

    def go(self) -> None:
        self.since = time.monotonic()
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        if self.since is not None:
            self.had += time.monotonic() - self.since
            self.since = None

    @property
    def over(self) -> bool:
        return self.process.poll() is not None

    def speed(self) -> float:
        self.reader.join()
        if self.process.returncode:
            assert self.process.stderr is not None
            raise RuntimeError(f"a measured process failed:\n{self.process.stderr.read().decode()}")
        (first, began), (last, ended) = self.marks
        return (last - first) / (ended - began)


def alternately(sides: Mapping[str, Side]) -> dict[str, float]:
    """Let two runs take turns until both are over -> how fast each was in its own time."""
    try:
        while not all(side.over for side in sides.values()):
            for side in sides.values():
                if not side.over:
                    side.go()
                    deadline = time.monotonic() + TURN
                    while time.monotonic() < deadline and not side.over:
                        time.sleep(0.02)
                    side.stop()
        return {name: side.speed() for name, side in sides.items()}
    finally:
        for side in sides.values():
            side.process.kill()
            side.process.wait()


def upkeep(settings: Mapping[str, Any]) -> Measurement:
    """The speed of a run with everything that is on by default, as a share of its speed with all of it off."""
    samples: dict[str, list[float]] = {"kept": [], "bare": []}
    given = {name: settings[name] for name in ("algorithm", "options", "env", "steps")}
    for _ in range(settings["rounds"]):
        # A run's own clock does not stop when it is stopped, which is half of the time.
        given["seconds"] = 2 * settings["checkpoint seconds"]
        sides = {name: Side(RUN, {**given, "kept": name == "kept"}) for name in samples}
        for name, speed in alternately(sides).items():
            samples[name].append(speed)
    ratios = [kept / bare for kept, bare in zip(samples["kept"], samples["bare"], strict=True)]
    return Measurement(statistics.median(ratios), samples, "environment steps/s", {})


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
"""What is shown is shown as on a terminal: the panel, and not lines."""
HOW = "metrics, table, TensorBoard, panel and checkpoints on, beside all of them off; in turns of 4 s, median of rounds"

CLAIMS = (
    Claim(
        "upkeep_ppo",
        {
            "algorithm": "PPO",
            "env": "CartPole-v1",
            "options": {"num_envs": 64, "num_steps": 128, "update_epochs": 4, "num_minibatches": 4, "hidden": (64, 64)},
            "steps": 6_000_000,  # a minute or so, so that there are checkpoints in it
            "checkpoint seconds": 30,
            "rounds": 3,
            "how": HOW,
        },
        upkeep,
        at_least=0.97,
    ),
    Claim(
        "upkeep_dqn",
        {
            "algorithm": "DQN",
            "env": "CartPole-v1",
            "options": {
                "num_envs": 1,
                "train_frequency": 1,
                "gradient_steps": 1,
                "batch_size": 64,
                "buffer_size": 1_000_000,
                "learning_starts": 1_000,
                "target_period": 50,
                "adam_epsilon": 0.01,
                "huber": None,
                "hidden": (64, 64),
            },
            "steps": 800_000,  # long enough for checkpoints, each of the replay whole
            "checkpoint seconds": 30,
            "rounds": 3,
            "how": HOW,
        },
        upkeep,
        at_least=0.97,
    ),
)
