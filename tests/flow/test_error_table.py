"""The table of errors in the guide shows what is said today."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import motet
from tests.flow.probe import Probe
from tests.published.agreement import traced
from tests.published.walk import Walk

GUIDE = Path(__file__).parents[2] / "docs" / "writing-an-algorithm.md"
WALK = Walk()


@dataclass(frozen=True)
class Unregistered:
    params: Any


class Opaque(Probe):
    def init(self, key: Any) -> Any:
        return Unregistered(jnp.zeros((3, 2)))


class Branches(Probe):
    def gradient(self, params: Any, batch: Any) -> Any:
        return super().gradient(params, batch) if jnp.mean(batch.reward) > 0 else ()


class WithoutDataclass(Probe):
    extra: int = 3


def using(use: Callable[[Any], Any]) -> Probe:
    """An algorithm whose loop does this with the handle on its rewards."""

    class Mine(Probe):
        def loop(self, flow: motet.Flow) -> None:
            rollout = flow.unroll(self.act, steps=2)
            use(rollout.reward)
            self.learn(flow, rollout)

    return Mine()


def unpacked(reward: Any) -> None:
    _, _ = reward


MISTAKES: dict[str, Callable[[], Probe]] = {
    "is not a valid JAX array type": Opaque,
    "unsupported operand type(s)": lambda: using(lambda reward: 2 * reward),
    "Error interpreting argument": lambda: using(jnp.mean),
    "cannot be tested for truth": lambda: using(bool),
    "cannot unpack the handle": lambda: using(unpacked),
    "got an unexpected keyword argument": lambda: WithoutDataclass(extra=4),  # type: ignore[call-arg]
    "TracerBoolConversionError": Branches,
}


def test_every_error_in_the_table_is_one_that_is_tried_here() -> None:
    table = GUIDE.read_text().partition("| error | usual cause |")[2].partition("\n\n")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    assert [error for row in rows for error in re.findall(r"`([^`]+)`", row) if error != "Value"] == list(MISTAKES)


@pytest.mark.parametrize("error", MISTAKES)
def test_the_error_is_what_the_table_says(error: str) -> None:
    with pytest.raises(TypeError) as caught:
        traced(MISTAKES[error](), WALK, 1)
    assert error in f"{caught.type.__name__}: {caught.value}"
