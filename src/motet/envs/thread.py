"""A pool in the caller's own thread."""

from __future__ import annotations

import numpy as np

from motet.envs.form import Form
from motet.envs.group import Build, Group, Piece
from motet.envs.slots import Slot, slots_over, slots_size
from motet.errors import MotetError
from motet.flow.host import HostStep, Leaves, Opening


class ThreadPool:
    """Every environment is stepped by whoever calls. No step can be cut short: `timeout` has no meaning here."""

    def __init__(self, build: Build, form: Form, opening: Opening):
        piece = Piece(opening.first, tuple(opening.seed_of(index) for index in range(opening.count)))
        self._group: Group | None = build(piece, [0])
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
        if self._group is not None:
            self._group.close()
        self._group = None

    def _next_slot(self) -> Slot:
        self._turn = 1 - self._turn
        return self._slots[self._turn]

    def _open(self) -> Group:
        if self._group is None:
            raise MotetError("This pool is closed; open a new one.")
        return self._group
