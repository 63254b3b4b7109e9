"""A replay as a list of everything that ever happened, of which the last rows may be drawn.

Row r of the list is a step of all environments. What is drawn is decided slot by slot, in Python. Priorities are a
table with one number for each row and environment, added up from its beginning whenever something is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from tests.laws.references.worlds import Steps


class Items(NamedTuple):
    """N items, each made of up to n steps."""

    observation: np.ndarray  # [N, m]
    action: np.ndarray  # [N, ...]
    reward: np.ndarray  # [N] the discounted sum
    discount: np.ndarray  # [N] what the value of the next observation counts
    terminated: np.ndarray  # [N]
    next_observation: np.ndarray  # [N, m]


class Ring:
    """The last `capacity` steps, whole rows of them; `time` rows are added at once."""

    def __init__(self, capacity: int, envs: int, time: int, n_step: int, discount: float):
        self.envs, self.n_step, self.discount = envs, n_step, discount
        self.capacity = capacity // envs // time * time
        self.rows: list[Steps] = []

    def add(self, steps: Steps) -> None:
        self.rows.append(jax.tree.map(np.asarray, steps))

    def draw(self, bits: np.ndarray) -> list[tuple[int, int]]:
        """(row, environment) of every slot. Each draws from its own block of environments, all rows alike."""
        blocks = int(np.gcd(len(bits), self.envs))
        width, written = self.envs // blocks, len(self.rows)
        oldest, last = max(written - self.capacity, 0), written - self.n_step
        found = []
        for slot, number in enumerate(map(int, bits)):
            drawn, column = divmod(number % ((last - oldest + 1) * width), width)
            # Single steps are counted by their place in the ring, longer items by their age.
            row = self.row_in(drawn) if self.n_step == 1 else oldest + drawn
            found.append((row, slot // (len(bits) // blocks) * width + column))
        return found

    def row_in(self, place: int) -> int:
        """The newest row that lies in a place of the ring."""
        return max(row for row in range(len(self.rows)) if row % self.capacity == place)

    def items(self, where: list[tuple[int, int]]) -> Items:
        each = [self.item(row, env) for row, env in where]
        return Items(*(np.stack(leaves) for leaves in zip(*each, strict=True)))

    def item(self, row: int, env: int) -> Items:
        """The step at `row` and those after it, up to n and no further than the end of the episode."""
        first, total, weight = self.rows[row], self.rows[row].reward[env], self.discount
        last = first
        for later in range(row + 1, row + self.n_step):
            if last.terminated[env] or last.truncated[env]:
                break
            last = self.rows[later]
            total, weight = total + weight * last.reward[env], weight * self.discount
        return Items(
            first.observation[env], first.action[env], total, np.asarray(weight, total.dtype), last.terminated[env],
            last.next_observation[env],
        )  # fmt: skip


class Priorities:
    """What each item of a ring counts when one is drawn."""

    def __init__(self, ring: Ring, alpha: float, beta: float, rows: int):
        self.ring, self.alpha, self.beta, self.anneal = ring, alpha, beta, rows
        self.largest = np.float32(1)
        self.known: dict[tuple[int, int], np.float32] = {}
        """(row, environment) -> its priority, to the power of alpha."""

    def welcome(self) -> None:
        """Items whose last step has just come count as much as the one that counted most so far."""
        for row in range(self.oldest(), len(self.ring.rows) - self.ring.n_step + 1):
            for env in range(self.ring.envs):
                self.known.setdefault((row, env), self.largest)

    def oldest(self) -> int:
        return max(len(self.ring.rows) - self.ring.capacity, 0)

    def draw(self, bits: np.ndarray) -> tuple[list[tuple[int, int]], np.ndarray]:
        """(row, environment) of every slot, and importance weights. Slot j of N draws from the j-th of N equal parts
        of the sum, in which environments follow each other, and in each the places of the ring."""
        there = sorted(
            (item for item in self.known if item[0] >= self.oldest()),
            key=lambda item: (item[1], item[0] % self.ring.capacity),
        )
        leaves = np.asarray([self.known[item] for item in there])
        ends = np.cumsum(leaves, dtype=np.float64)
        shares = (np.arange(len(bits)) + (bits >> 8) / 2**24) / len(bits)
        places = np.searchsorted(ends, shares * ends[-1], side="right")
        beta = self.beta + min(len(self.ring.rows) / self.anneal, 1) * (1 - self.beta)
        weights = (leaves[places].min() / leaves[places]) ** np.float32(beta)
        return [there[place] for place in places], weights

    def update(self, where: list[tuple[int, int]], errors: np.ndarray) -> None:
        """Of an item that was drawn twice, the last error counts; what was overwritten since is left alone."""
        for item, error in zip(where, errors, strict=True):
            if item[0] >= self.oldest():
                self.known[item] = (np.float32(error) + np.float32(1e-6)) ** np.float32(self.alpha)
                self.largest = max(self.largest, self.known[item])
