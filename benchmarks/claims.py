"""What motet claims about its speed, its start and its memory, each with the way to measure it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.others import yardstick
from benchmarks.sides import ROOT, Side

RESULTS = Path(__file__).with_name("results")
YARD = "yardstick"
"""Seconds say little of a program without the machine: beside them stands what a fixed piece of work took."""

PPO = {
    "num_envs": 64,
    "num_steps": 128,
    "update_epochs": 4,
    "num_minibatches": 4,
    "hidden": (64, 64),
    "activation": "tanh",
    "learning_rate": 1e-3,
    "anneal": True,
    "discount": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "value_weight": 0.5,
    "entropy_weight": 0.01,
    "max_gradient_norm": 0.5,
}
"""The PPO that is compared: two tanh networks, on CartPole. All that matters is written out, so that a claim stays what
it is when defaults change."""
STEEP = {"learning_rate": 2e-3, "anneal": True, "entropy_weight": 0.01}
FIRST = [
    *("motet", "train", "ppo", "CartPole-v1", "--num-envs", "64", "--num-steps", "64", "--update-epochs", "4"),
    *("--num-minibatches", "8", "--learning-rate", "2e-3", "--entropy-weight", "0.01", "--no-profile"),
]
"""A command whose first row is waited for; what the planner takes before is measured by itself."""
REJAX = {
    "num_envs": 64,
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "agent_kwargs": {"hidden_layer_sizes": [64, 64], "activation": "tanh"},
    "learning_rate": 1e-3,
    "gae_lambda": 0.95,
    "max_grad_norm": 0.5,
}
"""The same in rejax's words."""
CATCH = {"num_envs": 128, "num_steps": 16, "hidden": (256,), "learning_rate": 1e-4}
"""The settings of the Podracer authors' demo, per core."""


@dataclass(frozen=True)
class Measurement:
    """One number, and everything that it was made of."""

    value: float
    samples: Mapping[str, list[float]]
    unit: str
    versions: Mapping[str, Mapping[str, str]]

    @property
    def medians(self) -> dict[str, float]:
        return {name: statistics.median(values) for name, values in self.samples.items()}


@dataclass(frozen=True)
class Claim:
    """A measurement with a bound on it; without one it is for information."""

    name: str
    settings: Mapping[str, Any]
    measure: Callable[[Mapping[str, Any]], Measurement]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def holds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def line(self, value: float) -> str:
        """`name: value, target, verdict`."""
        target, verdict = "no target", "measured"
        if self.at_least is not None or self.at_most is not None:
            bound = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
            target, verdict = f"{bound}{self.unit}", "ok" if self.holds(value) else "short"
        return f"{self.name}: {show(value)}{self.unit}, {target}, {verdict}"


def show(value: float) -> str:
    """A number with the digits that a measurement deserves."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def interleave(sides: Mapping[str, Side], rounds: int, work: float) -> dict[str, list[float]]:
    """Ask the sides in turn, `rounds` times, never two at once -> work per second."""
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            samples[name].append(work / side.sample())
    return samples


def compare(ours: Callable[[], Side], theirs: Callable[[], Side], rounds: int, work: float) -> Measurement:
    """How much faster one side is than the other: the median over rounds of the ratio of their speeds.

    The two samples of a round lie next to each other in time, so what slows the machine for a while slows both.
    """
    with ExitStack() as stack:
        sides = {"ours": stack.enter_context(ours()), "theirs": stack.enter_context(theirs())}
        samples = interleave(sides, rounds, work)
        versions = {name: side.versions for name, side in sides.items()}
    ratios = [ours / theirs for ours, theirs in zip(samples["ours"], samples["theirs"], strict=True)]
    return Measurement(statistics.median(ratios), samples, "environment steps/s", versions)


def _fused(settings: Mapping[str, Any], devices: int = 1) -> Side:
    """motet's side of a comparison."""
    options = {name: settings[name] for name in ("algorithm", "env", "options", "iterations")}
    return Side("motet", {**options, "devices": devices})


def _work(settings: Mapping[str, Any]) -> float:
    """Environment steps in one sample."""
    return settings["options"]["num_envs"] * settings["options"]["num_steps"] * settings["iterations"]


def vs_handwritten(settings: Mapping[str, Any]) -> Measurement:
    options = {"options": settings["options"], "iterations": settings["iterations"]}
    return compare(lambda: _fused(settings), lambda: Side("handwritten", options), settings["rounds"], _work(settings))


def vs_rejax(settings: Mapping[str, Any]) -> Measurement:
    options = {"options": settings["rejax options"], "iterations": settings["iterations"]}
    python = peers.python()
    return compare(
        lambda: _fused(settings), lambda: Side("rejax", options, python), settings["rounds"], _work(settings)
    )


def two_devices(settings: Mapping[str, Any]) -> Measurement:
    return compare(lambda: _fused(settings, 2), lambda: _fused(settings), settings["rounds"], _work(settings))


def speed(settings: Mapping[str, Any]) -> Measurement:
    """The median speed of one side alone."""
    with _fused(settings) as side:
        samples = interleave({"ours": side}, settings["rounds"], _work(settings))
        return Measurement(statistics.median(samples["ours"]), samples, "frames/s", {"ours": side.versions})


def _child(code: str, environment: Mapping[str, str | None]) -> Any:
    """Run Python code in a fresh process -> the JSON that it printed last."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=_environment(environment), capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"a measured process failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


COMPILE = """
import json, motet
result = motet.train(motet.PPO(**{options}), {env!r}, plan=motet.anakin(), total_timesteps={total})
print(json.dumps(result.compile_seconds))
"""


def compile_cold(settings: Mapping[str, Any]) -> Measurement:
    """Seconds of compilation in new processes, each with an empty cache."""
    seconds, machine = [], []
    for _ in range(settings["rounds"]):
        machine.append(yardstick())
        with tempfile.TemporaryDirectory() as folder:
            code = COMPILE.format(options=settings["options"], env=settings["env"], total=settings["total_timesteps"])
            seconds.append(_child(code, {"JAX_COMPILATION_CACHE_DIR": folder}))
    return Measurement(statistics.median(seconds), {"ours": seconds, YARD: machine}, "s", {})


def second_start(settings: Mapping[str, Any]) -> Measurement:
    """Seconds from starting the command until it shows how learning goes, once its programs are in the cache."""
    seconds, machine = [], []
    with tempfile.TemporaryDirectory() as home:
        first = seconds_to_first_row(settings["command"], home)
        for _ in range(settings["rounds"]):
            machine.append(yardstick())
            seconds.append(seconds_to_first_row(settings["command"], home))
    samples = {"ours": seconds, "with an empty cache": [first], YARD: machine}
    return Measurement(statistics.median(seconds), samples, "s", {})


def seconds_to_first_row(command: list[str], home: str) -> float:
    # motet keeps compiled programs below the user's home, unless JAX was told of another place.
    # Python keeps what it made of the modules, as it does for whoever installs motet.
    kept = {"JAX_COMPILATION_CACHE_DIR": None, "PYTHONDONTWRITEBYTECODE": None}
    environment = _environment({"HOME": home, "PYTHONUNBUFFERED": "1", **kept})
    program = Path(sys.executable).with_name(command[0])
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(program), *command[1:]], cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    seen = []
    try:
        for line in process.stdout:
            seen.append(line)
            if is_learning_row(line):
                return time.perf_counter() - start
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    raise RuntimeError(f"{' '.join(command)} never showed a learning row:\n{''.join(seen)}")


def is_learning_row(line: str) -> bool:
    """Whether a line of the plain display tells of training that has been done."""
    return "steps/s" in line and "return" in line


MEMORY = """
import json, os, motet

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

class Watch(motet.Callback):
    seen = []
    def row(self, row): self.seen.append((row["iteration"], resident()))

algorithm = motet.PPO(**{options})
steps = algorithm.num_envs * algorithm.num_steps
motet.train(algorithm, {env!r}, plan=motet.anakin(), total_timesteps=steps * {iterations}, callbacks=[Watch()])
print(json.dumps(Watch.seen))
"""


def memory(settings: Mapping[str, Any]) -> Measurement:
    """MiB of resident memory gained between a tenth of a run and its end."""
    code = MEMORY.format(options=settings["options"], env=settings["env"], iterations=10 * settings["iterations"])
    seen = _child(code, {})
    early = [size for iteration, size in seen if iteration <= settings["iterations"]]
    if not early:
        raise RuntimeError("the run reported nothing before a tenth of it was over; give it more iterations")
    samples = {"resident": [size / 2**20 for _, size in seen]}
    return Measurement((seen[-1][1] - early[-1]) / 2**20, samples, "MiB", {})


def vs_gymnasium(settings: Mapping[str, Any]) -> Measurement:
    """A pool of ours beside Gymnasium's vector environments, environment steps alone."""
    shared = {name: settings[name] for name in ("env", "envs", "steps")}
    work = settings["envs"] * settings["steps"]
    return compare(
        lambda: Side("pool", {**shared, "env": f"gymnasium/{settings['env']}", "workers": settings["workers"]}),
        lambda: Side("gymnasium_vector", {**shared, "workers": settings["their workers"]}),
        settings["rounds"],
        work,
    )


def _trained(settings: Mapping[str, Any], plan: Mapping[str, Any], **more: Any) -> Side:
    options = {name: settings[name] for name in ("algorithm", "env", "options", "iterations")}
    return Side("trained", {**options, "plan": plan, **more})


def vs_stable_baselines(settings: Mapping[str, Any]) -> Measurement:
    env = settings["env"].removeprefix("gymnasium/")
    theirs = {"env": env, "processes": settings["their processes"]}
    theirs |= {name: settings[name] for name in ("options", "iterations")}
    python = peers.python()
    return compare(
        lambda: _trained(settings, settings["plan"]),
        lambda: Side("stable_baselines", theirs, python),
        settings["rounds"],
        _work(settings),
    )


def vs_bound(settings: Mapping[str, Any]) -> Measurement:
    """How much of 1 / (1 / environments alone + 1 / learning alone) a whole run reaches, all three in one run."""
    envs = settings["options"]["num_envs"]
    learner = {name: settings[name] for name in ("algorithm", "env", "options", "iterations")}
    steps = _work(settings) // envs
    with ExitStack() as stack:
        sides = {
            "run": stack.enter_context(_trained(settings, settings["plan"])),
            "environments": stack.enter_context(
                Side("pool", {"env": settings["env"], "envs": envs, "workers": 0, "steps": steps})
            ),
            "learning": stack.enter_context(Side("learning", learner)),
        }
        samples = interleave(sides, settings["rounds"], _work(settings))
        versions = {name: side.versions for name, side in sides.items()}
    rows = zip(samples["run"], samples["environments"], samples["learning"], strict=True)
    shares = [run * (1 / alone + 1 / learn) for run, alone, learn in rows]
    return Measurement(statistics.median(shares), samples, "environment steps/s", versions)


def overlap(settings: Mapping[str, Any]) -> Measurement:
    """A plan that overlaps acting and learning beside one that does not, where each takes about as long as the other:
    an environment's step sleeps for its share of what learning was found to take."""
    learner = {name: settings[name] for name in ("algorithm", "env", "options", "iterations")}
    with Side("learning", learner) as side:
        learning = [side.sample() / settings["iterations"] for _ in range(settings["rounds"])]
    sleep = statistics.median(learning) / settings["options"]["num_steps"]
    found = compare(
        lambda: _trained(settings, settings["plan"], sleep=sleep),
        lambda: _trained(settings, settings["other plan"], sleep=sleep),
        settings["rounds"],
        _work(settings),
    )
    return replace(found, samples={**found.samples, "seconds of learning": learning})


CARTPOLE = {"algorithm": "ppo", "env": "CartPole-v1", "options": PPO, "iterations": 20, "rounds": 11}
NOTE = "each side in a process of its own, compiled before the clock starts, asked in turn; median ratio of a round"
POOL = {"env": "CartPole-v1", "envs": 64, "workers": 2, "steps": 500, "rounds": 21}
# A sample ends when its last rollout is learnt, with nobody acting meanwhile: it must be long for that not to count.
HOSTED = {
    **CARTPOLE,
    "env": "gymnasium/CartPole-v1",
    "plan": {"name": "sebulba", "threads": 1},
    "iterations": 20,
    "rounds": 9,
}

CLAIMS = (
    Claim(
        "ppo_vs_handwritten",
        {**CARTPOLE, "how": f"motet's anakin / benchmarks/handwritten_ppo.py; {NOTE}"},
        vs_handwritten,
        at_least=0.95,
    ),
    Claim(
        "ppo_vs_rejax",
        {
            **CARTPOLE,
            "rejax options": REJAX,
            "how": f"motet's anakin / rejax's PPO; {NOTE}. rejax runs its own train_iteration in a compiled loop with "
            "a donated state, without the evaluations that its train() puts between iterations; neither normalises "
            "observations. motet also bootstraps at time limits and reports losses and episodes; rejax does neither",
        },
        vs_rejax,
        at_least=1.6,
    ),
    Claim(
        "ppo_few_envs_vs_rejax",
        {
            **CARTPOLE,
            "options": {**PPO, "num_envs": 4},
            "rejax options": {**REJAX, "num_envs": 4},
            "iterations": 200,
            "how": f"as ppo_vs_rejax, with 4 environments x 128 steps; {NOTE}",
        },
        vs_rejax,
        at_least=1.3,
    ),
    Claim(
        "ppo_two_devices",
        {
            **CARTPOLE,
            "options": {**PPO, "num_envs": 1024},
            "iterations": 2,
            "rounds": 7,
            "how": f"anakin(2) on 2 virtual devices / anakin(1) on one device; {NOTE}",
        },
        two_devices,
        at_least=1.1,
    ),
    Claim(
        "catch_fps",
        {
            "algorithm": "a2c",
            "env": "Catch-v0",
            "options": CATCH,
            "iterations": 100,
            "rounds": 11,
            "how": "the Podracer authors' demo (Catch 10x5, 128 environments per core, 16 steps, 100 iterations, one "
            "hidden layer of 256, step size 1e-4): 550,000 frames/s per TPU core there; here A2C, whose policy and "
            "value have a network each and whose optimiser is RMSProp, on one CPU device",
        },
        speed,
        unit=" frames/s",
    ),
    Claim(
        "compile_cold",
        {
            "env": "CartPole-v1",
            "options": PPO,
            "total_timesteps": 16_384,
            "rounds": 3,
            "how": "an empty cache each time",
        },
        compile_cold,
        at_most=8,
        unit=" s",
    ),
    Claim(
        "second_start",
        {
            "command": [*FIRST, "--total-timesteps", "10_000_000"],
            "rounds": 3,
            "how": "from starting the command to its first row, after one run of it that filled the cache",
        },
        second_start,
        at_most=6,
        unit=" s",
    ),
    Claim(
        "pool_vs_async",
        {**POOL, "their workers": 8, "how": f"our pool / Gymnasium's AsyncVectorEnv of 8 processes; {NOTE}"},
        vs_gymnasium,
        at_least=8,
    ),
    Claim(
        "pool_vs_sync",
        {**POOL, "their workers": 0, "how": f"our pool / Gymnasium's SyncVectorEnv; {NOTE}"},
        vs_gymnasium,
        at_least=1.2,
    ),
    Claim(
        "ppo_vs_sb3",
        {**HOSTED, "their processes": False, "how": f"motet / Stable-Baselines3 with DummyVecEnv; {NOTE}"},
        vs_stable_baselines,
        at_least=2.5,
    ),
    Claim(
        "ppo_vs_sb3_processes",
        {
            **HOSTED,
            "iterations": 5,
            "rounds": 5,
            "their processes": True,
            "how": f"motet / Stable-Baselines3 with SubprocVecEnv; {NOTE}",
        },
        vs_stable_baselines,
        at_least=4,
    ),
    Claim(
        "ppo_envpool_bound",
        {
            **HOSTED,
            "env": "envpool/CartPole-v1",
            "how": "a run / (1 / (1 / environments alone + 1 / learning alone)), all three asked in turn in one run",
        },
        vs_bound,
        at_least=0.7,
    ),
    Claim(
        "overlap",
        {
            "algorithm": "ppo",
            "env": "gymnasium/CartPole-v1",
            "options": {
                "num_envs": 2,
                "num_steps": 64,
                "update_epochs": 200,
                "num_minibatches": 1,
                "hidden": (256, 256),
                **STEEP,
            },
            "plan": {"name": "sebulba", "threads": 2, "workers": 1},
            "other plan": {"name": "batched", "workers": 2},
            "iterations": 15,
            "rounds": 5,
            "how": f"sebulba / batched, as many worker processes in both; each environment step sleeps for so long "
            f"that acting takes about as long as learning was found to take, alone, just before; {NOTE}",
        },
        overlap,
        at_least=1.6,
    ),
    Claim(
        "memory",
        {
            "env": "CartPole-v1",
            "options": {
                "num_envs": 8,
                "num_steps": 16,
                "update_epochs": 4,
                "num_minibatches": 8,
                "hidden": (16,),
                **STEEP,
            },
            "iterations": 10_000,
            "how": "resident memory after 10 x iterations less that after iterations, in one run of motet.train",
        },
        memory,
        at_most=8,
        unit=" MiB",
    ),
)


def save(claim: Claim, measurement: Measurement) -> Path:
    """Write what was measured, and how, to the results folder."""
    record = {
        "name": claim.name,
        "value": measurement.value,
        "line": claim.line(measurement.value),
        "settings": claim.settings,
        "unit of samples": measurement.unit,
        "medians": measurement.medians,
        "samples": measurement.samples,
        "versions": {"python": platform.python_version(), **measurement.versions},
        "cores": os.cpu_count(),
        "command": f"python -m benchmarks {claim.name}",
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{claim.name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path
