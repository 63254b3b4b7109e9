"""Sum trees as pure functions on JAX arrays: [B, nodes], one tree for each environment.

Cut along the first axis, a tree falls into whole trees. For use inside compiled loops with donated buffers: nothing
but the touched nodes is written.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from motet.replay.tree import TreeShape


def empty(shape: TreeShape, columns: int) -> jax.Array:
    return jnp.zeros((columns, shape.nodes), jnp.float32)


def update(
    shape: TreeShape, tree: jax.Array, column: jax.Array, leaf: jax.Array, value: jax.Array, *, unique: bool = False
) -> jax.Array:
    """Set leaves [N] and all that is above them. Of entries for the same leaf the last one counts.

    Entries with a leaf of -1 are left out. `unique` promises that the others are for different leaves.
    """
    columns = tree.shape[0]
    counted = leaf >= 0
    if not unique:
        counted &= _last(jnp.where(counted, column * shape.leaves + leaf, -1))
    tree = tree.at[column, jnp.where(counted, shape.first_leaf + leaf, shape.nodes)].set(value, mode="drop")
    leaf = jnp.maximum(leaf, 0)
    for level in reversed(range(shape.depth)):
        if columns * shape.counts[level] <= leaf.size:
            tree = _sum_level(shape, tree, level)
            continue
        node = leaf >> (shape.shift * (shape.depth - level))
        total = _running(_children(shape, tree, column, level, node))[-1]
        # Entries below the same parent write the same number.
        tree = tree.at[column, shape.offsets[level] + node].set(total, mode="promise_in_bounds")
    return tree


def find(shape: TreeShape, tree: jax.Array, share: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Where `share` [N], each from [0, 1], of the sum of all trees ends -> columns, leaves and their values.

    If all is zero the values are zero and the places mean nothing.
    """
    columns = tree.shape[0]
    top = TreeShape(columns, shape.fan_out)
    joined = jax.lax.dynamic_update_slice(empty(top, 1), tree[None, :, 0], (0, top.first_leaf))
    for level in reversed(range(top.depth)):
        joined = _sum_level(top, joined, level)
    total = joined[0, 0]
    zero = jnp.zeros(share.shape, jnp.int32)
    target = jnp.minimum(share * total, total)
    column, target = _descend(top, joined, zero, target)
    leaf, _ = _descend(shape, tree, column, target)
    # In an empty tree the walk may end in the padding.
    column, leaf = jnp.minimum(column, columns - 1), jnp.minimum(leaf, shape.leaves - 1)
    return column, leaf, tree.at[column, shape.first_leaf + leaf].get(mode="promise_in_bounds")


def _descend(shape: TreeShape, tree: jax.Array, column: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    node = jnp.zeros_like(column)
    for level in range(shape.depth):
        children = _children(shape, tree, column, level, node)
        sums = jnp.stack(_running(children), 1)
        last = jnp.max(jnp.where(children > 0, jnp.arange(shape.fan_out, dtype=jnp.int32)[None], 0), 1)
        child = jnp.minimum(jnp.sum(target[:, None] >= sums, 1, dtype=jnp.int32), last)
        left = jnp.take_along_axis(sums, jnp.maximum(child - 1, 0)[:, None], 1, mode="promise_in_bounds")[:, 0]
        before = jnp.where(child > 0, left, 0)
        target = target - before
        node = node * shape.fan_out + child
    return node, target


def _children(shape: TreeShape, tree: jax.Array, column: jax.Array, level: int, node: jax.Array) -> jax.Array:
    """The children of nodes [N] of a level -> [N, K]. They lie side by side, so this fetches whole rows."""
    group = column * (shape.nodes // shape.fan_out) + shape.offsets[level + 1] // shape.fan_out + node
    return tree.reshape(-1, shape.fan_out).at[group].get(mode="promise_in_bounds")


def _sum_level(shape: TreeShape, tree: jax.Array, level: int) -> jax.Array:
    """All nodes of a level anew."""
    count, below = shape.counts[level], shape.offsets[level + 1]
    children = tree[:, below : below + count * shape.fan_out].reshape(-1, shape.fan_out)
    # Without the barrier XLA:CPU runs a program of its own for every child of a small level.
    total = _running(jax.lax.optimization_barrier(children))[-1].reshape(-1, count)
    return jax.lax.dynamic_update_slice(tree, total, (0, shape.offsets[level]))


def _running(children: jax.Array) -> list[jax.Array]:
    """[N, K] -> the K running sums, each added to the one before."""
    sums = [children[:, 0]]
    for position in range(1, children.shape[1]):
        sums.append(sums[-1] + children[:, position])
    return sums


def _last(place: jax.Array) -> jax.Array:
    """Which entries [N] have no later one for the same place."""
    order = jnp.argsort(place, stable=True)
    ordered = place[order]
    last = jnp.concatenate([ordered[1:] != ordered[:-1], jnp.ones(1, bool)])
    return jax.lax.optimization_barrier(jnp.zeros(place.shape, bool).at[order].set(last, unique_indices=True))
