"""What goes from one call on `flow` to the next: handles on variables, and the structures that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.errors import BadAlgorithm


@dataclass(frozen=True)
class Value:
    """A handle on a variable. `handle.field`, `handle["key"]` and `handle[0]` are handles on its parts."""

    name: str
    pick: Callable[[Value, Any], Any] | None = field(default=None, repr=False, compare=False)
    """(handle, attribute or key) -> the handle on that part."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self.pick is None:  # what Python and JAX ask of any object
            raise AttributeError(f"a handle has no attribute {name!r}")
        return self.pick(self, name)

    def __getitem__(self, key: Any) -> Any:
        if self.pick is None:
            raise TypeError(f"the handle {self.name!r} has no parts")
        return self.pick(self, key)

    def __bool__(self) -> bool:
        raise TypeError(
            f"the handle {self.name!r} cannot be tested for truth: the loop is recorded once, before there are values. "
            "Decide in a method, with jnp.where or jax.lax.cond"
        )

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            f"cannot unpack the handle {self.name!r}, which is on one value: a method that returns a tuple gives as "
            "many handles, and parts of a value are asked for by name or number"
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transitions:
    """What happened in single steps, without what the policy thought of it."""

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    next_observation: Any
    valid: Any = ()
    """Which steps really happened; () where all did."""
    truncated: Any = ()
    """Where an episode was cut short, for items of several steps; () where nothing says."""
    discount: Any = ()
    """What the value of the next observation counts; () where it is that of one step."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rollout:
    """T steps of B environments. `next_observation` is the true one, also where an episode ended."""

    observation: Any  # [T, B, ...]
    action: Any  # [T, B, ...]
    extras: Any  # [T, B, ...]
    reward: Any  # [T, B]
    terminated: Any  # [T, B]
    truncated: Any  # [T, B]
    next_observation: Any  # [T, B, ...]
    valid: Any = ()
    """[T, B] which steps really happened, where an environment's worker may die; () where all do."""
    first: Any = ()
    """[T, B] which observations open an episode, for policies with a memory; else ()."""
    memory: Any = ()
    """[B, ...] what the policy remembered when the rollout began; () if it remembers nothing."""

    @property
    def transitions(self) -> Transitions:
        return Transitions(
            self.observation,
            self.action,
            self.reward,
            self.terminated,
            self.next_observation,
            self.valid,
            self.truncated,
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Drawn:
    """N items drawn from a replay."""

    items: Any  # [N, ...], or sequences [N, L, ...]
    index: Any = ()
    """int32 [N, 2]: the row since the start of the run (-1: no item) and the environment's column, for the update of
    priorities; () where there are none."""
    weight: Any = ()
    """[N] the importance weights, at most 1; () where all are as likely."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Swept:
    """Consecutive steps of every environment, as a replay holds them."""

    items: Any  # [T, B, ...]
    held: Any
    """bool [T, B]: which of them the replay holds; the others mean nothing."""


@dataclass(frozen=True)
class Structure:
    """A tree whose leaves are variables. It is a value: two that are alike are equal."""

    treedef: Any
    names: tuple[str, ...]
    """The variable in the place of each leaf."""

    def __call__(self, table: Mapping[str, Any]) -> Any:
        """The tree with each variable's value in its places."""
        return jax.tree.unflatten(self.treedef, [table[name] for name in self.names])


def split(values: Any) -> tuple[list[str], Structure]:
    """The variables inside a tree of handles, and the tree."""
    leaves, treedef = jax.tree.flatten(values, is_leaf=lambda leaf: isinstance(leaf, Value))
    for leaf in leaves:
        if not isinstance(leaf, Value):
            raise BadAlgorithm(
                f"A call on flow takes what earlier calls on flow returned; got {leaf!r} ({type(leaf).__name__}). "
                "Constants belong into the algorithm's fields."
            )
    names = tuple(leaf.name for leaf in leaves)
    return list(dict.fromkeys(names)), Structure(treedef, names)


def strict(leaf: Any) -> jax.Array:
    """The leaf as an array of a definite type: a weak one would change a loop's type from round to round."""
    array = jnp.asarray(leaf)
    return jax.lax.convert_element_type(array, array.dtype) if array.weak_type else array


def strict_aval(leaf: Any) -> jax.ShapeDtypeStruct:
    array = leaf if hasattr(leaf, "dtype") and hasattr(leaf, "shape") else jnp.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def is_key(leaf: Any) -> bool:
    """Whether it is an array of random keys, which NumPy does not know."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def on_host(leaf: Any) -> Any:
    """A copy of an array in the host's memory; random keys remain an array of JAX."""
    if not is_key(leaf):
        return np.array(leaf)
    return jax.random.wrap_key_data(jnp.array(np.array(jax.random.key_data(leaf))), impl=jax.random.key_impl(leaf))


def show(tree: Any) -> str:
    """The types in a tree, for a message."""

    def one(leaf: Any) -> str:
        return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" if hasattr(leaf, "shape") else type(leaf).__name__

    leaves = jax.tree.leaves(tree)
    if len(leaves) == 1 and jax.tree.structure(tree) == jax.tree.structure(0):
        return one(leaves[0])
    return f"{type(tree).__name__} of ({', '.join(map(one, leaves[:8]))}{', ...' if len(leaves) > 8 else ''})"


def difference(before: Any, after: Any) -> str:
    """Where two trees of types first differ, as a sentence."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        return "Their structures differ."
    paths = jax.tree_util.tree_flatten_with_path(before)[0]
    for (path, old), new in zip(paths, jax.tree.leaves(after), strict=True):
        if old != new:
            where = jax.tree_util.keystr(path) or "the value"
            return f"The first difference is at {where}: {show(old)} became {show(new)}."
    return "They are the same."
