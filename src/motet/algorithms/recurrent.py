"""Recurrent cores: what a policy remembers between the steps of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp

CoreName = Literal["none", "gru", "lstm"]
CORES: tuple[str, ...] = get_args(CoreName)

Memory = Any
"""A pytree of [..., size] arrays, with the leading axes of the features; () without a core."""


@dataclass(frozen=True)
class Core:
    """A recurrent layer between the torso and the heads.

    Without one (`none`), features pass through it unchanged and there is nothing to remember or to learn, so that the
    same code serves policies with and without memory.
    """

    name: CoreName
    size: int

    def init(self, key: jax.Array, features: jax.Array) -> Any:
        """Parameters for features of this width; () if there are none."""
        cell = self._cell
        return (
            () if cell is None else cell.init(key, self.initial_memory(), features.reshape(-1, features.shape[-1])[0])
        )

    def initial_memory(self) -> Memory:
        """The memory of ONE environment at the start of an episode: zeros."""
        zeros = jnp.zeros(self.size)
        return {"none": (), "gru": zeros, "lstm": (zeros, zeros)}[self.name]

    def step(self, params: Any, memory: Memory, features: jax.Array) -> tuple[Memory, jax.Array]:
        """One step: memory of [..., size], features [..., n] -> the next memory, and what to act on [..., size]."""
        cell = self._cell
        return (memory, features) if cell is None else cell.apply(params, memory, features)  # type: ignore[return-value]

    def sequence(self, params: Any, memory: Memory, features: jax.Array, first: jax.Array) -> jax.Array:
        """T steps from `memory` on, which is forgotten wherever an episode begins.

        features [T, ..., n], first [T, ...] -> [T, ..., size]. The same as `step`, one after the other, with the
        initial memory put in its place ahead of each step whose `first` is True.
        """
        if self._cell is None:
            return features

        def one_step(memory: Memory, now: tuple[jax.Array, jax.Array]) -> tuple[Memory, jax.Array]:
            features, first = now
            return self.step(params, self.renew(memory, first), features)

        return jax.lax.scan(one_step, memory, (features, first))[1]

    def renew(self, memory: Memory, first: jax.Array) -> Memory:
        """The memory, begun anew where `first` [...] is True."""

        def one(blank: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(first[..., None], jnp.broadcast_to(blank, old.shape), old)

        return jax.tree.map(one, self.initial_memory(), memory)

    @property
    def _cell(self) -> nn.RNNCellBase | None:
        if self.name == "none":
            return None
        cell = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}[self.name]
        return cell(self.size, param_dtype=jnp.result_type(float))


NO_CORE = Core("none", 0)
"""Nothing is remembered."""
