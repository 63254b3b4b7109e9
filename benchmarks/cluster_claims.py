"""What motet claims about runs over hosts: messages between two processes, speed beside threads, and their start.

Ray is started on this machine, once for a measurement.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks import peers
from benchmarks.claims import FIRST, PPO, Claim, Measurement, seconds_to_first_row
from benchmarks.sides import Side, versions

FIELDS: dict[str, Any] = {
    "name": "message", "source": "one", "target": "other", "pieces": (), "capacity": 1, "latest": False,
}  # fmt: skip
WARM = 20
"""Messages that are not counted."""


def _reader(keys: Any, address: str, told: Any, size: int, count: int) -> None:
    """Another process, which takes every message at once."""
    import numpy as np

    from motet.engine.hosts.crossing import Incoming
    from motet.engine.hosts.frames import Leaf
    from motet.engine.hosts.post import Post

    post = Post(keys)
    into = Incoming(**FIELDS, post=post, number=0, peer=0, leaves=(Leaf((size,), np.dtype(np.uint8)),))
    post.ends[0] = into
    post.connect(1, {0: address})
    told.send(post.address)
    for _ in range(count):
        with into.changed:
            while not into.has_message():
                into.changed.wait(10)
        into.take()
    told.recv()
    post.close()


def message_seconds(settings: Mapping[str, Any]) -> Measurement:
    """How long it takes until a message has been sent to another process, taken there, and that is known here."""
    import numpy as np

    from motet.engine.hosts.crossing import Outgoing
    from motet.engine.hosts.post import Keys, Post
    from motet.engine.ports import Message

    size, count, keys = settings["bytes"], settings["messages"] + WARM, Keys.new()
    post = Post(keys)
    out = Outgoing(**FIELDS, post=post, number=0, peer=1)
    post.ends[0] = out
    context = multiprocessing.get_context("spawn")
    told, child = context.Pipe()
    process = context.Process(target=_reader, args=(keys, post.address, child, size, count))
    process.start()
    try:
        post.connect(1, {1: told.recv()})
        seconds, payload = [], (np.ones(size, np.uint8),)
        for number in range(count):
            start = time.perf_counter()
            out.put(Message((number,), payload, number), counted=True)
            with out.changed:
                while out.taken < out.sent:
                    out.changed.wait(10)
            seconds.append(1e3 * (time.perf_counter() - start))
        told.send("done")
        process.join()
    finally:
        process.kill()
        post.close()
    kept = seconds[WARM:]
    return Measurement(statistics.median(kept), {"ours": kept}, "ms", {"ours": versions()})


@contextmanager
def _ray() -> Iterator[str]:
    """A Ray cluster of this machine, and its address."""
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    from motet import Cluster

    with Cluster(hosts=2).connected():
        import ray

        yield ray.get_runtime_context().gcs_address


def measured(settings: Mapping[str, Any], hosts: int) -> float:
    """The speed of a run from a quarter of it on: in threads, or over so many hosts of this machine."""
    import motet
    from motet import algorithms
    from motet.plan import presets
    from motet.runs.progress import speed

    algorithm = algorithms.find(settings["algorithm"])(**settings["options"])
    plan, steps = presets.preset(**settings["plan"]), settings["steps"]
    cluster = motet.Cluster(hosts=hosts) if hosts > 1 else None
    result = motet.train(algorithm, settings["env"], plan, total_timesteps=steps, progress=False, cluster=cluster)
    warm = next(row for row in result.history if (row["steps"] or 0) >= steps // 4)
    return speed(warm, result.history[-1]) or 0.0


def hosts_vs_threads(settings: Mapping[str, Any]) -> Measurement:
    """The speed of a plan over two hosts of this machine, beside the same plan in threads."""
    import motet

    motet.virtual_devices(2)
    samples: dict[str, list[float]] = {"hosts": [], "threads": []}
    with _ray():
        for _ in range(settings["rounds"]):
            samples["hosts"].append(measured(settings, hosts=2))
            samples["threads"].append(measured(settings, hosts=1))
    ratios = [ours / theirs for ours, theirs in zip(samples["hosts"], samples["threads"], strict=True)]
    return Measurement(statistics.median(ratios), samples, "steps/s", {"ours": versions()})


def vs_rllib(settings: Mapping[str, Any]) -> Measurement:
    """A run of motet's in threads beside RLlib's PPO with environments in processes of its own.

    Both go on for some seconds in turn; ours waits while theirs runs, and theirs is stopped while ours does.
    """
    ours = {name: settings[name] for name in ("algorithm", "env", "options", "plan", "iterations")}
    a_step = settings["options"]["num_envs"] * settings["options"]["num_steps"]
    python = peers.python("rllib")
    with Side("trained", ours) as mine, Side("rllib", _theirs(settings), python, still=True) as its:
        samples: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(settings["rounds"]):
            samples["ours"].append(a_step * settings["iterations"] / mine.sample())
            samples["theirs"].append(a_step * settings["their iterations"] / its.sample())
        known = {"ours": mine.versions, "theirs": its.versions}
    return _ratio(samples, known)


def hosts_vs_rllib(settings: Mapping[str, Any]) -> Measurement:
    """The same over hosts: whole runs in turn, since each side has a Ray of its own."""
    import motet

    motet.virtual_devices(settings["devices"])
    work = settings["options"]["num_envs"] * settings["options"]["num_steps"] * settings["their iterations"]
    samples: dict[str, list[float]] = {"ours": [], "theirs": []}
    known = {"ours": versions()}
    for _ in range(settings["rounds"]):
        # Neither has anything running while the other is measured: Ray is at work even if nobody asks for anything.
        with _ray():
            samples["ours"].append(measured(settings, settings["hosts"]))
        with Side("rllib", _theirs(settings), peers.python("rllib")) as side:
            samples["theirs"].append(work / side.sample())
            known["theirs"] = side.versions
    return _ratio(samples, known)


def _theirs(settings: Mapping[str, Any]) -> dict[str, Any]:
    env, iterations = settings["env"].removeprefix("gymnasium/"), settings["their iterations"]
    return {"env": env, "options": settings["options"], "iterations": iterations, "runners": settings["runners"]}


def _ratio(samples: dict[str, list[float]], known: dict[str, dict[str, str]]) -> Measurement:
    ratios = [ours / theirs for ours, theirs in zip(samples["ours"], samples["theirs"], strict=True)]
    return Measurement(statistics.median(ratios), samples, "steps/s", known)


def first_row(settings: Mapping[str, Any]) -> Measurement:
    """Seconds from the command to its first learning row, on a Ray that runs, once programs are in the cache."""
    with _ray() as address, tempfile.TemporaryDirectory() as home:
        command = [*settings["command"], "--address", address]
        seconds_to_first_row(command, home)
        seconds = [seconds_to_first_row(command, home) for _ in range(settings["rounds"])]
    return Measurement(statistics.median(seconds), {"ours": seconds}, "s", {"ours": versions()})


IMPALA = {"num_envs": 64, "num_steps": 128, "hidden": (64, 64)}
RLLIB = {
    "algorithm": "ppo", "env": "gymnasium/CartPole-v1", "options": PPO, "runners": 2, "their iterations": 4,
}  # fmt: skip
BESIDE = {"env": "CartPole-v1", "steps": 64 * 128 * 80, "rounds": 5}
CLAIMS = (
    Claim(
        "message_1k",
        {"bytes": 1_000, "messages": 500, "how": "sent to another process, taken, and confirmed; with CURVE"},
        message_seconds,
        at_most=0.5,
        unit=" ms",
    ),
    Claim(
        "message_1m",
        {"bytes": 1_000_000, "messages": 200, "how": "sent to another process, taken, and confirmed; with CURVE"},
        message_seconds,
        at_most=3,
        unit=" ms",
    ),
    Claim(
        "ppo_hosts_vs_threads",
        {
            **BESIDE,
            "algorithm": "ppo",
            "options": PPO,
            "plan": {"name": "coarse", "actors": 2},
            "how": "coarse(2) over two hosts of this machine / in threads, from a quarter of the run on",
        },
        hosts_vs_threads,
        at_least=0.8,
    ),
    Claim(
        "impala_hosts_vs_threads",
        {
            **BESIDE,
            "algorithm": "impala",
            "options": IMPALA,
            "plan": {"name": "coarse", "actors": 2, "lag": 1},
            "how": "coarse(2, lag=1) over two hosts of this machine / in threads, from a quarter of the run on",
        },
        hosts_vs_threads,
        at_least=0.8,
    ),
    Claim(
        "ppo_vs_rllib",
        {
            **RLLIB,
            "plan": {"name": "sebulba", "threads": 1},
            "iterations": 24,
            "rounds": 21,
            "how": "motet in threads / RLlib with two env runners, the same network and batches, some seconds in turn; "
            "neither runs while the other does",
        },
        vs_rllib,
        at_least=6,
    ),
    Claim(
        "ppo_hosts_vs_rllib",
        {
            **RLLIB,
            "plan": {"name": "coarse", "actors": 2, "lag": 1},
            "steps": 64 * 128 * 80,
            "rounds": 5,
            "hosts": 2,
            "devices": 2,
            "how": "motet over two hosts / RLlib with two env runners, the same network and batches, in turn",
        },
        hosts_vs_rllib,
        at_least=4,
    ),
    Claim(
        "hosts_first_row",
        {
            "command": [*FIRST, "--preset", "coarse", "--hosts", "2", "--total-timesteps", "10_000_000"],
            "rounds": 3,
            "how": "from starting the command to its first row, on a Ray that runs, with a filled cache",
        },
        first_row,
        at_most=12,
        unit=" s",
    ),
)
