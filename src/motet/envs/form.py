"""What the environments of a pool look like: their Gymnasium spaces, and the arrays that hold their values.

Nothing here imports JAX: worker processes use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from motet.errors import BadEnvironment


class SpaceLeaf(NamedTuple):
    """One array of an observation or action of one environment, as motet holds it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Form:
    """Everything that the environments of a pool have in common. It travels to the workers."""

    name: str
    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    observation: tuple[SpaceLeaf, ...]
    action: tuple[SpaceLeaf, ...]
    reward: str
    """The dtype of rewards."""
    check_bounds: bool = False
    """Whether a number outside of a Box's bounds is an error, or only counted. One that is not finite always is."""

    def __reduce__(self) -> Any:
        packed = map(_packed, (self.observation_space, self.action_space))
        rest = (self.observation, self.action, self.reward, self.check_bounds)
        return _restored, (self.name, *packed, *rest)


@dataclass(frozen=True)
class _Uniform:
    """A Box with the same bounds everywhere, without the four arrays that say so: of pictures they are far larger than
    everything else that a worker is sent."""

    low: Any
    high: Any
    shape: tuple[int, ...]
    dtype: Any


def _packed(space: gymnasium.Space) -> Any:
    """A simple space in as few bytes as it takes; others as they are."""
    if type(space) is not gymnasium.spaces.Box or not space.low.size:
        return space
    low, high = space.low.flat[0], space.high.flat[0]
    uniform = bool((space.low == low).all() and (space.high == high).all())
    return _Uniform(low, high, space.shape, space.dtype) if uniform else space


def _restored(name: str, observation_space: Any, action_space: Any, *rest: Any) -> Form:
    return Form(name, _unpacked(observation_space), _unpacked(action_space), *rest)


def _unpacked(space: Any) -> gymnasium.Space:
    if not isinstance(space, _Uniform):
        return space
    return gymnasium.spaces.Box(space.low, space.high, space.shape, space.dtype)


def parts(space: gymnasium.Space) -> list[gymnasium.Space]:
    """The simple spaces in it, in the order of JAX's pytrees: dictionaries by sorted names."""
    if isinstance(space, gymnasium.spaces.Dict):
        return [part for name in sorted(space.spaces) for part in parts(space.spaces[name])]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [part for each in space.spaces for part in parts(each)]
    return [space]


def paths(space: gymnasium.Space, prefix: str) -> list[str]:
    """What to call each part in a message: `observation["camera"][0]`."""
    if isinstance(space, gymnasium.spaces.Dict):
        return [path for name in sorted(space.spaces) for path in paths(space.spaces[name], f'{prefix}["{name}"]')]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [path for i, each in enumerate(space.spaces) for path in paths(each, f"{prefix}[{i}]")]
    return [prefix]


def flatten(space: gymnasium.Space, value: Any) -> list[Any]:
    """The values of the parts of one value. What is not built like its space is a `BadEnvironment`."""
    if isinstance(space, gymnasium.spaces.Dict):
        names = sorted(space.spaces)
        if not isinstance(value, dict) or sorted(value) != names:
            got = f"a dictionary of {sorted(value)}" if isinstance(value, dict) else f"a {type(value).__name__}"
            raise BadEnvironment(f"should be a dictionary of {names}, but is {got}")
        return [leaf for name in names for leaf in flatten(space.spaces[name], value[name])]
    if isinstance(space, gymnasium.spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            got = f"{len(value)} values" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
            raise BadEnvironment(f"should be a tuple of {len(space.spaces)} values, but is {got}")
        return [leaf for each, item in zip(space.spaces, value, strict=True) for leaf in flatten(each, item)]
    return [value]


def unflatten(space: gymnasium.Space, leaves: Sequence[Any]) -> Any:
    """One value of the space, from the values of its parts."""
    rest = iter(leaves)

    def build(part: gymnasium.Space) -> Any:
        if isinstance(part, gymnasium.spaces.Dict):
            built = {name: build(part.spaces[name]) for name in sorted(part.spaces)}
            return {name: built[name] for name in part.spaces}
        if isinstance(part, gymnasium.spaces.Tuple):
            return tuple(build(each) for each in part.spaces)
        return next(rest)

    return build(space)


def is_nested(space: gymnasium.Space) -> bool:
    return isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)


def check_same_spaces(form: Form, observation: gymnasium.Space, action: gymnasium.Space, who: str) -> None:
    """Every environment of a pool has the spaces of the one that was asked first."""
    for what, expected, got in (
        ("observation", form.observation_space, observation),
        ("action", form.action_space, action),
    ):
        if not _equal(expected, got):
            raise BadEnvironment(
                f"{who} has another {what} space than the first one that was made: {got} instead of {expected}. "
                "All environments of a run must have the same spaces."
            )


def _equal(one: gymnasium.Space, other: gymnasium.Space) -> bool:
    """Whether two spaces are alike. Of large ones Gymnasium asks whether their bounds are close, which takes seconds;
    mostly they are equal."""
    box = gymnasium.spaces.Box
    if type(one) is type(other) and isinstance(one, box) and isinstance(other, box) and one.dtype == other.dtype:
        return (np.array_equal(one.low, other.low) and np.array_equal(one.high, other.high)) or one == other
    return one == other


Make = Callable[..., Any]
"""Makes one `gymnasium.Env`; or, given a number, a `gymnasium.vector.VectorEnv` of so many."""
