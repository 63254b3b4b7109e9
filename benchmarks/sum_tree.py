"""`python -m benchmarks.sum_tree [PLACE ...]`: what 128 updates and 128 draws cost on a tree of 2^20 leaves.

For every fan-out on the host, in XLA and on OpenCL, and for Tianshou's binary tree where it can be imported. All
sides are asked in turn, round after round, and the best round counts: what slows the machine down for a while slows
all of them down. XLA is measured as it is used, inside a compiled loop.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

LEAVES, BATCH = 2**20, 128
FAN_OUTS = (2, 4, 8, 16, 32, 64)
ROUNDS, CALLS = 15, 100


@dataclass(frozen=True)
class Side:
    """One tree; each function does its work `CALLS` times."""

    name: str
    update: Callable[[], None]
    sample: Callable[[], None]


def batches() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns, leaves, values and shares, each [CALLS, BATCH]: no call finds what the one before left in the caches."""
    rng, shape = np.random.default_rng(0), (CALLS, BATCH)
    leaf = rng.integers(0, LEAVES, shape).astype(np.int32)
    return np.zeros(shape, np.int32), leaf, rng.random(shape, np.float32), rng.random(shape, np.float32)


def each(function: Callable[..., Any], *arguments: np.ndarray) -> Callable[[], None]:
    def run() -> None:
        for batch in zip(*arguments, strict=True):
            function(*batch)

    return run


def host(fan_out: int) -> Side:
    from motet.replay.tree import TreeShape
    from motet.replay.tree_host import HostTree

    shape, (column, leaf, value, share) = TreeShape(LEAVES, fan_out), batches()
    tree = HostTree(shape, aligned_zeros(shape.nodes))
    fill(tree)
    return Side(f"host K={fan_out}", each(tree.update, column, leaf, value), each(tree.find, share))


def aligned_zeros(nodes: int) -> np.ndarray:
    """[1, nodes] from the start of a page, as a replay's shared memory lies: a node's children in one cache line."""
    return np.frombuffer(mmap.mmap(-1, 4 * nodes), np.float32).reshape(1, nodes)


def opencl(fan_out: int) -> Side:
    from motet.replay.opencl import Device, DeviceTree
    from motet.replay.tree import TreeShape

    column, leaf, value, share = batches()
    device = Device()
    tree = DeviceTree(device, TreeShape(LEAVES, fan_out), 1)
    fill(tree)
    update = each(tree.update, column, leaf, value)

    def finished() -> None:
        update()
        device.queue.finish()

    return Side(f"opencl K={fan_out}", finished, each(tree.find, share))


def xla(fan_out: int) -> Side:
    import jax
    import jax.numpy as jnp

    from motet.replay import tree_xla
    from motet.replay.tree import TreeShape

    shape, (column, leaf, value, share) = TreeShape(LEAVES, fan_out), map(jnp.asarray, batches())

    def updates(tree: Any) -> Any:
        return jax.lax.fori_loop(
            0, CALLS, lambda i, tree: tree_xla.update(shape, tree, column[i], leaf[i], value[i]), tree
        )

    def samples(tree: Any) -> Any:
        def one(i: Any, total: Any) -> Any:
            return total + tree_xla.find(shape, tree, share[i])[2]

        return jax.lax.fori_loop(0, CALLS, one, jnp.zeros(BATCH))

    first = HostFilled(shape)
    compiled_updates, compiled_samples = jax.jit(updates, donate_argnums=0), jax.jit(samples)
    state = [jnp.asarray(first.array)]

    def update() -> None:
        state[0] = jax.block_until_ready(compiled_updates(state[0]))

    def sample() -> None:
        jax.block_until_ready(compiled_samples(state[0]))

    return Side(f"xla K={fan_out}", update, sample)


def tianshou(_: int = 2) -> Side:
    from tianshou.data import SegmentTree  # type: ignore[import-not-found]

    tree, (_, leaf, value, share) = SegmentTree(LEAVES), batches()
    leaf, value = leaf.astype(np.int64), value.astype(np.float64)
    tree[np.arange(LEAVES)] = np.random.default_rng(1).random(LEAVES)
    return Side(
        "tianshou",
        each(tree.__setitem__, leaf, value),
        each(lambda share: tree.get_prefix_sum_idx(share * tree.reduce()), share.astype(np.float64)),
    )


class HostFilled:
    """A filled tree for those that cannot fill themselves quickly."""

    def __init__(self, shape: Any):
        from motet.replay.tree_host import HostTree

        self.array = np.zeros((1, shape.nodes), np.float32)
        fill(HostTree(shape, self.array))


def fill(tree: Any) -> None:
    leaf = np.arange(LEAVES, dtype=np.int32)
    tree.update(np.zeros_like(leaf), leaf, np.random.default_rng(1).random(LEAVES, np.float32))


PLACES: dict[str, tuple[Callable[[int], Side], tuple[int, ...]]] = {
    "host": (host, FAN_OUTS),
    "xla": (xla, FAN_OUTS),
    "opencl": (opencl, FAN_OUTS),
    "tianshou": (tianshou, (2,)),
}


def sides(places: Iterable[str]) -> list[Side]:
    """What can be measured here; what cannot is named."""
    found = []
    for place in places:
        make, fan_outs = PLACES[place]
        try:
            found += [make(fan_out) for fan_out in fan_outs]
        except ImportError as error:
            print(f"{place} is left out: {error}", file=sys.stderr)
    return found


def measure(sides: list[Side], rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """The milliseconds of one update and one sample of each side, the best of all rounds."""
    best = {side.name: {"update": np.inf, "sample": np.inf} for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            for name in ("update", "sample"):
                began = time.perf_counter()
                getattr(side, name)()
                took = (time.perf_counter() - began) / CALLS * 1e3
                if number:  # the first round compiles
                    best[side.name][name] = min(best[side.name][name], took)
    return best


def main(places: list[str]) -> None:
    results = measure(sides(places or PLACES))
    print(f"{BATCH} items on {LEAVES:,} leaves, milliseconds (best of {ROUNDS} rounds)")
    for name, row in results.items():
        print(f"{name:>20}  update {row['update']:.4f}  sample {row['sample']:.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
