"""A pool in the caller's own thread."""

from __future__ import annotations

import threading
import warnings

import numpy as np

from motet.bounds import RECORD, Outside, Tally
from motet.envs.checks import all_bounds
from motet.envs.form import Form
from motet.envs.group import Build, Group, Seats
from motet.envs.slots import Slot, slots_over, slots_size
from motet.errors import MotetError
from motet.flow.host import HostStep, Leaves, Opening

CLOSING = 5.0
"""Seconds that environments may take to close."""


class ThreadPool:
    """Every environment is stepped by whoever calls. No step can be cut short: `timeout` has no meaning here."""

    def __init__(self, build: Build, form: Form, opening: Opening, tally: Tally | None = None):
        self._form, self._tally, self._record = form, tally or Tally(), np.zeros(RECORD)
        piece = Seats(opening.first, tuple(opening.seed_of(index) for index in range(opening.count)))
        self._group: Group | None = build(piece, [0], self._record)
        self._slots = slots_over(np.zeros(slots_size(form, opening.count), np.uint8), 0, form, opening.count)
        self._turn = 0
        self._valid = np.ones(opening.count, np.bool_)
        self._restarts = np.zeros(opening.count, np.int32)
        self._valid.flags.writeable = self._restarts.flags.writeable = False

    def reset(self) -> Leaves:
        group, slot = self._open(), self._next_slot()
        try:
            group.reset(slot)
        except BaseException:
            self.close()
            raise
        return slot.observation

    def step(self, action: Leaves) -> HostStep:
        group, slot = self._open(), self._next_slot()
        slot.put(action)
        try:
            group.step(slot)
        except BaseException:  # Some environments have made the step, some have not.
            self.close()
            raise
        return HostStep(*slot[1:], self._valid, self._restarts)

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            self._tally.add(Outside.read(self._record, all_bounds(self._form)))
            self._close(group)

    def _close(self, group: Group) -> None:
        """Close the environments in a thread of their own: nobody can end a close() that hangs, but nobody need wait
        for it either."""
        closing = threading.Thread(target=group.close, name=f"close {self._form.name}", daemon=True)
        closing.start()
        closing.join(CLOSING)
        if closing.is_alive():
            warnings.warn(
                f"The environments of {self._form.name!r} have not closed within {CLOSING:g} s and are left as they "
                "are. Their close() should return.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _next_slot(self) -> Slot:
        self._turn = 1 - self._turn
        return self._slots[self._turn]

    def _open(self) -> Group:
        if self._group is None:
            raise MotetError("This pool is closed; open a new one.")
        return self._group
