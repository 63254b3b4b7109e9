"""Reading what a run wrote. Nothing in it is believed: files may be damaged, or somebody else's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import MotetError, described
from motet.flow.algorithm import Algorithm, Spec
from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from motet.flow.values import is_key

MOST_NUMBERS = 2**31
"""Numbers in one array, or choices in one space: more is damage, not a policy."""


class Damaged(MotetError, ValueError):
    """A file that does not hold what it should."""


def read_json(file: Path) -> Any:
    """Any JSON; what is nested too deeply or holds numbers too long to read is damaged."""
    try:
        return json.loads(file.read_text())
    except RecursionError:
        raise Damaged(f"{file} is damaged: it is nested too deeply.") from None
    except ValueError as error:  # what is no JSON or no text, and numbers of thousands of digits
        raise Damaged(f"{file} is damaged: {error}.") from None


def read_spec(described: Mapping[str, Any]) -> Spec:
    """The task of a policy."""
    iterations = described["iterations"]
    if not _is_count(iterations):
        raise Damaged(f"iterations should be a whole number above 0, but is {iterations!r}")
    return Spec(read_space(described["observation_space"]), read_space(described["action_space"]), iterations)


def read_space(data: Any) -> Space:
    """A space from JSON."""
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise Damaged(f'a space should be an object with a "kind", but is {_short(data)}')
    match data["kind"]:
        case "Dict":
            return Dict({str(name): read_space(part) for name, part in data["spaces"].items()})
        case "Tuple":
            return Tuple(tuple(map(read_space, data["spaces"])))
        case "Discrete":
            return Discrete(_count("n", data["n"]))
        case "MultiDiscrete":
            return MultiDiscrete(tuple(_count("nvec", each) for each in data["nvec"]))
        case "MultiBinary":
            return MultiBinary(_shape(data["shape"]))
        case "Box":
            return _box(data)
    raise Damaged(f"there is no space {data['kind']!r}")


def restore(
    algorithm: type[Algorithm], options: Mapping[str, Any], spec: Spec, arrays: Mapping[str, np.ndarray]
) -> tuple[Algorithm, Any]:
    """The algorithm bound to its task, and its policy's parameters: their shapes, dtypes and values are looked at."""
    bound = _attempt("its options fit no algorithm", lambda: algorithm(**options).bind(spec))
    shape = _attempt(
        "no policy can be made of its options",
        lambda: jax.eval_shape(lambda key: bound.policy(bound.init(key)), jax.random.key(0)),
    )
    leaves, treedef = jax.tree_util.tree_flatten_with_path(shape)
    named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    keys = {name: jax.random.key_impl(jnp.zeros((), leaf.dtype)) for name, leaf in named.items() if is_key(leaf)}
    named |= {name: jax.eval_shape(jax.random.key_data, named[name]) for name in keys}
    if set(named) != set(arrays):
        raise Damaged(f"its arrays should be {_names(named)}, but are {_names(arrays)}")
    for name, wanted in named.items():
        _check(name, arrays[name], wanted)
    found = {name: jax.random.wrap_key_data(jnp.asarray(arrays[name]), impl=impl) for name, impl in keys.items()}
    return bound, jax.tree.unflatten(treedef, [found.get(name, arrays[name]) for name in named])


def _check(name: str, array: np.ndarray, wanted: jax.ShapeDtypeStruct) -> None:
    if array.shape != wanted.shape:
        raise Damaged(f"{name} should have shape {wanted.shape}, but has {array.shape}")
    if np.dtype(array.dtype) != np.dtype(wanted.dtype):
        floats = array.dtype.kind == np.dtype(wanted.dtype).kind == "f"
        hint = " (jax_enable_x64 must be as it was in training)" if floats else ""
        raise Damaged(f"{name} should have dtype {wanted.dtype}, but has {array.dtype}{hint}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise Damaged(f"{name} holds numbers that are not finite")


def _attempt(trouble: str, make: Callable[[], Any]) -> Any:
    """What `make` gives. Sizes out of a file reach deep into other libraries, which raise what they please."""
    try:
        return make()
    except MotetError as error:
        raise Damaged(f"{trouble}: {error}") from None
    except Exception as error:
        raise Damaged(f"{trouble}: {described(error).partition(chr(10))[0][:200]}") from None


def _box(data: Mapping[str, Any]) -> Box:
    shape, dtype = _shape(data["shape"]), data["dtype"]
    if dtype != "float" and not (isinstance(dtype, str) and dtype in DTYPES):
        raise Damaged(f"a Box cannot hold {dtype!r}")
    return Box(_bound(data["low"], shape), _bound(data["high"], shape), shape, dtype)


DTYPES = frozenset(np.dtype(code).name for code in "?bBhHiIlLqQefd")


def _bound(value: Any, shape: tuple[int, ...]) -> float | tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int | float) for each in values):
        raise Damaged("the bounds of a Box should be numbers")
    if not isinstance(value, list):
        return float(value)
    if len(value) != math.prod(shape):
        raise Damaged(f"a Box of shape {shape} should have one bound or {math.prod(shape)}, but has {len(value)}")
    return tuple(map(float, value))


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(each, int) and each >= 0 for each in value):
        raise Damaged(f"a shape should be a list of whole numbers, but is {_short(value)}")
    if math.prod(value) > MOST_NUMBERS:
        raise Damaged(f"a shape of {_short(value)} is larger than anything that was trained")
    return tuple(value)


def _count(name: str, value: Any) -> int:
    if not _is_count(value):
        raise Damaged(f"{name} should be a whole number from 1 to {MOST_NUMBERS:,}, but is {_short(value)}")
    return value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_NUMBERS


def _names(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
