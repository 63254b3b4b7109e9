"""From what a loop recorded to a graph: the prefill, and what is known only when all of the loop is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from motet.errors import BadAlgorithm
from motet.flow.graph import Item, Loop, Node, walk

PREFILL = 2**31
"""The number of the first round of the prefill, far from every iteration."""


def first_learner(title: str, iteration: Loop) -> str:
    """The node that first changes the learner state: where the state is, its first value is made."""
    for item, _ in walk(iteration):
        if _kind(item) == "apply":
            return item.name
    raise BadAlgorithm(f"{title}.loop never calls flow.apply: nothing would ever be learned.")


def prefill_loop(items: list[Item], steps: int, steps_each: int) -> list[Loop]:
    """The rounds that fill the replay: the iteration's own acting and remembering, numbered apart."""
    rounds = math.ceil(steps / steps_each)
    acting = [item for item in items if _kind(item) == "remember" or getattr(item, "rate", "") == "step"]
    if rounds and len(acting) < 2:
        raise BadAlgorithm("flow.prefill needs flow.unroll and flow.remember directly in the loop.")
    return [Loop("prefill", rounds, tuple(acting), (), "run", first=PREFILL)] if rounds else []


def complete(item: Item, learner: str, views: tuple[str, ...]) -> Any:
    """Say what is known only at the end: who writes the views, and where the learner's first state is made."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(complete(child, learner, views) for child in item.body))
    if "learner" not in item.writes:
        return item
    site = learner if item.kind == "init" else item.site
    return replace(item, site=site, writes=(*item.writes, *views))


def _kind(item: Item) -> str:
    return item.kind if isinstance(item, Node) else "loop"
