"""Whoever looks at the learner of a run over hosts, and may end the run: what the driver asks of it."""

from __future__ import annotations

from typing import Any, Protocol


class Onlooker(Protocol):
    """Nothing here may take long: meanwhile the driver listens to no host."""

    @property
    def every(self) -> int | None:
        """Iterations from one look at the learner state to the next; None: only when it asks."""
        ...

    def asks(self) -> bool:
        """Whether it wants to see the learner state as soon as possible."""
        ...

    def look(self, iteration: int, leaves: tuple[Any, ...]) -> None:
        """The learner state after so many iterations. After a loss what was seen before may come again."""
        ...

    def turn(self, told: int) -> None:
        """Time has passed, and metrics of `told` iterations are known. What went wrong is raised here."""
        ...

    def reach(self, told: int) -> int | None:
        """After how many iterations the learner must wait for now; None: it need not."""
        ...

    def end(self) -> int | None:
        """After how many iterations the run is to end, if there is a reason to end it."""
        ...

    def ended(self, iteration: int) -> None:
        """All hosts have agreed to end the run after so many iterations."""
        ...


class Nobody:
    """Nobody looks on."""

    every = None

    def asks(self) -> bool:
        return False

    def look(self, iteration: int, leaves: tuple[Any, ...]) -> None: ...

    def turn(self, told: int) -> None: ...

    def reach(self, told: int) -> int | None:
        return None

    def end(self) -> int | None:
        return None

    def ended(self, iteration: int) -> None: ...
