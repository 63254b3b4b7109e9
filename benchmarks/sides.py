"""One side of a comparison: a process of its own that compiles once and then runs as often as it is asked.

`python -m benchmarks.sides NAME OPTIONS` says what it is when it is ready and then answers each line it reads with
the seconds that one sample took. Two sides stay alive together and are asked in turn, so whatever slows the machine
down for a while slows down both. This file is run by the peers' interpreter too: each side imports what it needs.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks import host_sides, replay_sides

ROOT = Path(__file__).parents[1]
PATIENCE = 600.0
"""Seconds that a side may take for one answer."""
WAKING = 0.5
"""Seconds that one which was stopped has to catch up with what it missed, before its clock starts."""

Sample = Callable[[], None]


class Side:
    """The parent's end of one side.

    With `still`, it is stopped whenever it is not asked, with all processes that it has started: those of Ray are at
    work even if nobody wants anything of them.
    """

    def __init__(
        self, name: str, options: Mapping[str, Any], python: Path | str = sys.executable, *, still: bool = False
    ):
        self.name, self.still = name, still
        command = [str(python), "-m", "benchmarks.sides", name, json.dumps(options)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            self.versions: dict[str, str] = self._answer()["versions"]
        except BaseException:
            self.close()
            raise
        self._hold(signal.SIGSTOP)

    def sample(self) -> float:
        """Run one sample -> its seconds."""
        assert self.process.stdin is not None
        self._hold(signal.SIGCONT)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        seconds = self._answer()["seconds"]
        self._hold(signal.SIGSTOP)
        return seconds

    def _hold(self, number: int) -> None:
        if not self.still:
            return
        for process in (self.process.pid, *_descendants(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        if number == signal.SIGCONT:
            time.sleep(WAKING)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        watch = threading.Timer(PATIENCE, self.process.kill)
        watch.start()
        line = self.process.stdout.readline()
        watch.cancel()
        if not line:
            raise RuntimeError(
                f"The side {self.name!r} ended with code {self.process.wait()} instead of answering; what it wrote to "
                f"stderr says why. (It has {PATIENCE:.0f} s for an answer.)"
            )
        return json.loads(line)

    def close(self) -> None:
        """End the process: it stops when it has nothing more to read."""
        self._hold(signal.SIGCONT)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _descendants(process: int) -> list[int]:
    """All processes that one has started, those of its children too."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def motet(algorithm: str, env: str, options: dict[str, Any], iterations: int, devices: int = 1) -> Sample:
    """motet's `anakin` on `devices` virtual devices, past its compilation."""
    import motet
    from motet import algorithms
    from motet.engine.assemble import Settings
    from motet.engine.place import devices_for
    from motet.engine.run import Reporter, prepare
    from motet.flow.trace import trace

    if devices > 1:
        motet.virtual_devices(devices)
    host_sides.begin()
    plan, bound = motet.anakin(devices), algorithms.find(algorithm)(**_tuples(options))
    # A run that is long enough for its learning rate to stay up while it is measured.
    graph = trace(bound, motet.make(env), total_timesteps=1_000_000_000, cuts=plan.cuts())
    reporter = Reporter(graph, plan, _Nobody(), until=1_000_000_000)
    (performer,) = prepare(graph, plan, devices_for(plan), reporter, Settings()).performers

    def sample() -> None:
        performer.pace = iterations
        for _ in performer.drive(performer.worker.iteration + iterations):
            raise AssertionError("one worker alone waits for nobody")

    return sample


class _Nobody:
    """Watches a run and says nothing."""

    def status(self, text: str) -> None: ...
    def rows(self, first: int, rows: Any) -> None: ...


def handwritten(options: dict[str, Any], iterations: int) -> Sample:
    """The straight-line loop."""
    import jax
    import numpy as np

    from benchmarks import handwritten_ppo

    # What it always does is no setting.
    options = {name: value for name, value in _tuples(options).items() if name not in ("activation", "anneal")}
    per_iteration = options["num_envs"] * options["num_steps"]
    settings = handwritten_ppo.Settings(**options, iterations=1_000_000_000 // per_iteration)
    root = jax.random.key(0)
    train = handwritten_ppo.make_train(settings, iterations)
    state, done = handwritten_ppo.init(settings, root), 0

    def sample() -> None:
        nonlocal state, done
        state, metrics = train(state, root, np.uint32(done))
        jax.device_get(metrics)
        done += iterations

    return sample


def rejax(options: dict[str, Any], iterations: int) -> Sample:
    """rejax's PPO: its own training iterations in one compiled loop, without the evaluations that its `train` adds."""
    from functools import partial

    import jax
    from rejax import PPO

    algorithm = PPO.create(env="CartPole-v1", **options)
    state = algorithm.init_state(jax.random.key(0))

    @partial(jax.jit, donate_argnums=0)
    def train(state: Any) -> Any:
        return jax.lax.fori_loop(0, iterations, lambda _, state: algorithm.train_iteration(state), state)

    def sample() -> None:
        nonlocal state
        state = jax.block_until_ready(train(state))

    return sample


SIDES: dict[str, Callable[..., Sample]] = {
    each.__name__: each
    for each in (
        motet,
        handwritten,
        rejax,
        host_sides.pool,
        host_sides.gymnasium_vector,
        host_sides.trained,
        host_sides.learning,
        host_sides.stable_baselines,
        host_sides.rllib,
        replay_sides.off_policy,
        replay_sides.rejax_dqn,
        replay_sides.sum_tree,
    )
}


def _tuples(options: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples; options do."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def versions() -> dict[str, str]:
    found = {}
    for name in (
        "motet",
        "rejax",
        "gymnax",
        "gymnasium",
        "envpool",
        "stable-baselines3",
        "sbx-rl",
        "tianshou",
        "ray",
        "numba",
        "torch",
        "jax",
        "jaxlib",
        "flax",
        "optax",
        "numpy",
    ):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    name, options = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    sample = SIDES[name](**options)
    sample()  # compiles
    answers.write(json.dumps({"versions": versions()}) + "\n")
    for _ in sys.stdin:
        start = time.perf_counter()
        sample()
        answers.write(json.dumps({"seconds": time.perf_counter() - start}) + "\n")


if __name__ == "__main__":
    main()
