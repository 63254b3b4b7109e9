"""A cut as plain arrays and JSON, and back. What is read may be anybody's file: every part is looked at first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from motet.engine.cut import RunCut, WorkerShare
from motet.engine.ports import Message
from motet.errors import MotetError
from motet.flow.values import is_key

Arrays = dict[str, np.ndarray]


class BadCut(MotetError, ValueError):
    """What should be a cut is none."""


def pack(cut: RunCut) -> tuple[dict[str, Any], Arrays]:
    """A cut -> what it consists of, as JSON, and its arrays by name."""
    packing = _Packing()
    told = {
        "iteration": cut.iteration,
        "watched": dict(cut.watched),
        "workers": {name: packing.share(name, share) for name, share in cut.shares.items()},
    }
    return {**told, "keys": packing.keys}, packing.arrays


class _Packing:
    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.keys: dict[str, str] = {}

    def share(self, worker: str, share: WorkerShare) -> dict[str, Any]:
        for name, leaves in share.variables.items():
            self.leaves(_name(worker, "variable", name), leaves)
        for channel, messages in share.messages.items():
            for number, message in enumerate(messages):
                self.leaves(_name(worker, "message", channel, number), message.payload)
        for name, array in share.replay.items():
            self.arrays[_name(worker, "replay", name)] = array
        return {
            "fragment": share.fragment,
            "index": share.index,
            "variables": {name: len(leaves) for name, leaves in share.variables.items()},
            "messages": {
                channel: [{"version": list(m.version), "order": m.order, "leaves": len(m.payload)} for m in messages]
                for channel, messages in share.messages.items()
            },
            "replay": list(share.replay),
            "sent": share.sent,
            "traffic": {channel: list(counts) for channel, counts in share.traffic.items()},
            "ages": {wire: sorted(ages.items()) for wire, ages in share.ages.items()},
        }

    def leaves(self, name: str, leaves: tuple[Any, ...]) -> None:
        for number, leaf in enumerate(leaves):
            place = f"{name}/{number}"
            if is_key(leaf):
                self.keys[place] = str(jax.random.key_impl(leaf))
                leaf = jax.random.key_data(leaf)
            self.arrays[place] = np.asarray(leaf)


def unpack(told: Mapping[str, Any], arrays: Arrays) -> RunCut:
    """The cut that `pack` was given, or a `BadCut` that says what is wrong. Takes the arrays out of `arrays`."""
    try:
        keys = {str(name): str(impl) for name, impl in told["keys"].items()}
        reading = _Unpacking(dict(arrays), keys)
        shares = {str(name): reading.share(str(name), each) for name, each in told["workers"].items()}
        cut = RunCut(_count(told["iteration"]), shares, dict(told["watched"]))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise BadCut(f"it {what}" if isinstance(error, KeyError) else f"something in it is amiss ({what})") from None
    if reading.arrays:
        raise BadCut(f"nothing in it tells what the array {min(reading.arrays)!r} is for")
    return cut


class _Unpacking:
    def __init__(self, arrays: Arrays, keys: Mapping[str, str]):
        self.arrays, self.keys = arrays, keys

    def share(self, worker: str, told: Mapping[str, Any]) -> WorkerShare:
        return WorkerShare(
            worker,
            str(told["fragment"]),
            _count(told["index"]),
            {name: self.leaves(_name(worker, "variable", name), count) for name, count in told["variables"].items()},
            {
                channel: tuple(
                    self.message(_name(worker, "message", channel, number), each) for number, each in enumerate(found)
                )
                for channel, found in told["messages"].items()
            },
            {str(name): self.arrays.pop(_name(worker, "replay", name)) for name in told["replay"]},
            _count(told["sent"]),
            {channel: (_count(messages), _count(size)) for channel, (messages, size) in told["traffic"].items()},
            {wire: {_count(age): _count(times) for age, times in found} for wire, found in told["ages"].items()},
        )

    def message(self, name: str, told: Mapping[str, Any]) -> Message:
        version = tuple(_count(each) for each in told["version"])
        return Message(version, self.leaves(name, told["leaves"]), _count(told["order"]))

    def leaves(self, name: str, count: Any) -> tuple[Any, ...]:
        return tuple(self.leaf(f"{name}/{number}") for number in range(_count(count)))

    def leaf(self, name: str) -> Any:
        array = self.arrays.pop(name)
        return jax.random.wrap_key_data(jnp.asarray(array), impl=self.keys[name]) if name in self.keys else array


def _name(worker: str, kind: str, *more: object) -> str:
    return "/".join([worker, kind, *map(str, more)])


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} should be a whole number")
    return value
