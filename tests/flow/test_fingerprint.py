"""A graph is a value: traced twice, in whatever process, it is the same; with any change it is another."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

import motet
from motet.flow.fingerprint import fingerprint
from motet.flow.graph import Item, Loop, View
from motet.flow.host import HostCall, HostEnvironment
from motet.flow.trace import trace

DQN = motet.DQN(num_envs=2, batch_size=8, buffer_size=64, learning_starts=16, hidden=(8,), prioritised=True)
PPO = motet.PPO(num_envs=4, num_steps=8, num_minibatches=2, hidden=(8,))
HOST = motet.Gymnasium("CartPole-v1")
ELSEWHERE = """
import motet
from motet.flow.fingerprint import fingerprint
from motet.flow.trace import trace
dqn = motet.DQN(num_envs=2, batch_size=8, buffer_size=64, learning_starts=16, hidden=(8,), prioritised=True)
print(fingerprint(trace(dqn, motet.make("CartPole-v1"), iterations=3)))
"""


def of(algorithm: motet.Algorithm, env: str = "CartPole-v1", iterations: int = 3) -> str:
    return fingerprint(trace(algorithm, motet.make(env), iterations=iterations))


def test_it_is_the_same_in_another_process() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == of(DQN)


@pytest.mark.parametrize(
    "other",
    [
        replace(PPO, learning_rate=2 * PPO.learning_rate),
        replace(PPO, discount=0.9),
        replace(PPO, num_envs=8),
        replace(PPO, hidden=(9,)),
        replace(PPO, update_epochs=2),
    ],
)
def test_any_option_makes_it_another(other: motet.PPO) -> None:
    assert of(other) != of(PPO)


def test_environment_and_length_are_part_of_it() -> None:
    assert len({of(PPO), of(PPO, "Acrobot-v1"), of(PPO, iterations=4)}) == 3


FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


def functions(value: Any, path: str) -> Iterator[str]:
    """Where `value` holds a function, through all of its fields and parts. Jaxprs are JAX's; a host environment is the
    user's own, and known by its name and spaces."""
    if isinstance(value, FUNCTIONS):
        yield f"{path} is {value!r}"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from functions(each, f"{path}[{key!r}]")
    elif isinstance(value, tuple | list | set | frozenset):
        for number, each in enumerate(value):
            yield from functions(each, f"{path}[{number}]")
    elif hasattr(value, "__dict__") and not isinstance(value, HostEnvironment | type):
        for name, each in vars(value).items() if not type(value).__module__.startswith("jax") else ():
            yield from functions(each, f"{path}.{name}")


@pytest.mark.parametrize("algorithm", [PPO, DQN])
@pytest.mark.parametrize("env", [motet.make("CartPole-v1"), HOST], ids=["JAX", "host"])
def test_nothing_in_a_graph_is_a_function(algorithm: motet.Algorithm, env: Any) -> None:
    """Closures cannot be compared: whatever a graph holds is data."""
    assert not [*functions(trace(algorithm, env, iterations=3), "graph")]


def test_functions_are_found_wherever_they_are() -> None:
    view = View("policy", "learner", {"whole": [functools.partial(print)]})
    found = replace(trace(PPO, HOST, iterations=3), views={"policy": view}, prefill_steps=FUNCTIONS.index)  # type: ignore[arg-type]
    assert [line.partition(" is ")[0] for line in functions(found, "graph")] == [
        "graph.prefill_steps",
        "graph.views['policy'].code['whole'][0]",
    ]


def with_host(item: Item, **changes: Any) -> Any:
    """The same loops, whose host environment is asked in another way."""
    if isinstance(item, Loop):
        return replace(item, body=tuple(with_host(each, **changes) for each in item.body))
    return replace(item, host=replace(item.host, **changes)) if item.host else item


def test_what_is_asked_of_a_host_environment_is_part_of_it() -> None:
    graph, other, wider = trace(PPO, HOST, iterations=3), copy.copy(HOST), copy.copy(HOST)
    other.name, wider.observation_space = "Other-v0", motet.Box(-9.0, 9.0, (4,))
    changes: list[dict[str, Any]] = [
        {"environment": other}, {"environment": wider}, {"opens": True}, {"writes": ("x",)}, {"episode": "x"},
        {"action": "x"},
    ]  # fmt: skip
    assert {name for each in changes for name in each} == {each.name for each in fields(HostCall)}
    found = {fingerprint(replace(graph, root=with_host(graph.root, **each))) for each in ({}, *changes)}
    assert len(found) == 1 + len(changes) and fingerprint(graph) in found
