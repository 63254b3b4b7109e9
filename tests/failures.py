"""`python -m tests.failures [COUNT]`: end processes of runs over hosts at random moments, and see that nothing changes.

A Ray cluster of four nodes is started on this machine. Runs are led over two hosts while their processes are killed
(SIGKILL) and stopped (SIGSTOP), raylets with all that is theirs are killed, and whoever leads is killed and the run
resumed: at any moment, starting and saving included. Each run must come to the end of the run that nothing happened to,
bit for bit, and leave no process and no shared memory behind. What happened is written to
benchmarks/results/failures.md; ends with 1 if something is wrong.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.engine.hosts.cluster import OWN

os.environ.update(OWN)
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

import jax
import numpy as np

import motet
from motet.plan.hosts import over
from motet.runs import checkpoints
from tests.cluster.processes import gone, hosts

RESULT = Path(__file__).parents[1] / "benchmarks" / "results" / "failures.md"
CASES: dict[str, tuple[Any, Any, int]] = {
    "IMPALA, coarse(2, lag=1)": (
        motet.IMPALA(num_envs=8, num_steps=16, hidden=(8,)), over(motet.coarse(2, lag=1), 2), 128 * 1500
    ),
    "prioritised DQN, pearl(2, prefetch=1)": (
        motet.DQN(
            num_envs=8, train_frequency=2, gradient_steps=2, batch_size=16, buffer_size=512, learning_starts=64,
            hidden=(16,), prioritised=True,
        ),
        over(motet.pearl(2, prefetch=1), 2),
        16 * 2500,
    ),
}  # fmt: skip
CLUSTER: dict[str, Any] = {"heartbeat": 4.0, "cut_seconds": 0.3, "recoveries": 100, "wait": 120.0}
NODES = 3
"""So many there are when a run begins, besides one that hosts nobody."""
LEADER = "--num-envs 8 --num-steps 16 --hidden 8 --preset coarse --actors 2 --lag 1 --seed 5 --evaluate-episodes 0"


@dataclass
class Tally:
    """What has been done, and what came of it."""

    kinds: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """What each recovery took."""

    def say(self, text: str) -> None:
        self.lines.append(text)
        print(text, flush=True)


def state_of(result: Any) -> list[np.ndarray]:
    return jax.tree.leaves(jax.device_get(result.state))


def alike(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


class Trouble(threading.Thread):
    """Does something bad to the hosts of a run, again and again, until it is told to stop."""

    def __init__(self, cluster: Any, chance: random.Random, tally: Tally, most: int):
        super().__init__(daemon=True)
        self.cluster, self.chance, self.tally, self.most = cluster, chance, tally, most
        self.over = threading.Event()

    def run(self) -> None:
        done = 0
        while done < self.most and not self.over.wait(self.chance.uniform(0.3, 9.0)):
            found = hosts()
            if not found:
                continue
            kind = self.chance.choices(["SIGKILL of a host", "SIGSTOP of a host", "a raylet"], [6, 1, 1])[0]
            if kind == "a raylet" and len(self.cluster.worker_nodes) == 1:
                continue
            try:
                if kind == "a raylet":
                    self._lose_a_node()
                else:
                    number = signal.SIGKILL if "KILL" in kind else signal.SIGSTOP
                    os.kill(self.chance.choice(found), number)
            except ProcessLookupError:
                continue
            self.tally.kinds[kind] += 1
            done += 1
            print(f"{sum(self.tally.kinds.values())}: {kind}", flush=True)

    def _lose_a_node(self) -> None:
        node = self.chance.choice(sorted(self.cluster.worker_nodes, key=lambda node: node.unique_id))
        self.cluster.remove_node(node, allow_graceful=False)


def disturbed(cluster: Any, case: str, whole: list[np.ndarray], chance: random.Random, tally: Tally, most: int) -> None:
    """A run whose hosts are lost again and again."""
    algorithm, plan, steps = CASES[case]
    trouble, before = Trouble(cluster, chance, tally, most), sum(tally.kinds.values())
    trouble.start()
    try:
        result = motet.train(
            algorithm, "CartPole-v1", plan, total_timesteps=steps, seed=5, progress=False,
            cluster=motet.Cluster(hosts=2, **CLUSTER),
        )  # fmt: skip
    finally:
        trouble.over.set()
        trouble.join()
    same = alike(state_of(result), whole)
    tally.seconds += [each.seconds for each in result.recoveries]
    count = sum(tally.kinds.values()) - before
    tally.say(f"- {case}: {count} losses, {len(result.recoveries)} recoveries, the end is {_verdict(same)}")
    if not same:
        tally.wrong.append(case)


def without_a_leader(address: str, whole: list[np.ndarray], chance: random.Random, tally: Tally, most: int) -> None:
    """A run whose leader is killed and that is resumed, again and again."""
    steps = CASES["IMPALA, coarse(2, lag=1)"][2]
    with tempfile.TemporaryDirectory() as place:
        folder, count = Path(place) / "run", 0
        while count < most:
            saving = ["--checkpoint-seconds", "0.2", "--hosts", "2", "--address", address]
            command = ["resume", str(folder), "--evaluate-episodes", "0", *saving]
            if not checkpoints.all_of(folder):
                if folder.exists():
                    folder.rename(folder.with_name(f"{folder.name}-{time.time_ns()}"))
                command = ["train", "impala", "CartPole-v1", *LEADER.split(), "--total-timesteps", str(steps)]
                command += ["--run-dir", str(folder), *saving]
            process = subprocess.Popen(
                [sys.executable, "-m", "motet", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            before, deadline = len(checkpoints.all_of(folder)), time.monotonic() + 60
            while time.monotonic() < deadline and process.poll() is None and chance.random() < 0.998:
                if len(checkpoints.all_of(folder)) != before:
                    break
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 1.0))
            process.kill()
            if process.wait() == 0:
                break  # it was over before
            tally.kinds["SIGKILL of whoever leads"] += 1
            count += 1
            print(f"{sum(tally.kinds.values())}: whoever leads", flush=True)
            if not gone(20):
                tally.wrong.append("hosts outlived whoever led them")
        done = checkpoints.all_of(folder)
        last = int(done[-1].name) if done else 0
        if not done:
            tally.say("- whoever leads was killed before the first checkpoint every time")
            return
        if last * 128 < steps:
            result = motet.resume(folder, progress=False, cluster=motet.Cluster(hosts=2, **CLUSTER))
            same = alike(state_of(result), whole)
            tally.say(f"- whoever leads killed {count} times, resumed each time: the end is {_verdict(same)}")
            if not same:
                tally.wrong.append("resumed")


def _verdict(same: bool) -> str:
    return "the same, bit for bit" if same else "ANOTHER"


def write(tally: Tally, minutes: float) -> None:
    total, seconds = sum(tally.kinds.values()), sorted(tally.seconds)
    typical = f"{seconds[len(seconds) // 2]:.1f} s, at most {seconds[-1]:.1f} s" if seconds else "none"
    lines = [
        "# Failures",
        "",
        f"`make failures`: {total} losses in {minutes:.0f} minutes, on a Ray cluster of four nodes on one machine of "
        f"{os.cpu_count()} cores, with jax {jax.__version__}. Half of all recoveries took {typical} (other programs "
        "were running on the machine).",
        "",
        *(f"- {kind}: {count}" for kind, count in sorted(tally.kinds.items())),
        "",
        "Runs, each compared with the run that nothing happened to:",
        "",
        *tally.lines,
        "",
        f"Wrong: {', '.join(tally.wrong) or 'nothing'}. Hosts left at the end: {len(hosts())}.",
    ]
    RESULT.write_text("\n".join(lines) + "\n")


def main(wanted: int) -> int:
    import ray
    from ray.cluster_utils import Cluster

    chance, tally, began = random.Random(0), Tally(), time.monotonic()
    wholes = {
        case: state_of(
            motet.train(
                algorithm, "CartPole-v1", motet.Plan(plan.fragments, plan.links, name=plan.name),
                total_timesteps=steps, seed=5, progress=False,
            )
        )
        for case, (algorithm, plan, steps) in CASES.items()
    }  # fmt: skip
    config = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": config}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=4)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="critical")
    try:
        round_ = 0
        while sum(tally.kinds.values()) < wanted:
            while len(cluster.worker_nodes) < NODES:
                cluster.add_node(num_cpus=4)
            left = wanted - sum(tally.kinds.values())
            case = list(CASES)[round_ % len(CASES)]
            disturbed(cluster, case, wholes[case], chance, tally, min(8, left))
            if round_ % 2 == 0:
                without_a_leader(cluster.address, wholes["IMPALA, coarse(2, lag=1)"], chance, tally, 4)
            if not gone(20):
                tally.wrong.append(f"processes were left: {hosts()}")
            round_ += 1
            write(tally, (time.monotonic() - began) / 60)
    finally:
        ray.shutdown()
        cluster.shutdown()
    write(tally, (time.monotonic() - began) / 60)
    print(f"{sum(tally.kinds.values())} losses; wrong: {tally.wrong or 'nothing'}")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
