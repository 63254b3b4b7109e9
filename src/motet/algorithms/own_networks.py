"""Networks of somebody's own in place of the built-in layers: flax modules, what makes them, or their names.

Such a network is written for ONE observation, as `act` is; it is mapped over environments, time and batches here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import FrozenDict

from motet.algorithms.own_code import accept, called, found
from motet.algorithms.torsos import Torso
from motet.errors import BadAlgorithm, BadOption, described
from motet.flow.algorithm import Algorithm, OwnCode, Spec

NetworkOption = nn.Module | Callable[..., nn.Module] | str | None
"""A module, its class or a function of the spec that makes one, or the name of any of these; None: the built-in."""

WANTED = "a flax.linen module, a class or function that makes one, or a name such as my_nets.py:Tower"


def _accept(value: Any) -> Any:
    if isinstance(value, type) and not issubclass(value, nn.Module):
        raise ValueError(WANTED)
    return accept(frozen(value), (nn.Module,), WANTED)


NETWORK = OwnCode(_accept)
"""For options that take a network: `option(None, code=NETWORK)`."""


def frozen(value: Any) -> Any:
    """A module that can be hashed though its fields were given as lists or dictionaries."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        kept = tuple(map(frozen, value))
        return value if isinstance(value, tuple) and all(map(operator.is_, kept, value)) else kept
    if isinstance(value, dict):
        return FrozenDict({name: frozen(each) for name, each in value.items()})
    if not isinstance(value, nn.Module):
        return value
    given = {each.name: getattr(value, each.name) for each in fields(value) if each.init and each.name != "parent"}
    kept = {name: frozen(each) for name, each in given.items()}
    return value if all(kept[name] is given[name] for name in given) else type(value)(**kept)


@dataclass(frozen=True)
class OwnNetwork:
    """A module that gives `outputs` numbers for one observation, with the methods of a module for any leading axes."""

    module: nn.Module
    option: str
    """What gave it, for errors."""
    outputs: int
    dimensions: int = 1
    """Dimensions of the first array that it gets for one observation: 1 for features."""

    def init(self, key: jax.Array, *one: Any) -> Any:
        """Parameters, for what it gets for one observation. What comes out is looked at here, before anything runs."""
        try:
            params = self.module.init(key, *one)
            out = jax.eval_shape(self.module.apply, params, *one)
        except Exception as error:
            raise BadAlgorithm(f"{self._failed(one)}: {described(error)}") from error
        others = sorted(set(params) - {"params"})
        if others:
            raise BadAlgorithm(
                f"{self.option}: {type(self.module).__name__} should hold nothing but parameters, but also holds "
                f"{', '.join(others)}, which no loop carries along. Choose layers without, such as LayerNorm in place "
                "of BatchNorm."
            )
        self._check(out, one)
        return jax.tree.map(_in_our_precision, params)

    def apply(self, params: Any, *inputs: Any) -> jax.Array:
        """[..., *input] -> [..., outputs]"""

        def one(*inputs: Any) -> Any:
            return jnp.asarray(self.module.apply(params, *inputs), jnp.result_type(float))

        for _ in range(jax.tree.leaves(inputs[0])[0].ndim - self.dimensions):
            one = jax.vmap(one)
        return one(*inputs)

    def _check(self, out: Any, one: tuple[Any, ...]) -> None:
        if isinstance(out, jax.ShapeDtypeStruct) and out.shape == (self.outputs,):
            return
        shape = f"shape {out.shape}" if isinstance(out, jax.ShapeDtypeStruct) else f"a {type(out).__name__}"
        raise BadAlgorithm(
            f"{self.option}: {type(self.module).__name__} should give an array of shape ({self.outputs},) for one "
            f"observation, but gives {shape} for {_shapes(one)}. Let its last layer have {self.outputs} outputs: a "
            "class with a field `outputs`, or a function with a parameter `outputs`, is told how many. It gets one "
            "observation, without an axis for batches."
        )

    def _failed(self, one: tuple[Any, ...]) -> str:
        return f"{self.option}: {type(self.module).__name__} failed on one observation, {_shapes(one)}"


def _in_our_precision(leaf: jax.Array) -> jax.Array:
    """Where all else is computed in double precision, so are layers that were not told."""
    return leaf.astype(jnp.result_type(float)) if leaf.dtype == jnp.float32 else leaf


def _shapes(one: tuple[Any, ...]) -> str:
    def say(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}"

    told = [str(jax.tree.map(say, each)).replace("'", "") for each in one]
    return " and ".join(told)


@dataclass(frozen=True)
class Own:
    """What an algorithm's options say of its networks."""

    algorithm: Algorithm | None = None

    def network(self, option: str, outputs: int, usual: nn.Module, torso: Torso) -> nn.Module | OwnNetwork:
        """The network that an option gives, with so many outputs; the `usual` one if it gives none."""
        given = getattr(self.algorithm, option, None)
        if given is not None:
            assert self.algorithm is not None
            return OwnNetwork(_made(option, given, self.algorithm.spec, outputs), option, outputs, torso.dimensions)
        if torso.raw:
            raise BadAlgorithm(
                f"The torso 'none' hands observations on as they are, which the built-in layers cannot read. Give a "
                f"{option} of your own, or choose another torso."
            )
        return usual


NOT_OWN = Own()
"""Nothing but the built-in layers."""


def _made(option: str, given: NetworkOption, spec: Spec, outputs: int) -> nn.Module:
    thing, known = found(given), {"spec": spec, "outputs": outputs}
    if isinstance(thing, type) and issubclass(thing, nn.Module):
        return called(option, thing, known)
    made = called(option, thing, known, "spec") if callable(thing) and not isinstance(thing, nn.Module) else thing
    if not isinstance(made, nn.Module):
        came = f"{given!r} is" if made is thing else f"{getattr(thing, '__qualname__', thing)} gave"
        raise BadOption(f"{option} must be {WANTED}; {came} {made!r}.")
    return made
