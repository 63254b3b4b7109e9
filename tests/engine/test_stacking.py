"""What outlives a loop is the same whether its rows lie on the host or on a device."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from motet.engine.perform import HOST_REDUCE
from motet.flow.graph import REDUCE


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("mean", np.float32), *((how, dtype) for how in ("stack", "sum") for dtype in (np.float32, np.int32, np.bool_))],
)
def test_the_host_reduces_as_a_device_does(how: str, dtype: type) -> None:
    rows = [(np.arange(6).reshape(2, 3) % (round_ + 2) == 0).astype(dtype) for round_ in range(5)]
    here, there = HOST_REDUCE[how](rows), REDUCE[how](jnp.stack([jnp.asarray(row) for row in rows]))
    np.testing.assert_allclose(here, there, rtol=1e-6)
    assert here.dtype == there.dtype and here.shape == there.shape
