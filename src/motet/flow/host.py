"""Environments that are not written in JAX: what the rest of motet knows of them.

A host environment is an opaque node of the graph, with an effect. Its numbers are plain NumPy arrays, one for each
leaf of its spaces, with the environments on the first axis. Nothing here imports JAX: worker processes use it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from motet.flow.spaces import Space

Leaves = tuple[np.ndarray, ...]
"""The leaves of observations or actions of B environments, in the order of JAX's pytrees, each [B, ...]."""


UNSEEN = 1_000_000
"""The index of an evaluation's first host environment: no training reaches it, so it starts from states of its own."""


def numbered(index: int) -> str:
    """An environment's index, for messages."""
    return str(index) if index < UNSEEN else f"{index - UNSEEN} of an evaluation"


class HostStep(NamedTuple):
    """What one step of B environments gives. An episode that ended has been reset in the same step."""

    observation: Leaves
    """What to act on next; after an episode's end it opens the new one."""
    next_observation: Leaves
    """The true next observation: after an episode's end, the last one of the old episode."""
    reward: np.ndarray  # [B]
    terminated: np.ndarray  # [B] bool
    truncated: np.ndarray  # [B] bool
    valid: np.ndarray
    """[B] bool: False where the step never came back because its worker died. The environment starts a new episode,
    and nothing in this row but `observation` means anything: it must not be learned from."""
    restarts: np.ndarray
    """[B] int32: at the first environment of a worker, how often it was started anew since the last step."""


class Pool(Protocol):
    """B open environments, stepped together.

    The arrays that it returns are its own: they stay as they are during the next call, and may be written by the one
    after it.
    """

    def reset(self) -> Leaves:
        """Begin an episode in every environment."""
        ...

    def step(self, action: Leaves) -> HostStep: ...

    def close(self) -> None:
        """Give everything back; may be called twice, and after any error."""
        ...


@runtime_checkable
class Waitable(Pool, Protocol):
    """A pool whose step can be begun, and waited for together with other things."""

    def begin(self, action: Leaves) -> None: ...

    def ready(self) -> bool:
        """Whether `finish` would return at once."""
        ...

    @property
    def descriptors(self) -> tuple[int, ...]:
        """File descriptors to poll while it is not."""
        ...

    def finish(self) -> HostStep: ...


@dataclass(frozen=True)
class Opening:
    """Which of a run's environments a pool holds, and how they are run."""

    first: int
    """The global index of the first environment: seeds follow from it, not from the piece it is in."""
    count: int
    seed: int
    workers: int = 0
    """Processes to step them in; 0: the caller's own thread."""
    timeout: float = 60.0
    """Seconds that one step, or the start of a worker, may take."""
    restarts: int = 3
    """How often dead workers are started anew before that is an error."""
    resumes: int = 0
    """How often the run was taken up again: each time, environments begin other episodes."""

    def seed_of(self, index: int, restart: int = 0) -> int:
        """The seed of environment `index` of this pool: the same in one piece and in many, another after a restart."""
        address = [self.seed, self.first + index, *([restart] if restart or self.resumes else [])]
        address += [self.resumes] if self.resumes else []
        return int(np.random.SeedSequence(address).generate_state(1)[0])


@dataclass(frozen=True)
class HostCall:
    """What a node of the graph asks of its environments: to begin, or to take a step."""

    environment: HostEnvironment
    opens: bool
    writes: tuple[str, ...]
    """Of what it writes, the variable of each field that a step has, in the order of the fields; what opens the
    environments writes the first observation alone."""
    episode: str = ""
    """The variable of the lengths and returns of the episodes so far."""
    action: str = ""
    """The variable of the actions; empty: it takes none."""


class HostEnvironment:
    """A family of equal environments that run outside of XLA."""

    name: str
    observation_space: Space
    action_space: Space
    one_thread: bool = False
    """Whether a pool without workers must be stepped by the thread that opened it, as what draws pictures must."""
    light: bool = False
    """Whether to hand a step to another process takes longer than the step, or the environments have threads of their
    own: then workers only cost time."""
    time_limit: int | None = None
    """Steps after which an episode is cut off, if that is known."""
    code: str = ""
    """A hash of the code that it is made of, where that is known: what was measured of other code does not hold."""

    def open(self, opening: Opening) -> Pool:
        raise NotImplementedError(f"{type(self).__name__} must define open(self, opening) -> Pool")
