"""Parts of a value: how an attribute or item of a handle becomes a variable of its own.

A part is made by a node that computes nothing, right behind the one that makes the whole and wherever that runs: so it
travels by itself, and a fragment that reads a part is sent no more than the part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax

from motet.errors import BadAlgorithm
from motet.flow.graph import Item, Node, Var, written
from motet.flow.values import Value, show

if TYPE_CHECKING:
    from motet.flow.record import GraphRecorder


@dataclass
class Parts:
    """The parts that one loop has asked for."""

    record: GraphRecorder
    known: dict[tuple[str, Any], Any] = field(default_factory=dict)

    def handle(self, name: str) -> Value:
        """A handle on a variable, which can be asked for parts."""
        return Value(name, self.pick)

    def pick(self, value: Value, key: Any) -> Any:
        """The part of a value that its structure has under `key`; () and the like, which hold no array, as they are."""
        known = (value.name, key)
        if known not in self.known:
            self.known[known] = self._pick(value.name, key)
        return self.known[known]

    def _pick(self, whole: str, key: Any) -> Any:
        record = self.record
        var = record.variables[whole]
        if var.loop is None:
            raise BadAlgorithm(
                f"{whole!r} is a state, whose value changes: pass all of it to the method, and take {key!r} there."
            )
        places = var.unpack(tuple(map(_Place, range(len(var.avals)))))
        part = _part(whole, record.shape(whole), places, key)
        leaves, treedef = jax.tree.flatten(part)
        if not all(isinstance(leaf, _Place) for leaf in leaves):
            raise AttributeError(f"{key!r} of {whole!r} is no part of its value; call it in a method.")
        if not leaves:
            return part
        name = record.name(f"{whole}.{key}")
        record.variables[name] = _share(var, name, treedef, [leaf.number for leaf in leaves])
        record.behind(whole, name, lambda here, tree: (_find(tree, key),))
        return self.handle(name)


@dataclass(frozen=True)
class _Place:
    """Stands for a leaf, by its number."""

    number: int


def _share(var: Var, name: str, treedef: Any, leaves: Sequence[int]) -> Var:
    """The variable of some leaves of another; what is true of them there is true here."""
    of_leaves = {
        each: tuple(getattr(var, each)[leaf] for leaf in leaves) for each in ("avals", "axes", "combine", "blocks")
    }
    return replace(var, name=name, treedef=treedef, **of_leaves)


def _part(whole: str, types: Any, tree: Any, key: Any) -> Any:
    try:
        return _find(tree, key)
    except (AttributeError, KeyError, IndexError, TypeError):
        hint = f" It has {', '.join(map(str, _names(tree)))}." if _names(tree) else ""
        # An AttributeError, so that `hasattr` works on handles.
        raise AttributeError(f"the handle {whole!r} is on {show(types)}, which has no part {key!r}.{hint}") from None


def _find(tree: Any, key: Any) -> Any:
    """An item of a dictionary, tuple or list, or an attribute of anything else."""
    if isinstance(tree, (dict, list)) or not isinstance(key, str):
        return tree[key]
    return getattr(tree, key)


def _names(tree: Any) -> list[Any]:
    """What may be asked for."""
    if isinstance(tree, dict):
        return list(tree)
    if isinstance(tree, (list, tuple)):
        return [*getattr(tree, "_fields", ()), *range(len(tree))]
    return list(getattr(tree, "__dataclass_fields__", ()))


def site_of(item: Item, var: str) -> str:
    """The site of the node in `item` that makes `var`, or what `var` is gathered from."""
    if isinstance(item, Node):
        return item.site
    inner = next((output.inner for output in item.outputs if output.name == var), var)
    return next(site_of(child, inner) for child in item.body if inner in written(child))
