"""Whether two graphs are the same program: one number for each, equal in every process that traces the same loop.

Hosts that trace for themselves compare it before they begin.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from motet.flow.graph import Graph, Item, Loop
from motet.flow.host import HostCall
from motet.flow.values import is_key

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where an object lies in memory, which its text may say."""


def fingerprint(graph: Graph) -> str:
    """A hash of all that a graph computes: its loops, types, code and constants."""
    sha = hashlib.sha256()
    for line in _lines(graph):
        sha.update(line.encode() + b"\n")
    return sha.hexdigest()


def _lines(graph: Graph) -> Iterator[str]:
    yield f"{graph.algorithm} {graph.environment} {graph.num_envs} {graph.iterations} {graph.steps_per_iteration}"
    yield f"{graph.prefill_steps} {graph.max_lag} {graph.divisors} {graph.reports} {graph.roles}"
    for var in graph.variables.values():
        yield _plain(var)
    for view in graph.views.values():
        yield f"{view.name} of {view.of}"
        yield from _code(view.code)
    yield from _items(graph.root)


def _items(item: Item) -> Iterator[str]:
    if isinstance(item, Loop):
        yield f"{item.name} {item.count} {item.first} {item.every} {item.rate} {item.outputs}"
        for child in item.body:
            yield from _items(child)
        yield f"end of {item.name}"
        return
    yield _plain(item)
    yield _plain((item.host and _asked(item.host), item.replay))
    for cut, code in sorted(item.code.items(), key=lambda each: each[0]):  # whatever order they were asked for in
        yield str(cut)
        yield from _code(code)


def _asked(call: HostCall) -> tuple[Any, ...]:
    """What of a host environment is in the graph. What it computes is not: it is opaque, and known by its name."""
    env = call.environment
    return call.opens, call.writes, call.episode, call.action, env.name, env.observation_space, env.action_space


def _code(code: Any) -> Iterator[str]:
    """A jaxpr as text, and the constants that it refers to."""
    yield _plain(code)
    for const in getattr(code, "consts", ()):
        array = np.asarray(jax.random.key_data(const) if is_key(const) else const)
        yield f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _plain(value: Any) -> str:
    return ADDRESS.sub("", str(value))
