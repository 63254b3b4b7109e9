"""The loops of the sum tree on the host, compiled by numba: import this only where numba is needed.

Trees come flat, one column after the other. `bits` is a tuple of log2 K zeros: its length is part of its type, so that
K is a constant for the compiler, which then keeps the K children of a node in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def loop(function: Callable[..., Any]) -> Any:
    """Compiled when first called; kept on disk where there is a place for it."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither this folder nor the user's own can be written to
        return njit(nogil=True)(function)


@loop
def sum_children(children: Any, bits: Any) -> Any:
    total = children[0]
    for child in range(1, 1 << len(bits)):
        total += children[child]
    return total


@loop
def update(tree: Any, columns: int, counts: Any, offsets: Any, bits: Any, column: Any, leaf: Any, value: Any) -> None:
    depth, shift, fan_out = counts.size - 1, len(bits), 1 << len(bits)
    for entry in range(leaf.size):
        if leaf[entry] >= 0:
            tree[column[entry] * offsets[-1] + offsets[depth] + leaf[entry]] = value[entry]
    for level in range(depth - 1, -1, -1):
        above, below = offsets[level], offsets[level + 1]
        if columns * counts[level] <= leaf.size:  # fewer nodes than entries: all of them anew
            for start in range(0, columns * offsets[-1], offsets[-1]):
                for node in range(counts[level]):
                    first = start + below + (node << shift)
                    tree[start + above + node] = sum_children(tree[first : first + fan_out], bits)
            continue
        for entry in range(leaf.size):
            if leaf[entry] >= 0:
                start, node = column[entry] * offsets[-1], leaf[entry] >> (shift * (depth - level))
                first = start + below + (node << shift)
                tree[start + above + node] = sum_children(tree[first : first + fan_out], bits)


@loop
def join(top: Any, counts: Any, offsets: Any, bits: Any, tree: Any, nodes: int) -> None:
    """The tree above the roots of all columns."""
    depth, shift, fan_out = counts.size - 1, len(bits), 1 << len(bits)
    for column in range(counts[depth]):
        top[offsets[depth] + column] = tree[column * nodes]
    for level in range(depth - 1, -1, -1):
        for node in range(counts[level]):
            first = offsets[level + 1] + (node << shift)
            top[offsets[level] + node] = sum_children(top[first : first + fan_out], bits)


@loop
def last_positive(children: Any) -> int:
    """The last child of more than zero; the first one if there is none."""
    last = 0
    for child in range(children.size):
        if children[child] > 0:
            last = child
    return last


@loop
def descend(tree: Any, offsets: Any, bits: Any, column: Any, node: Any, target: Any) -> None:
    """Walk down with all targets [N] together, level by level: while one waits for memory, another goes on.

    First the running sums, then how many of them a target reaches: no branch depends on where a target ends, which
    is as good as random and could not be guessed.
    """
    shift, fan_out = len(bits), 1 << len(bits)
    sums = np.zeros(fan_out + 1, np.float32)
    for level in range(offsets.size - 2):
        for entry in range(node.size):
            first = column[entry] * offsets[-1] + offsets[level + 1] + (node[entry] << shift)
            children = tree[first : first + fan_out]
            running, child, goal = np.float32(0), 0, target[entry]
            for each in range(fan_out):
                running += children[each]
                sums[each + 1] = running
            for each in range(fan_out):
                child += goal >= sums[each + 1]
            if child == fan_out:  # rounding has left none
                child = last_positive(children)
            target[entry] = goal - sums[child]
            node[entry] = (node[entry] << shift) + child


@loop
def find(
    top: Any,
    top_offsets: Any,
    tree: Any,
    offsets: Any,
    bits: Any,
    share: Any,
    total: Any,
    column: Any,
    leaf: Any,
    value: Any,
) -> None:
    """Columns, leaves and values [N], for columns and leaves that come as zeros."""
    target = np.minimum(share * total, total)
    descend(top, top_offsets, bits, leaf, column, target)  # the roots' tree has but one column: 0
    descend(tree, offsets, bits, column, leaf, target)
    for entry in range(share.size):
        value[entry] = tree[column[entry] * offsets[-1] + offsets[-2] + leaf[entry]]
