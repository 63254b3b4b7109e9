"""Does an environment keep its contract? It is played with random actions, and everything it returns is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from motet.bounds import RECORD, Bounds, Outside, note
from motet.envs.pool import open_pool
from motet.errors import MotetError
from motet.flow.environment import Environment, check_environment
from motet.flow.host import HostEnvironment, HostStep, Leaves, Opening, Pool
from motet.flow.spaces import Box, Discrete, MultiDiscrete, Space, parts

ENVIRONMENTS = 4
ROUNDING = 1e-5
"""How far outside of its bounds a float may lie, relative to the bound (or to 1, if that is more)."""


@dataclass
class Examination:
    """What was seen."""

    findings: list[str] = field(default_factory=list)
    """Each breaks the contract."""
    notes: list[str] = field(default_factory=list)
    """Each may be as it should."""
    steps: int = 0
    """Steps that each of the environments took."""
    terminated: int = 0
    truncated: int = 0
    lengths: list[int] = field(default_factory=list)
    """Of the episodes that ended."""


def examine(
    env: Environment | HostEnvironment, *, steps: int = 1000, seed: int = 0, strict: bool = False
) -> Examination:
    """Play `steps` steps of four environments with random actions, twice at once with the same seed.

    Numbers outside of a Box's bounds are a note, or with `strict` a finding.

    Host environments are played a third time in another grouping: what an environment does may depend on the seed and
    on its number in the run, but not on which others are stepped with it.
    """
    seen = Examination()
    try:
        if isinstance(env, Environment):
            check_environment(env)
        with ExitStack() as open_pools:
            pools = [open_pools.enter_context(closing(open_pool(env, each))) for each in _openings(env, seed)]
            _Examiner(env, pools, seen, strict).play(steps, np.random.default_rng(seed))
    except MotetError as error:
        seen.findings.append(str(error))
    except Exception as error:
        seen.findings.append(f"It raised {type(error).__name__}: {error}")
    _note(seen)
    return seen


def _openings(env: Environment | HostEnvironment, seed: int) -> list[Opening]:
    whole, half = Opening(0, ENVIRONMENTS, seed), ENVIRONMENTS // 2
    return [whole, whole, *([Opening(half, half, seed)] if isinstance(env, HostEnvironment) else [])]


def _note(seen: Examination) -> None:
    if seen.steps and not seen.lengths:
        seen.notes.append(
            f"No episode ended within {seen.steps:,} steps. If the task has no end of its own, set a time limit."
        )


class _Examiner:
    """Steps the same environments in several pools side by side, and compares."""

    def __init__(self, env: Environment | HostEnvironment, pools: list[Pool], seen: Examination, strict: bool):
        self.env, self.pools, self.seen, self.strict = env, pools, seen, strict
        self.declared, self.record = _declared(env.observation_space), np.zeros(RECORD)
        self.kinds: set[str] = set()
        self.length = np.zeros(ENVIRONMENTS, int)
        self.repeated = self.both = 0

    def play(self, steps: int, rng: np.random.Generator) -> None:
        """Until the first findings: what comes after them would only repeat them."""
        observations = [pool.reset() for pool in self.pools]
        self.look("reset", "observation", observations[0])
        self.count_outside(observations[0], np.ones(ENVIRONMENTS, bool))
        self.compare("reset", [{"observation": each} for each in observations])
        counts = [len(leaves[0]) for leaves in observations]
        while self.seen.steps < steps and not self.seen.findings:
            action = random_actions(self.env.action_space, rng, ENVIRONMENTS)
            results = [
                pool.step(tuple(leaf[-count:] for leaf in action))
                for pool, count in zip(self.pools, counts, strict=True)
            ]
            self.seen.steps += 1
            self.step(results[0])
            self.compare("step", [_values(each) for each in results])
        if outside := Outside.read(self.record, self.declared):
            self.seen.notes.append(f"{outside}. A run goes on and tells of them; --strict makes it an error.")
        if self.both:
            self.seen.notes.append(f"terminated and truncated were both set {self.both} times; terminated counts.")
        if self.repeated and self.repeated == len(self.seen.lengths):
            self.seen.notes.append(
                "Every episode's last observation equals the first of the next episode. Is it really the last one?"
            )

    def find(self, kind: str, message: str) -> None:
        """Say each kind of thing once."""
        if kind not in self.kinds:
            self.kinds.add(kind)
            moment = f"step {self.seen.steps}" if self.seen.steps else "reset"
            self.seen.findings.append(f"At {moment}: {message}")

    def step(self, step: HostStep) -> None:
        self.length += 1
        for what in ("observation", "next_observation"):
            self.look("step", what, getattr(step, what))
        self.array("reward", step.reward, "f")
        self.array("terminated", step.terminated, "b")
        self.array("truncated", step.truncated, "b")
        if self.seen.findings:  # Nothing more can be said of arrays of the wrong kind.
            return
        if not np.isfinite(step.reward).all():
            self.find("finite", f"reward must be finite; got {step.reward}.")
        self.both += int((step.terminated & step.truncated).sum())
        self.episodes(step)
        self.count_outside(step.next_observation, np.ones(ENVIRONMENTS, bool))
        self.count_outside(step.observation, step.terminated | step.truncated)

    def episodes(self, step: HostStep) -> None:
        ended = step.terminated | step.truncated
        same = np.ones(ENVIRONMENTS, bool)
        for now, after in zip(step.observation, step.next_observation, strict=True):
            same &= (now == after).reshape(ENVIRONMENTS, -1).all(1)
        if not same[~ended].all():
            self.find("same", "observation must equal next_observation where the episode goes on, and it does not.")
        self.repeated += int(same[ended].sum())
        self.seen.terminated += int(step.terminated.sum())
        self.seen.truncated += int((step.truncated & ~step.terminated).sum())
        self.seen.lengths += self.length[ended].tolist()
        self.length[ended] = 0

    def look(self, method: str, what: str, leaves: Leaves) -> None:
        """Compare observations with their space: how many parts, their shapes, dtypes and bounds."""
        space = self.env.observation_space
        expected = jax.tree_util.tree_flatten_with_path(space.aval)[0]
        if len(leaves) != len(expected):
            self.find("parts", f"{method} must return {what} in {len(expected)} parts; got {len(leaves)}.")
            return
        for (path, aval), part, leaf in zip(expected, parts(space), leaves, strict=True):
            name = what + jax.tree_util.keystr(path)
            shape = (ENVIRONMENTS, *aval.shape)
            if (leaf.shape, leaf.dtype) != (shape, aval.dtype):
                self.find(
                    name,
                    f"{method} must return {name} as {aval.dtype}{list(shape)}, as its space says; "
                    f"got {leaf.dtype}{list(leaf.shape)}.",
                )
            elif outside := _outside(part, leaf, self.strict):
                self.find(name, f"{name} {outside}.")

    def count_outside(self, leaves: Leaves, rows: np.ndarray) -> None:
        """Take note of numbers outside of a Box; what is worse has been found by now."""
        if self.seen.findings or not rows.any():
            return
        for number, (bounds, leaf) in enumerate(zip(self.declared, leaves, strict=True)):
            batch = leaf[rows]
            outside = _beyond(batch, bounds.low, bounds.high)
            if outside.any():
                note(self.record, number, bounds, batch, outside)

    def array(self, name: str, array: np.ndarray, kind: str) -> None:
        wanted = {"f": "floats", "b": "bools"}[kind]
        if array.shape != (ENVIRONMENTS,) or array.dtype.kind != kind:
            got = f"{array.dtype}{list(array.shape)}"
            self.find(name, f"step must return {name} as {ENVIRONMENTS} {wanted}; got {got}.")

    def compare(self, method: str, pools: list[dict[str, Leaves]]) -> None:
        """The second pool is the same as the first, and the third is its latter half."""
        if self.seen.findings:
            return
        whole, *others = pools
        for other, (how, why) in zip(others, AGAIN, strict=False):
            for what in whole:
                pairs = zip(whole[what], other[what], strict=True)
                if not all(np.array_equal(one[-len(two) :], two) for one, two in pairs):
                    self.find(f"again {how}", f"{method} gave another {what} the second time, {how}. {why}")
                    break


AGAIN = (
    ("with the same seed and actions", "All that is random must come from the seed."),
    ("in a pool of two instead of four", "What an environment does must not depend on those stepped with it."),
)
"""How the pools after the first differ from it, and why that must make no difference."""


def random_actions(space: Space, rng: np.random.Generator, count: int) -> Leaves:
    """Uniform actions of `count` environments; where there is no bound, between -1 and 1 beside the other one."""
    return tuple(_random(part, rng, count) for part in parts(space))


def _random(part: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    dtype = part.aval.dtype
    if isinstance(part, Discrete):
        return rng.integers(part.n, size=count).astype(dtype)
    if isinstance(part, MultiDiscrete):
        return rng.integers(part.nvec, size=(count, len(part.nvec))).astype(dtype)
    if not isinstance(part, Box):
        return rng.integers(2, size=(count, *part.shape)).astype(dtype)
    low, high = (bound.astype(np.float64) for bound in part.bounds)
    low, high = (
        np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 2, -1)),
        np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 2, 1)),
    )
    if dtype.kind in "iu":
        return rng.integers(low.astype(np.int64), high.astype(np.int64), (count, *part.shape), endpoint=True).astype(
            dtype
        )
    return rng.uniform(low, high, (count, *part.shape)).astype(dtype)


def _outside(part: Any, leaf: np.ndarray, strict: bool) -> str:
    """What is wrong with the values, or nothing."""
    if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
        return f"must be finite; it holds {leaf[~np.isfinite(leaf)][0]}"
    if isinstance(part, Box) and not strict:
        return ""
    low, high = _bounds(part)
    wrong = np.argwhere(_beyond(leaf, low, high))
    if not len(wrong):
        return ""
    row, *where = wrong[0].tolist()
    least, most = (np.broadcast_to(bound, leaf.shape[1:])[tuple(where)] for bound in (low, high))
    place = f" at {where}" if where else ""
    return f"must be within its space, {least:g} to {most:g}{place}; environment {row} gave {leaf[(row, *where)]:g}"


def _beyond(leaf: np.ndarray, *bounds: Any) -> np.ndarray:
    """Where a batch leaves its bounds by more than rounding."""
    low, high = (np.asarray(bound, np.float64) for bound in bounds)
    room = [ROUNDING * np.maximum(1, np.abs(np.where(np.isfinite(bound), bound, 0))) for bound in (low, high)]
    return (leaf < low - room[0]) | (leaf > high + room[1])


def _declared(space: Space) -> list[Bounds]:
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(space.aval)[0]]
    full = [np.broadcast_to(bound, part.aval.shape) for part in parts(space) for bound in _bounds(part)]
    return [
        Bounds(f"the observation{path}", *bounds)
        for path, bounds in zip(paths, zip(full[::2], full[1::2], strict=True), strict=True)
    ]


def _bounds(part: Any) -> tuple[Any, Any]:
    if isinstance(part, Box):
        return part.bounds
    if isinstance(part, Discrete):
        return 0, part.n - 1
    if isinstance(part, MultiDiscrete):
        return 0, np.array(part.nvec) - 1
    return 0, 1


def _values(step: HostStep) -> dict[str, Leaves]:
    return {
        "reward": (step.reward,),
        "terminated": (step.terminated,),
        "truncated": (step.truncated,),
        "next_observation": step.next_observation,
        "observation": step.observation,
    }


def lines(env: Environment | HostEnvironment, seen: Examination) -> Iterator[str]:
    """What `motet check-env` prints."""
    yield f"environment   {env.name}"
    yield f"observations  {env.observation_space}"
    yield f"actions       {env.action_space}"
    yield f"played        {ENVIRONMENTS} environments, {seen.steps:,} random steps each"
    lengths = f"; {min(seen.lengths)} to {max(seen.lengths)} steps long" if seen.lengths else ""
    yield (
        f"episodes      {len(seen.lengths)} ended: {seen.terminated} terminated, {seen.truncated} truncated{lengths}"
    )
    yield from (f"note: {note}" for note in seen.notes)
    yield from seen.findings or ["ok"]
