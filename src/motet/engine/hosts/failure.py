"""An error on its way from one process to another: itself if that can be, and in any case its own traceback as text."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

from motet.errors import MotetError, Stalled, described


class HostFailed(MotetError, RuntimeError):
    """What a host raised, and what cannot be had in this process."""


@dataclass(frozen=True)
class Failure:
    """What a host raised."""

    host: int
    text: str
    traceback: str
    packed: bytes | None
    """Its class, its arguments and what it holds."""

    @classmethod
    def of(cls, host: int, error: BaseException) -> Failure:
        told = "".join(traceback.format_exception(error))
        try:
            packed = cloudpickle.dumps((type(error), error.args, error.__dict__))
            _made(packed)
        except Exception:
            packed = None
        return cls(host, described(error), told, packed)

    def error(self) -> BaseException:
        """The error, for whoever leads the run to raise."""
        try:
            made = _made(self.packed) if self.packed is not None else HostFailed(self.text)
        except Exception:  # its class is not here
            made = HostFailed(self.text)
        made.add_note(f"(raised on host {self.host}; there it was)\n{self.traceback.rstrip()}")
        return made


def _made(packed: bytes) -> BaseException:
    """Without a call of its own constructor, which may take other arguments than it keeps."""
    kind, args, held = cloudpickle.loads(packed)
    error: Any = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(held)
    return error


def explained(failure: Failure, doing: Mapping[int, Mapping[str, str]]) -> BaseException:
    """A host's error, for whoever leads. One that waited in vain is told what the other hosts did meanwhile."""
    error = failure.error()
    if isinstance(error, Stalled) and doing:
        others = "; ".join(
            f"on host {host}, {', '.join(f'{who} is {what}' for who, what in sorted(each.items())) or 'nobody runs'}"
            for host, each in sorted(doing.items())
        )
        error.args = (f"On host {failure.host}, {error} Meanwhile {others}.",)
    return error
