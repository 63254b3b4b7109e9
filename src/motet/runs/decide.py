"""A policy's decisions outside of training, for several environments at once, and what it may know for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from motet.flow.algorithm import Algorithm, Decision, besides, exploits
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Last:
    """What a policy may know of the step before, of B environments."""

    memory: Any
    reward: Any
    action: Any


def before(algorithm: Algorithm, env: Environment | HostEnvironment, count: int) -> Last:
    """What is known before the first step."""

    def each(leaf: Any) -> jax.Array:
        return jnp.broadcast_to(leaf, (count, *jnp.shape(leaf)))

    action = jax.tree.map(lambda aval: jnp.zeros((count, *aval.shape), aval.dtype), env.action_space.aval)
    return Last(jax.tree.map(each, algorithm.memory()), jnp.zeros(count), action)


def after(last: Last, decision: Decision, reward: Any) -> Last:
    """What is known after a step."""
    action = jax.tree.map(lambda old, new: new.astype(old.dtype), last.action, decision.action)
    return Last(decision.memory, reward.astype(last.reward.dtype), action)


def decide(
    algorithm: Algorithm, params: Any, observation: Any, keys: jax.Array, last: Last, explore: bool = False
) -> Decision:
    """The policy's decisions for B environments. One beyond the algorithm's number decides like one of them."""
    method = algorithm.act if explore else exploits(algorithm)
    index = jnp.arange(keys.shape[0], dtype=jnp.int32) % algorithm.num_envs
    known = {"index": index, "reward": last.reward, "action": last.action}
    more = {name: known[name] for name in besides(algorithm, method)}
    return jax.vmap(partial(method, params))(last.memory, observation, keys, **more)
