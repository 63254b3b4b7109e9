"""motet trains reinforcement-learning agents: one loop, written once, run as a plan says."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.algorithms.a2c import A2C
    from motet.algorithms.batch_ppo import BatchPPO
    from motet.algorithms.ddpg import DDPG
    from motet.algorithms.dqn import DQN
    from motet.algorithms.impala import IMPALA
    from motet.algorithms.ppo import PPO
    from motet.algorithms.sac import SAC
    from motet.algorithms.td3 import TD3
    from motet.engine.hosts.cluster import Cluster
    from motet.engine.run import virtual_devices
    from motet.envs import make
    from motet.envs.gymnasium import Gymnasium
    from motet.errors import (
        BadAlgorithm,
        BadEnvironment,
        BadOption,
        BadPlan,
        Diverged,
        EnvironmentFailed,
        EnvironmentTimeout,
        Interrupted,
        MotetError,
        NotEnoughMemory,
        NotSaved,
        Stalled,
        UnknownName,
    )
    from motet.evaluation import evaluate
    from motet.exporting import export
    from motet.flow.algorithm import Algorithm, Decision, Spec, option
    from motet.flow.batch import (
        batch_gather,
        batch_max,
        batch_mean,
        batch_min,
        batch_moments,
        batch_ranks,
        batch_sum,
        where_any,
    )
    from motet.flow.environment import Environment
    from motet.flow.graph import Graph
    from motet.flow.loops import Flow
    from motet.flow.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
    from motet.flow.trace import trace
    from motet.flow.values import Rollout, Transitions
    from motet.loading import load
    from motet.plan.check import check
    from motet.plan.plan import Fragment, Link, Plan
    from motet.plan.presets import anakin, batched, central, coarse, fine, multi_learner, pearl, sebulba
    from motet.plan.project import project
    from motet.recording import record
    from motet.repeating import configuration
    from motet.replay import Prioritised, Uniform
    from motet.result import Result
    from motet.resuming import resume
    from motet.runs.callback import Callback
    from motet.runs.policy import Policy
    from motet.training import train
    from motet.verify.algorithm import check_algorithm

_HOME = {
    "motet.algorithms.a2c": ("A2C",),
    "motet.algorithms.batch_ppo": ("BatchPPO",),
    "motet.algorithms.ddpg": ("DDPG",),
    "motet.algorithms.dqn": ("DQN",),
    "motet.algorithms.impala": ("IMPALA",),
    "motet.envs.gymnasium": ("Gymnasium",),
    "motet.algorithms.ppo": ("PPO",),
    "motet.algorithms.sac": ("SAC",),
    "motet.algorithms.td3": ("TD3",),
    "motet.repeating": ("configuration",),
    "motet.engine.hosts.cluster": ("Cluster",),
    "motet.engine.run": ("virtual_devices",),
    "motet.envs": ("make",),
    "motet.errors": (
        "BadAlgorithm",
        "BadEnvironment",
        "BadOption",
        "BadPlan",
        "Diverged",
        "EnvironmentFailed",
        "EnvironmentTimeout",
        "MotetError",
        "NotEnoughMemory",
        "Interrupted",
        "NotSaved",
        "Stalled",
        "UnknownName",
    ),
    "motet.flow.algorithm": ("Algorithm", "Decision", "Spec", "option"),
    "motet.flow.batch": (
        "batch_gather",
        "batch_max",
        "batch_mean",
        "batch_min",
        "batch_moments",
        "batch_ranks",
        "batch_sum",
        "where_any",
    ),
    "motet.flow.environment": ("Environment",),
    "motet.flow.graph": ("Graph",),
    "motet.flow.loops": ("Flow",),
    "motet.flow.spaces": ("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "Tuple"),
    "motet.flow.trace": ("trace",),
    "motet.flow.values": ("Rollout", "Transitions"),
    "motet.plan.check": ("check",),
    "motet.plan.plan": ("Fragment", "Link", "Plan"),
    "motet.plan.presets": ("anakin", "batched", "central", "coarse", "fine", "multi_learner", "pearl", "sebulba"),
    "motet.plan.project": ("project",),
    "motet.replay": ("Prioritised", "Uniform"),
    "motet.evaluation": ("evaluate",),
    "motet.exporting": ("export",),
    "motet.loading": ("load",),
    "motet.recording": ("record",),
    "motet.runs.callback": ("Callback",),
    "motet.runs.policy": ("Policy",),
    "motet.result": ("Result",),
    "motet.resuming": ("resume",),
    "motet.training": ("train",),
    "motet.verify.algorithm": ("check_algorithm",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "A2C",
    "DDPG",
    "DQN",
    "IMPALA",
    "PPO",
    "SAC",
    "TD3",
    "Algorithm",
    "BadAlgorithm",
    "BadEnvironment",
    "BadOption",
    "BadPlan",
    "BatchPPO",
    "Box",
    "Callback",
    "Cluster",
    "Decision",
    "Dict",
    "Discrete",
    "Diverged",
    "Environment",
    "EnvironmentFailed",
    "EnvironmentTimeout",
    "Flow",
    "Fragment",
    "Graph",
    "Gymnasium",
    "Interrupted",
    "Link",
    "MotetError",
    "MultiBinary",
    "MultiDiscrete",
    "NotEnoughMemory",
    "NotSaved",
    "Plan",
    "Policy",
    "Prioritised",
    "Result",
    "Rollout",
    "Spec",
    "Stalled",
    "Transitions",
    "Tuple",
    "Uniform",
    "UnknownName",
    "anakin",
    "batch_gather",
    "batch_max",
    "batch_mean",
    "batch_min",
    "batch_moments",
    "batch_ranks",
    "batch_sum",
    "batched",
    "central",
    "check",
    "check_algorithm",
    "coarse",
    "configuration",
    "evaluate",
    "export",
    "fine",
    "load",
    "make",
    "multi_learner",
    "option",
    "pearl",
    "project",
    "record",
    "resume",
    "sebulba",
    "trace",
    "train",
    "virtual_devices",
    "where_any",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: JAX takes seconds, `motet --help` should not."""
    if name not in _MODULE:
        raise AttributeError(f"module 'motet' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
