"""Plans that have a name. Each is a function that returns a value; none knows an algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from motet.errors import UnknownName
from motet.plan.plan import Fragment, Lag, Link, Plan


def anakin(shards: int = 1) -> Plan:
    """Nothing is cut: the whole loop is one compiled program, sharded over devices."""
    return Plan({"all": Fragment(("*",), shards=shards, fused=True)}, name="anakin")


def sebulba(
    actors: int = 1, threads: int = 2, learners: int = 1, lag: Lag = 1, workers: int = 0, first_ready: bool = False
) -> Plan:
    """Threads share each actor device, one deciding while another's environments step; the learner overlaps them."""
    return Plan(
        {
            "actors": Fragment(
                ("act", "env"),
                replicas=actors * threads,
                per_device=threads,
                workers=workers,
                first_ready=first_ready,
            ),
            "learner": Fragment(("*",), shards=learners),
        },
        {"policy": Link(lag)},
        name="sebulba",
    )


def batched(workers: int = 2, learners: int = 1) -> Plan:
    """Environments in worker processes, stepped together; everything else in one place."""
    return Plan(
        {"environments": Fragment(("env",), workers=workers), "learner": Fragment(("*",), shards=learners)},
        name="batched",
    )


def multi_learner(learners: int = 2, workers: int = 0) -> Plan:
    """Every learner has environments of its own; gradients are averaged by a collective."""
    return Plan({"learners": Fragment(("*",), shards=learners, workers=workers)}, name="multi_learner")


def coarse(actors: int = 2, learners: int = 1, lag: Lag = 0, workers: int = 0) -> Plan:
    """Actors send whole rollouts to the learner, and get its policy back once an iteration."""
    return Plan(
        {
            "actors": Fragment(("act", "env"), replicas=actors, workers=workers),
            "learner": Fragment(("*",), shards=learners),
        },
        {"policy": Link(lag)},
        name="coarse",
    )


def fine(environments: int = 2, learners: int = 1, workers: int = 0) -> Plan:
    """Workers only step environments; one place decides for all of them at every step."""
    return Plan(
        {
            "environments": Fragment(("env",), replicas=environments, workers=workers),
            "learner": Fragment(("*",), shards=learners),
        },
        name="fine",
    )


def central(workers: int = 2, lag: Literal[0, "latest"] = 0, per_replica: tuple[str, ...] = ()) -> Plan:
    """Workers act and compute gradients; a server averages and applies them."""
    return Plan(
        {"workers": Fragment(("*",), replicas=workers), "server": Fragment(("apply",))},
        {"policy": Link(lag)},
        per_replica=per_replica,
        name="central",
    )


def pearl(actors: int = 1, lag: Lag = 1, prefetch: int = 0, replay: str | None = None, workers: int = 0) -> Plan:
    """Actors, replay and learner apart, each where it is put; batches may be drawn before the learner asks."""
    return Plan(
        {
            "actors": Fragment(("act", "env"), replicas=actors, workers=workers),
            "replay": Fragment(("remember", "sample", "reprioritize"), place=replay),
            "learner": Fragment(("*",)),
        },
        {"policy": Link(lag), "sample": Link(prefetch)},
        name="pearl",
    )


PRESETS: dict[str, Callable[..., Plan]] = {
    preset.__name__: preset for preset in (anakin, sebulba, batched, multi_learner, coarse, fine, central, pearl)
}


def preset(name: str, **options: object) -> Plan:
    """The preset of that name."""
    if name not in PRESETS:
        raise UnknownName("preset", name, PRESETS)
    return PRESETS[name](**options)
