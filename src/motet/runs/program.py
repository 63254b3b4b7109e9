"""A policy as a program that needs neither motet nor the algorithm's file: StableHLO by jax.export, or ONNX.

The program decides for any number of environments at once. Its inputs and outputs are told beside it, in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from motet.errors import BadOption, described
from motet.flow.algorithm import Decision, besides, exploits
from motet.flow.jaxprs import jaxpr_as_fun
from motet.runs.policy import Policy, write_whole

ROWS = "b"
"""The name of the axis of environments."""
PLATFORMS = ("cpu", "cuda", "tpu")
MODES = {"greedy": False, "explore": True}


@dataclass(frozen=True)
class DecisionProgram:
    """One way of deciding, as a function of a dictionary, whose arrays have a row for each environment."""

    decide: Callable[[Any], Any]
    inputs: Any
    """Shapes and dtypes of the inputs; the first axis is symbolic."""

    @property
    def outputs(self) -> Any:
        return jax.eval_shape(self.decide, self.inputs)


def program(policy: Policy, explore: bool) -> DecisionProgram:
    """observation, memory -> action, memory; and with random numbers, `key`: a key's two numbers for each row."""
    algorithm = policy.algorithm
    method = algorithm.act if explore else exploits(algorithm)
    wanted, random = besides(algorithm, method), explore or method == algorithm.act
    memory, treedef = jax.tree.flatten(algorithm.memory())
    (rows,) = export.symbolic_shape(ROWS)

    def row(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, *jnp.shape(leaf)), jnp.result_type(leaf))

    known = {
        "index": jnp.int32(0),
        "reward": jnp.zeros(()),
        "action": jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), algorithm.spec.action_space.aval),
    }
    given = {
        "observation": jax.tree.map(
            lambda aval: jax.ShapeDtypeStruct((rows, *aval.shape), aval.dtype), algorithm.spec.observation_space.aval
        ),
        **({"memory": [row(leaf) for leaf in memory]} if memory else {}),
        **({"key": jax.ShapeDtypeStruct((rows, 2), jnp.uint32)} if random else {}),
        **{name: jax.tree.map(row, known[name]) for name in wanted},
    }

    def decide(inputs: Any) -> dict[str, Any]:
        held = jax.tree.unflatten(treedef, inputs.get("memory", []))
        more = {name: inputs[name] for name in wanted}
        if random:
            keys = jax.vmap(partial(jax.random.wrap_key_data, impl="threefry2x32"))(inputs["key"])
            decision: Decision = jax.vmap(partial(method, policy.params))(held, inputs["observation"], keys, **more)
        else:
            one = jax.random.key(0)
            decided = partial(method, policy.params)
            decision = jax.vmap(lambda m, o, **more: decided(m, o, one, **more))(held, inputs["observation"], **more)
        leaves = jax.tree.leaves(decision.memory)
        return {"action": decision.action, **({"memory": leaves} if leaves else {})}

    return DecisionProgram(decide, given)


def write_stablehlo(policy: Policy, folder: Path) -> list[str]:
    """`greedy.stablehlo` and `explore.stablehlo`, which `jax.export.deserialize` reads, and `program.json`."""
    told, files = _told(policy, "StableHLO, as jax.export serialises it"), []
    for mode, explore in MODES.items():
        made = program(policy, explore)
        exported = export.export(jax.jit(made.decide), platforms=PLATFORMS)(made.inputs)
        write_whole(folder / f"{mode}.stablehlo", bytes(exported.serialize()))
        told["programs"][mode] = {"file": f"{mode}.stablehlo", **_signature(made)}
        files.append(f"{mode}.stablehlo")
    told["platforms"] = list(PLATFORMS)
    _write_told(told, folder)
    return [*files, "program.json"]


def write_onnx(policy: Policy, folder: Path) -> list[str]:
    """`greedy.onnx` and `program.json`. Random numbers have no place in ONNX."""
    try:
        to_onnx = import_module("jax2onnx").to_onnx
    except ImportError:
        raise BadOption(
            "ONNX needs jax2onnx, which needs many other packages: pip install 'motet[onnx]'. Without it, "
            "--to stablehlo writes a program that JAX alone can run."
        ) from None
    made = program(policy, explore=False)
    if "key" in made.inputs:
        raise BadOption(
            f"{type(policy.algorithm).__name__} decides by chance even when it is used, which ONNX cannot say: it has "
            "no exploit(). --to stablehlo takes the random key as an input."
        )
    # The conversion sees plain operations alone: what jax2onnx knows of flax's modules cannot be mapped over rows.
    flat, treedef = jax.tree.flatten(made.inputs)
    plain = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(made.decide(jax.tree.unflatten(treedef, leaves))))(*flat)
    inputs, outputs = ([each["name"] for each in _leaves(tree)] for tree in (made.inputs, made.outputs))
    try:
        model = to_onnx(
            jaxpr_as_fun(plain),
            flat,
            model_name=type(policy.algorithm).__name__,
            enable_double_precision=jnp.result_type(float) == jnp.float64,
            input_names=inputs,
            output_names=[f"next_{name}" if name in inputs else name for name in outputs],
        )
    except Exception as error:
        raise BadOption(f"This policy has no ONNX form that jax2onnx can make: {described(error)[:300]}") from error
    write_whole(folder / "greedy.onnx", model.SerializeToString())
    told = _told(policy, "ONNX")
    told["programs"]["greedy"] = {"file": "greedy.onnx", **_signature(made)}
    _write_told(told, folder)
    return ["greedy.onnx", "program.json"]


def _told(policy: Policy, form: str) -> dict[str, Any]:
    memory = jax.tree.leaves(policy.algorithm.memory())
    return {
        "format": form,
        "jax": jax.__version__,
        "rows": ROWS,
        "first_memory": [np.asarray(leaf).tolist() for leaf in memory],
        "programs": {},
    }


def _signature(made: DecisionProgram) -> dict[str, Any]:
    return {"inputs": _leaves(made.inputs), "outputs": _leaves(made.outputs)}


def _leaves(tree: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": jax.tree_util.keystr(path, simple=True, separator="."),
            "shape": [ROWS, *leaf.shape[1:]],
            "dtype": leaf.dtype.name,
        }
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _write_told(told: dict[str, Any], folder: Path) -> None:
    write_whole(folder / "program.json", (json.dumps(told, indent=2) + "\n").encode())
