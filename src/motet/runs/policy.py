"""A trained policy: what is left of a run when the training is over."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sized
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from motet import named
from motet.errors import BadOption, MotetError, described
from motet.flow.algorithm import Algorithm, Decision, besides, exploits
from motet.flow.spaces import Dict, Space, Tuple
from motet.flow.values import is_key
from motet.runs import options, trust
from motet.runs.reading import Damaged, read_json, read_spec, restore


class Policy:
    """Acts on observations. `policy(observation)` is the greedy action for one observation, or the actions for several
    that are stacked in one array."""

    def __init__(self, algorithm: Algorithm, params: Any):
        self.algorithm, self.params = algorithm, params
        # Functions of their own: bound methods of equal algorithms would share what JAX compiled for another task.
        self._methods = {True: algorithm.act, False: exploits(algorithm)}
        self._decide = {explore: jax.jit(_own(method)) for explore, method in self._methods.items()}
        self._decide_all = {explore: jax.jit(rowwise(method)) for explore, method in self._methods.items()}
        self.reset()

    def reset(self, seed: int = 0, index: int = 0) -> None:
        """Forget the episode so far; `seed` is for policies that explore, `index` for those that decide by the number
        of their environment."""
        self._key, self._count, self._index = jax.random.key(seed), 0, index
        self._begin(None)

    def _begin(self, rows: int | None) -> None:
        """Know nothing of a step before, of one environment or of so many."""
        self._rows = rows
        self.memory, self._action = self.algorithm.memory(), _blank(self.algorithm.spec.action_space)
        if rows is not None:
            self.memory, self._action = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (rows, *jnp.shape(leaf))), (self.memory, self._action)
            )

    def __call__(self, observation: Any, *, explore: bool = False, reward: Any = None, first: Any = None) -> Any:
        """The action for one observation, in arrays of NumPy: one, or a dictionary or tuple as the action space is.

        Several observations, [N, ...], are of N environments side by side: their actions are [N, ...] too, each decided
        as if it were alone. `first`, [N] or one bool, says where an episode begins: what was known there is forgotten.
        `reward`, likewise, is that of the step before, for policies that look at it; a first action has none.
        """
        space = self.algorithm.spec.observation_space
        rows = _rows(space, observation)
        observation = _fit(space, observation, rows)
        if rows != self._rows:
            self._change(rows, explore)
        if first is not None:
            self._forget(np.asarray(first, bool))
        more = self._besides(explore, reward, first)
        self._count += 1
        key = jax.random.fold_in(self._key, self._count)
        decide = (self._decide if rows is None else self._decide_all)[explore]
        decision = decide(self.params, self.memory, observation, key, **more)
        self.memory = decision.memory
        self._action = jax.tree.map(lambda old, new: np.asarray(new, old.dtype), self._action, decision.action)
        return jax.tree.map(np.asarray, decision.action)

    def _change(self, rows: int | None, explore: bool) -> None:
        """Go on with another number of environments, where nothing that was known of them matters."""
        remembers = jax.tree.leaves(self.algorithm.memory()) or besides(self.algorithm, self._methods[explore])
        if self._count and remembers:
            known, now = ("one environment" if each is None else f"{each} environments" for each in (self._rows, rows))
            raise ValueError(f"this policy remembers {known}, but is asked for {now}: reset() it first")
        self._begin(rows)

    def _forget(self, first: np.ndarray) -> None:
        shape = () if self._rows is None else (self._rows,)
        if first.shape != shape:
            raise ValueError(f"first should be of shape {shape}, one for each observation, but is of {first.shape}")
        blank = self.algorithm.memory(), _blank(self.algorithm.spec.action_space)

        def renewed(old: Any, new: Any) -> Any:
            return jnp.where(first.reshape(*shape, *(1,) * jnp.ndim(new)), new, old)

        self.memory, self._action = jax.tree.map(renewed, (self.memory, self._action), blank)

    def _besides(self, explore: bool, reward: Any, first: Any) -> dict[str, Any]:
        """What the method asks for besides the observation."""
        wanted = besides(self.algorithm, self._methods[explore])
        if "reward" in wanted and reward is None and self._count and not np.all(False if first is None else first):
            raise ValueError(
                "this policy looks at the reward of the step before: policy(observation, reward=...), and reset() "
                "where an episode begins"
            )
        shape = () if self._rows is None else (self._rows,)
        last = np.broadcast_to(np.asarray(0 if reward is None else reward, jnp.result_type(float)), shape)
        last = np.where(np.asarray(first, bool), 0, last).astype(last.dtype) if first is not None else last
        index = np.int32(self._index) if self._rows is None else np.arange(self._rows, dtype=np.int32) + self._index
        known = {"index": index % np.int32(self.algorithm.num_envs), "reward": last, "action": self._action}
        return {name: known[name] for name in wanted}

    def save(self, folder: Path) -> None:
        """Write `policy.safetensors` (numbers) and `policy.json` (what they belong to)."""
        from safetensors.numpy import save

        leaves = jax.tree_util.tree_flatten_with_path(self.params)[0]
        arrays = {jax.tree_util.keystr(path): np.asarray(_numbers(leaf), order="C") for path, leaf in leaves}
        spec = self.algorithm.spec
        told = {
            "algorithm": _name_of(type(self.algorithm)),
            "options": options.to_json(self.algorithm),
            "observation_space": _space(spec.observation_space),
            "action_space": _space(spec.action_space),
            "iterations": spec.iterations,
        }
        signed = signed_part(told)
        if trust.imports([told["algorithm"], *signed["networks"]]):
            told["signature"] = trust.sign(signed)
        write_whole(folder / "policy.safetensors", save(arrays))
        write_whole(folder / "policy.json", (json.dumps(told, indent=2) + "\n").encode())

    @staticmethod
    def load(folder: str | Path, algorithm: type[Algorithm] | Algorithm, *, trust: bool = False) -> Policy:
        """Read what `save` wrote: no file can run code when it is read, and no damage goes unnoticed.

        If the policy has networks of somebody's own, they are found by their names, which imports their modules: those
        of a folder that this user did not write only if you `trust` it. Where they have no name, give an algorithm
        that has them instead of its class; then nothing is imported.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(folder)
        for name in ("policy.json", "policy.safetensors"):
            if not (folder / name).is_file():
                raise MotetError(f"{folder} holds no {name}; a run's folder has one once its training is over.")
        told = read_json(folder / "policy.json")
        try:
            arrays, spec = load_file(folder / "policy.safetensors"), read_spec(told)
            kind = type(algorithm) if isinstance(algorithm, Algorithm) else algorithm
            return Policy(*restore(kind, _options(folder, told, algorithm, trust), spec, arrays))
        except Damaged as error:
            raise Damaged(f"The policy in {folder} is damaged: {error}.") from None
        except BadOption:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, SafetensorError) as error:
            raise Damaged(f"The policy in {folder} is damaged: {described(error)}.") from None


def _options(folder: Path, told: Any, algorithm: type[Algorithm] | Algorithm, trusted: bool) -> dict[str, Any]:
    """The options of a saved policy. Code that they name is found only if it may be imported."""
    if not isinstance(told["options"], dict):
        raise Damaged("its options should be an object")
    if not isinstance(algorithm, Algorithm):
        names = options.code_names(told["options"])
        trust.demand(f"load the policy in {folder}", names, signed_part(told), told.get("signature"), trusted)
    try:
        return options.read(told["options"], algorithm)
    except RecursionError:
        raise Damaged("it is nested too deeply") from None
    except Damaged:
        raise
    except BadOption as error:
        raise BadOption(f"The policy in {folder} cannot be loaded: {error}") from None


def signed_part(told: Mapping[str, Any]) -> dict[str, Any]:
    """What of a saved policy names code that a reader would have to import."""
    return {"algorithm": told["algorithm"], "networks": options.code_names(told["options"])}


def _name_of(kind: type[Algorithm]) -> str:
    """Under which name an algorithm is found again."""
    return kind.__name__.lower() if kind.__module__.startswith(trust.OURS) else named.spell(kind)


def _own(method: Callable[..., Decision]) -> Callable[..., Decision]:
    """A function of its own that decides as `method` does."""
    return lambda *now, **more: method(*now, **more)


def rowwise(method: Callable[..., Decision]) -> Callable[..., Decision]:
    """A function that decides as `method` does for each of N environments, whose keys are those of their rows."""

    def decide(params: Any, memory: Any, observation: Any, key: jax.Array, **more: Any) -> Decision:
        rows = jax.tree.leaves(observation)[0].shape[0]
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(rows))
        return jax.vmap(partial(method, params))(memory, observation, keys, **more)

    return decide


def _blank(space: Space) -> Any:
    """The action before the first."""
    return jax.tree.map(lambda aval: np.zeros(aval.shape, aval.dtype), space.aval)


def _numbers(leaf: Any) -> Any:
    """An array that a file can hold."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def write_whole(file: Path, content: bytes) -> None:
    """Write a file that is there either whole or not at all."""
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_bytes(content)
        os.replace(part, file)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _rows(space: Space, observation: Any) -> int | None:
    """How many observations are stacked in one; None: it is a single one, or none at all."""
    while isinstance(space, Dict | Tuple):
        several = isinstance(observation, Mapping if isinstance(space, Dict) else tuple | list)
        if not several or not observation:
            return None
        name, space = space.items[0] if isinstance(space, Dict) else (0, space.spaces[0])
        observation = observation.get(name) if isinstance(observation, Mapping) else observation[0]
    shape, one = np.shape(observation), space.aval.shape
    return shape[0] if len(shape) == len(one) + 1 and shape[1:] == one else None


def _fit(space: Space, observation: Any, rows: int | None = None, where: str = "") -> Any:
    """The observation in the structure and types of its space; a ValueError says where it has others."""

    def refuse(got: str) -> NoReturn:
        count = "one observation" if rows is None else f"{rows} observations"
        raise ValueError(f"expected {count} of {space}{f' at {where}' if where else ''}, got {got}")

    if isinstance(space, Dict):
        names = [name for name, _ in space.items]
        if not isinstance(observation, Mapping):
            refuse(f"a {type(observation).__name__} and not a dictionary")
        if set(observation) != set(names):
            refuse(f"a dictionary of {', '.join(map(str, observation)) or 'nothing'}")
        return {name: _fit(part, observation[name], rows, f"{where}[{name!r}]") for name, part in space.items}
    if isinstance(space, Tuple):
        if not isinstance(observation, tuple | list) or len(observation) != len(space.spaces):
            size = f" of {len(observation)}" if isinstance(observation, Sized) else ""
            refuse(f"a {type(observation).__name__}{size} and not a tuple of {len(space.spaces)}")
        pairs = zip(space.spaces, observation, strict=True)
        return tuple(_fit(part, each, rows, f"{where}[{index}]") for index, (part, each) in enumerate(pairs))
    array, wanted = np.asarray(observation), space.aval
    if array.shape != (wanted.shape if rows is None else (rows, *wanted.shape)):
        refuse(f"an array of shape {array.shape}")
    if array.dtype.kind not in ("biuf" if wanted.dtype.kind == "f" else "biu"):
        refuse(f"an array of {array.dtype}")
    return array.astype(wanted.dtype)


def _space(space: Space) -> dict[str, Any]:
    """A space as JSON."""
    match space:
        case Dict():
            fields: dict[str, Any] = {"spaces": {name: _space(part) for name, part in space.items}}
        case Tuple():
            fields = {"spaces": [_space(part) for part in space.spaces]}
        case _:
            fields = dataclasses.asdict(space)
    return {"kind": type(space).__name__, **fields}
