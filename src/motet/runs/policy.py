"""A trained policy: what is left of a run when the training is over."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from motet.errors import MotetError
from motet.flow.algorithm import Algorithm, Spec
from motet.flow.spaces import Box, Discrete, Space


class Policy:
    """Acts on observations. `policy(observation)` is the greedy action for one observation."""

    def __init__(self, algorithm: Algorithm, params: Any):
        self.algorithm, self.params = algorithm, params
        # Functions of their own: bound methods of equal algorithms would share what JAX compiled for another task.
        act, exploit = algorithm.act, algorithm.exploit
        self._decide = {True: jax.jit(lambda *now: act(*now)), False: jax.jit(lambda *now: exploit(*now))}
        self.reset()

    def reset(self, seed: int = 0) -> None:
        """Forget the episode so far; `seed` is for policies that explore."""
        self.memory, self._key, self._count = self.algorithm.memory(), jax.random.key(seed), 0

    def __call__(self, observation: Any, *, explore: bool = False) -> np.ndarray:
        space = self.algorithm.spec.observation_space
        observation = np.asarray(observation)
        if observation.shape != space.aval.shape:
            raise ValueError(f"expected one observation of {space}, got an array of shape {observation.shape}")
        self._count += 1
        key = jax.random.fold_in(self._key, self._count)
        decision = self._decide[explore](self.params, self.memory, observation.astype(space.aval.dtype), key)
        self.memory = decision.memory
        return np.asarray(decision.action)

    def save(self, folder: Path) -> None:
        """Write `policy.safetensors` (numbers) and `policy.json` (what they belong to)."""
        from safetensors.numpy import save_file

        leaves = jax.tree_util.tree_flatten_with_path(self.params)[0]
        arrays = {jax.tree_util.keystr(path): np.asarray(leaf, order="C") for path, leaf in leaves}
        save_file(arrays, folder / "policy.safetensors")
        spec = self.algorithm.spec
        described = {
            "algorithm": type(self.algorithm).__name__.lower(),
            "options": dataclasses.asdict(self.algorithm),
            "observation_space": _space(spec.observation_space),
            "action_space": _space(spec.action_space),
            "iterations": spec.iterations,
        }
        (folder / "policy.json").write_text(json.dumps(described, indent=2) + "\n")

    @staticmethod
    def load(folder: str | Path, algorithm: type[Algorithm]) -> Policy:
        """Read what `save` wrote. No file here can run code when it is read."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(folder)
        for name in ("policy.json", "policy.safetensors"):
            if not (folder / name).is_file():
                raise MotetError(f"{folder} holds no {name}; a run's folder has one once its training is over.")
        try:
            described = json.loads((folder / "policy.json").read_text())
            arrays = load_file(folder / "policy.safetensors")
            return Policy(*_restore(described, arrays, algorithm))
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            raise MotetError(f"The policy in {folder} cannot be read: {type(error).__name__}: {error}") from None


def _restore(described: Any, arrays: Any, algorithm: type[Algorithm]) -> tuple[Algorithm, Any]:
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in described["options"].items()}
    spec = Spec(_read(described["observation_space"]), _read(described["action_space"]), described["iterations"])
    bound = algorithm(**options).bind(spec)
    shape = jax.eval_shape(lambda key: bound.policy(bound.init(key)), jax.random.key(0))
    leaves, treedef = jax.tree_util.tree_flatten_with_path(shape)
    return bound, jax.tree.unflatten(treedef, [arrays[jax.tree_util.keystr(path)] for path, _ in leaves])


def _space(space: Space) -> dict[str, Any]:
    return {"kind": type(space).__name__, **dataclasses.asdict(space)}


def _read(data: dict[str, Any]) -> Space:
    kind = {"Discrete": Discrete, "Box": Box}[data["kind"]]
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "kind"}
    return kind(**values)
