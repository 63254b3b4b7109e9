"""How weights begin, and that only the beginning asks."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from motet.algorithms.networks import MLP, run


def test_weights_begin_orthogonal_and_nobody_traces_how_when_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    module, features = MLP((8,), 3), jnp.ones(4)
    params: Any = module.init(jax.random.key(0), features)
    kernel = np.asarray(params["params"]["Dense_0"]["kernel"])
    np.testing.assert_allclose(kernel @ kernel.T, 2 * np.eye(4), atol=1e-5)

    def asked(scale: float) -> None:
        raise AssertionError("how weights begin was asked for")

    monkeypatch.setattr(nn.initializers, "orthogonal", asked)
    assert run(module, params, features).shape == (3,)
    with pytest.raises(AssertionError, match="how weights begin"):
        module.init(jax.random.key(0), features)
