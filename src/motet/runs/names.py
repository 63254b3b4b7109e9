"""By which names a run's algorithm and environment are found again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet.runs import trust


@dataclass(frozen=True)
class Names:
    """What to ask for to have a run's algorithm and environment again."""

    algorithm: str
    environment: str
    environment_options: Mapping[str, Any]
    networks: tuple[str, ...] = ()
    """Code that the algorithm's options name."""
    learning: tuple[str, ...] = ()
    """Code that only learning needs: schedules, optimisers."""

    def told(self) -> dict[str, Any]:
        """As a configuration has them, signed if they name code that a reader would have to import."""
        told = dataclasses.asdict(self)
        signed = trust.sign(told) if trust.imports((*self.all, *self.learning)) else None
        return {**told, "signature": signed} if signed else told

    @property
    def all(self) -> tuple[str, ...]:
        """What must be found to act."""
        return (self.algorithm, self.environment, *self.networks)
