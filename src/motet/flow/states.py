"""States of the author's own, beside the learner state: whole, or one for each environment."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from motet.errors import BadAlgorithm
from motet.flow.calls import OWN_NAMES, changing, name_of
from motet.flow.record import GraphRecorder, NodeRun
from motet.flow.values import Value


@dataclass
class States:
    """The author's states of one loop."""

    record: GraphRecorder
    cut: dict[str, bool] = field(default_factory=dict)
    """State -> whether there is one for each environment."""
    sites: dict[str, str] = field(default_factory=dict)
    """State -> the node that first updates it: where that runs, the first value is made."""

    def state(self, name: str, init: Callable[..., Any], per_environment: bool) -> Value:
        """See `Flow.state`."""
        record = self.record
        if not name.isidentifier() or name in OWN_NAMES | record.names | set(record.variables):
            raise BadAlgorithm(
                f"{record.title}.loop names a state {name!r}; choose a word that nothing else here is called."
            )
        keyed = "key" in inspect.signature(init).parameters

        def whole(here: NodeRun) -> tuple[Any]:
            return (init(here.key) if keyed else init(),)

        def one_each(here: NodeRun) -> tuple[Any]:
            if keyed:
                return (jax.vmap(init)(here.env_keys()),)
            return (jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (here.batch, *jnp.shape(leaf))), init()),)

        record.start(record.name(name), one_each if per_environment else whole, [name], name)
        self.cut[name] = per_environment
        return record.value(name)

    def update(self, state: Value, method: Callable[..., Any], values: tuple[Any, ...]) -> None:
        """See `Flow.update`."""
        record = self.record
        if not isinstance(state, Value) or state.name not in self.cut:
            known = ", ".join(self.cut) or "none"
            raise BadAlgorithm(
                f"flow.update changes what flow.state made ({known} here), got {state!r}. The learner state is changed "
                "by flow.apply."
            )
        # Where the environments are, a state of each of them may be cut with them; a whole one is kept in one place.
        kind = "call" if self.cut[state.name] else "apply"
        name = name_of(record, method, kind)
        reads, run = changing(state.name, method, values)
        record.node(name, kind, run, reads, [state.name])
        self.sites.setdefault(state.name, name)

    def checked(self) -> dict[str, str]:
        """State -> the node that first updates it. Every state must have one."""
        for name in self.cut:
            if name not in self.sites:
                raise BadAlgorithm(
                    f"{self.record.title}.loop never calls flow.update for the state {name!r}: what never changes "
                    "belongs into a field of the algorithm, or into its init."
                )
        return self.sites
