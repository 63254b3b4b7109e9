"""Writes checkpoints while training goes on."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from motet.runs import checkpoints

Make = Callable[[], tuple[Mapping[str, Any], Mapping[str, np.ndarray]]]
"""What a checkpoint says of itself, and its arrays."""


class Saver:
    """A thread that writes one checkpoint after the other. A disk that is full ends no training: it is warned of."""

    def __init__(
        self,
        run: Path,
        keep: int,
        scores: Mapping[int, float | None] | None = None,
        on_saved: Callable[[int], None] = lambda iteration: None,
    ):
        """`keep` is how many checkpoints remain, besides the best; `scores` are those of the ones that are there.
        `on_saved` is told of each that has been written, by the thread that did."""
        self.run, self.keep, self.on_saved = run, keep, on_saved
        self.warnings: list[str] = []
        self.seconds = 0.0
        """What the last one took."""
        self._scores = dict(scores or {})
        self._waiting: queue.Queue[tuple[int, float | None, Make] | None] = queue.Queue(1)
        self._failure: BaseException | None = None
        self._busy = False
        self._thread = threading.Thread(target=self._work, name="motet checkpoints", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether the last one is still being written."""
        return self._busy

    def save(self, iteration: int, score: float | None, make: Make) -> None:
        """Write a checkpoint soon; waits while another one waits. The one with the highest score is kept for good."""
        self._busy = True
        self._waiting.put((iteration, score, make))

    def close(self) -> None:
        """Wait until everything is written."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            iteration, score, make = job
            began = time.monotonic()
            try:
                self._write(iteration, score, make)
            except OSError as error:
                self.warnings.append(
                    f"the checkpoint after iteration {iteration:,} could not be written ({error.strerror}); those "
                    "before it are as they were"
                )
            except BaseException as error:  # a defect: raised where somebody looks
                self._failure = self._failure or error
            self.seconds = time.monotonic() - began
            self._busy = not self._waiting.empty()

    def _write(self, iteration: int, score: float | None, make: Make) -> None:
        told, arrays = make()
        checkpoints.save(self.run, iteration, {**told, "score": score}, arrays)
        self.on_saved(iteration)
        self._scores[iteration] = score
        known = {number: each for number, each in self._scores.items() if each is not None}
        checkpoints.prune(self.run, self.keep, max(known, key=lambda number: (known[number], number), default=None))
