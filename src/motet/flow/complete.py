"""From what a loop recorded to a graph: the prefill, and what is known only when all of the loop is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from motet.errors import BadAlgorithm
from motet.flow.graph import Item, Loop, Node, exposed, walk, written

PREFILL = 2**31
"""The number of the first round of the prefill, far from every iteration."""


def first_learner(title: str, iteration: Loop) -> str:
    """The node that first changes the learner state: where the state is, its first value is made."""
    for item, _ in walk(iteration):
        if isinstance(item, Node) and "learner" in item.writes:
            return item.name
    raise BadAlgorithm(f"{title}.loop never calls flow.apply: nothing would ever be learned.")


def prefill_loop(items: Sequence[Item], steps: int, steps_each: int) -> list[Loop]:
    """The rounds that fill the replay: what the iteration does to act and to remember, numbered apart.

    That is the rollout, and whatever lies between it and `remember` and has a part in what is remembered. Nothing is
    learned meanwhile, and what runs in some iterations alone does not run.
    """
    rounds = math.ceil(steps / steps_each)
    if not rounds:
        return []
    end = next((place for place, item in enumerate(items) if _kind(item) == "remember"), None)
    if end is None or not any(_is_rollout(item) for item in items[:end]):
        raise BadAlgorithm("flow.prefill needs flow.unroll and flow.remember directly in the loop.")
    before = [item for item in items[:end] if "learner" not in written(item) and getattr(item, "every", 1) == 1]
    chosen: list[Item] = []
    while True:
        needed = frozenset().union(*(exposed((item,)) for item in (*chosen, items[end])))
        more = [item for item in before if _is_rollout(item) or written(item) & needed]
        if len(more) == len(chosen):
            return [Loop("prefill", rounds, (*chosen, items[end]), (), "run", first=PREFILL)]
        chosen = more


def complete(item: Item, sites: Mapping[str, str], views: tuple[str, ...]) -> Any:
    """Say what is known only at the end: who writes the views, and where the first values of states are made."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(complete(child, sites, views) for child in item.body))
    if item.kind == "init":
        item = replace(item, site=next((sites[var] for var in item.writes if var in sites), item.site))
    return replace(item, writes=(*item.writes, *views)) if "learner" in item.writes else item


def _is_rollout(item: Item) -> bool:
    return isinstance(item, Loop) and item.rate == "step"


def _kind(item: Item) -> str:
    return item.kind if isinstance(item, Node) else "loop"
