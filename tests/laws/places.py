"""What in a piece of Python says where it runs: devices and meshes, collectives, threads, processes, callbacks.

Everything is read off the syntax tree: names, attributes, parameters, keywords, imports and what `getattr` is asked
for. Comments and texts may speak of anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

MODULES = frozenset({
    "ray", "threading", "_thread", "multiprocessing", "subprocess", "concurrent", "queue", "asyncio", "socket",
    "signal", "mpi4py", "zmq", "jax.sharding", "jax.distributed", "jax.experimental", "jax.debug",
})  # fmt: skip
"""Modules that are for places alone, with all that is inside them."""
NAMES = frozenset({
    # compiling and mapping over devices
    "jit", "pjit", "pmap", "xmap", "shard_map", "make_mesh", "set_mesh", "use_mesh", "axis_name", "spmd_axis_name",
    "axis_index_groups", "NamedSharding", "PartitionSpec", "with_sharding_constraint",
    # collectives
    "psum", "pmean", "pmax", "pmin", "ppermute", "pshuffle", "pswapaxes", "pbroadcast", "psum_scatter", "pvary",
    "pcast", "all_gather", "all_to_all", "all_gather_invariant", "axis_index", "axis_size",
    # which device, which process
    "device_put", "device_get", "default_backend", "default_device", "rank", "local_rank", "world_size",
    "block_until_ready",
    # back to the host
    "io_callback", "pure_callback", "host_callback", "debug", "debug_callback",
    # threads and processes
    "Thread", "Process", "Lock", "RLock", "Condition", "Semaphore", "Event", "Barrier", "Pool", "Popen", "fork",
    "spawn", "system",
})  # fmt: skip
WORDS = frozenset({
    "device", "devices", "mesh", "meshes", "shard", "shards", "sharding", "shardings", "replica", "replicas",
    "thread", "threads", "process", "processes", "multiprocessing", "subprocess", "queue", "queues", "executor",
    "executors", "callback", "callbacks", "collective", "collectives",
})  # fmt: skip
"""Words that no identifier may be made of, as `num_replicas` and `ThreadPoolExecutor` are."""


def places(source: str) -> set[str]:
    """The identifiers and modules in `source` that say where something runs."""
    tree = ast.parse(source)
    found = {name for name in identifiers(tree) if name in NAMES or WORDS & set(words(name))}
    return found | {name for name in modules(tree) if _is_banned(name)}


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Every name that a program uses or gives, not those inside its texts."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from (*name.split("."), *([other] if other else []))
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name


def modules(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported or reached from one by dots: `jax.experimental.multihost_utils`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(func=ast.Attribute(attr=how) | ast.Name(id=how), args=[ast.Constant(value=str(name)), *_]):
                if how in ("import_module", "__import__"):
                    yield name
            case ast.Attribute() | ast.Name():
                if dotted := _dotted(node):
                    yield dotted


def words(name: str) -> list[str]:
    """`ThreadPoolExecutor` and `thread_pool_executor` -> thread, pool, executor."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def _is_banned(module: str) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:length]) in MODULES for length in range(1, len(parts) + 1))


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return before and f"{before}.{node.attr}"
    return None
