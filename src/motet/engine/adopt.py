"""Go on from a cut under another plan, or on another number of devices.

Whatever the plan, the variables of the loop are the same. Each is put together from the shares that hold it, and cut
again as the new plan wants it. Messages that were under way are left: what the cut knows serves until new ones come, as
what is there at a run's start does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from motet.engine.assemble import Assembly
from motet.engine.cut import RunCut, WorkerShare
from motet.engine.perform import Performer
from motet.engine.worker import WorkerState
from motet.errors import BadOption
from motet.flow.graph import Graph
from motet.flow.jaxprs import jaxpr_as_fun
from motet.flow.values import is_key, on_host


def adopt(assembly: Assembly, cut: RunCut) -> None:
    """Put the workers of a run that has not begun where those of another plan of the same loop were."""
    whole = _Whole(assembly.graph, cut)
    found = [(each, _variables(each, whole)) for each in assembly.performers]  # all of it before anything changes
    stores = [share.replay for share in cut.shares.values() if share.replay]
    for performer, variables in found:
        performer.worker.load(WorkerState(cut.iteration, variables))
        performer.worker.begun = cut.iteration
        if performer.replay.where and assembly.graph.roles.replay in variables:
            if not stores:
                raise BadOption("Its replay lies inside of XLA, and this plan wants it outside; keep it where it is.")
            performer.replay.resume(performer.worker.schedule, stores[0])


def _variables(performer: Performer, whole: _Whole) -> dict[str, tuple[Any, ...]]:
    """What a worker needs of the whole, where it belongs."""
    worker, place, graph = performer.worker, performer.home.place, whole.graph
    members = performer.home.members
    found: dict[str, tuple[Any, ...]] = {}
    for name in worker.schedule.state:
        if name == graph.roles.replay and performer.replay.where:
            found[name] = ()
            continue
        axes, wanted = graph.variables[name].axes, graph.variables[name].local(members)
        leaves = [_rows(leaf, axis, worker.index, members) for leaf, axis in zip(whole[name], axes, strict=True)]
        if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(aval.shape, aval.dtype) for aval in wanted]:
            raise BadOption(f"Its {name!r} does not fit: {worker.name} should have {wanted}.")
        found[name] = tuple(map(place.put, leaves, axes))
    return found


def _rows(leaf: Any, axis: int | None, index: int, pieces: int) -> Any:
    if axis is None:
        return leaf
    size = leaf.shape[axis] // pieces
    return leaf[(slice(None),) * axis + (slice(index * size, (index + 1) * size),)]


class _Whole:
    """The variables of a cut with all environments in one piece."""

    def __init__(self, graph: Graph, cut: RunCut):
        self.graph = graph
        self.fragments: dict[str, list[WorkerShare]] = {}
        for share in sorted(cut.shares.values(), key=lambda share: share.index):
            self.fragments.setdefault(share.fragment, []).append(share)

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        var = self.graph.variables[name]
        if name in self.graph.views:  # always from what it is a view of: other copies may be late
            view = self.graph.views[name]
            return tuple(map(on_host, jaxpr_as_fun(view.code)(*self[view.of])))
        for shares in self.fragments.values():
            held: list[Mapping[str, tuple[Any, ...]]] = [share.variables for share in shares]
            if all(len(each.get(name, ())) == len(var.avals) for each in held):
                return tuple(_joined([each[name][place] for each in held], axis) for place, axis in enumerate(var.axes))
        raise BadOption(f"It does not hold {name!r} in a form that this plan can use.")


def _joined(parts: list[Any], axis: int | None) -> Any:
    if axis is None or len(parts) == 1:
        return parts[0]
    return (jnp if is_key(parts[0]) else np).concatenate(parts, axis)
