"""The journey of a transition is as `docs/architecture.md` tells it: the files it passes, and how often it changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import motet
from motet.engine.assemble import Settings, assemble
from motet.engine.environments import Environments
from motet.engine.serial import drive
from tests.laws.cases import traced

SOURCE = Path(motet.__file__).parent
TOLD = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
ALGORITHM = motet.PPO(num_envs=8, num_steps=4, num_minibatches=2, update_epochs=1, hidden=(8,))


def told(what: str) -> set[str]:
    """The files that a point of the journey names."""
    (text,) = re.findall(rf"^- \*\*{what}(.*?)(?=^- |^\n)", TOLD, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(\w+\.py)`", text))


class Follower:
    """Writes down, call by call and return by return, in which file of motet a thread is."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event in ("call", "return"):
            where = frame if event == "call" else frame.f_back
            while where is not None and not where.f_code.co_filename.startswith(str(SOURCE)):
                where = where.f_back
            if where is not None:
                name = str(Path(where.f_code.co_filename).relative_to(SOURCE))
                self.files += [name] if not self.files or self.files[-1] != name else []

    def requests(self) -> Iterator[list[str]]:
        """From one question of a worker to the next."""
        text = " ".join(self.files).split(" engine/worker.py ")
        yield from (part.split() for part in text)


def followed(plan: motet.Plan, env: motet.Environment | motet.Gymnasium, worker: str) -> Follower:
    """One iteration of a worker, after all has been compiled."""
    graph, seen = traced(ALGORITHM, plan, env, iterations=12), Follower()

    def on_done(performer: Any, done: Any) -> None:
        if performer.worker.name == worker:
            sys.setprofile(seen if done.iteration == 9 else None)

    assembly = assemble(graph, plan, {"cpu": jax.devices()}, Settings(), on_done=on_done)
    try:
        drive(assembly, 12)
    finally:
        sys.setprofile(None)
        assembly.close()
    return seen


def names(files: list[str]) -> set[str]:
    return {name.rpartition("/")[2] for name in files}


@pytest.fixture(scope="module")
def between() -> Follower:
    return followed(motet.coarse(2, lag=1), motet.Gymnasium("CartPole-v1"), "actors[1]")


def test_a_receive_changes_file_fourteen_times(between: Follower) -> None:
    receives = [each for each in between.requests() if "engine/join.py" in each and "plan/protocol.py" in each]
    receive = min(receives, key=len)  # the others had to wait
    assert len(receive) + 1 == 14 and "14 changes" in TOLD  # from the worker, and back to it
    assert names(receive) <= told("A receive")


def test_a_step_between_calls_passes_the_files_that_are_told(between: Follower) -> None:
    steps = [names(each) for each in between.requests() if "envs/thread.py" in each]
    assert len(steps) == 4 and set().union(*steps) <= told("A step of environments")
    assert told("A step of environments") - set().union(*steps) <= {"worker.py", "workers.py", "child.py"}


def test_a_step_from_inside_comes_from_the_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the call of the program on: who called is on the stack, and what follows is followed from there."""
    callers, seen, step = set[str](), Follower(), Environments.step

    def followed_step(self: Environments, action: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.endswith("engine/compiled.py"):
            callers.add(frame.f_code.co_filename)
            frame = frame.f_back
        before = sys.getprofile()
        sys.setprofile(seen)
        try:
            return step(self, action)
        finally:
            sys.setprofile(before)

    monkeypatch.setattr(Environments, "step", followed_step)
    motet.train(ALGORITHM, motet.Gymnasium("CartPole-v1"), motet.multi_learner(1), total_timesteps=64, progress=False)
    ours = {Path(each).name for each in callers if each.startswith(str(SOURCE / "engine"))}
    assert ours == {"callback.py", "bridge.py"}
    passed = names(seen.files)
    assert {"environments.py", "thread.py", "group.py", "checks.py"} <= passed
    assert passed <= told("A step of environments") | told("The same from inside") | {"timeline.py"}
