"""The table's rows of processes: signals, and surroundings that few people have."""

from __future__ import annotations

import os
import resource
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import jax

import motet
from motet.forked import refuse
from tests.hardening.attack import HERE, MOTET, PLANS, WORKERS, Act, Case, Ended, command, process, training

SAVED = "Stopped after # steps, and saved. To go on: motet resume run"
LONG = ("--total-timesteps", "1e8")
NOBODY = """
import os, pwd
if os.geteuid() == 0:
    os.setresuid(54321, 0, 0)  # a user that no list knows, who may read what is here
else:
    def nobody(uid): raise KeyError(uid)
    pwd.getpwuid = nobody
"""


def measured(place: Path) -> bool:
    """Whether a run has got anywhere."""
    file = place / "run" / "metrics.jsonl"
    return file.exists() and file.stat().st_size > 0


def signalled(plan: str, *signals: int, code: int, words: str = "", **more: Any) -> Case:
    def send(pid: int) -> None:
        for each in signals:
            os.kill(pid, each)
            time.sleep(0.3)

    act = process(training("slow", plan, options=LONG), when=measured, then=send)
    names = " ".join(signal.Signals(each).name for each in signals)
    return Case(thing=f"signal: {names}", plan=plan, act=act, code=code, words=words, **{"policy": False, **more})


def killed_in_native_code(place: Path) -> Ended:
    """The main process is shot while its workers are in code that keeps Python's lock."""
    args = training("hold the lock", "batched(2)", options=("--step-timeout", "1000"), once="held")
    return process(args, when=lambda place: (place / "held").exists(), then=lambda pid: os.kill(pid, signal.SIGKILL))(
        place
    )


def without_descriptors_of_processes(place: Path) -> Ended:
    """As on systems that have none."""
    kept = os.pidfd_open
    del os.pidfd_open
    try:
        return command(training("orphan", "batched(2)", options=("--restarts", "0")))(place)
    finally:
        os.pidfd_open = kept


def stopped_for_a_while(plan: str, **more: Any) -> Case:
    """A laptop that sleeps, or Ctrl-Z and fg."""

    def stop(pid: int) -> None:
        os.killpg(pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.killpg(pid, signal.SIGCONT)

    args = training("slow", plan, options=("--step-timeout", "30"))
    act = process(args, when=lambda place: (place / "run" / "config.json").exists(), then=stop)
    return Case(thing="signal: SIGSTOP, later SIGCONT", plan=plan, act=act, **more)


def around(thing: str, act: Act, code: int = 0, words: Any = "", plan: str = "multi_learner(1)", **more: Any) -> Case:
    return Case(thing=f"surroundings: {thing}", plan=plan, act=act, code=code, words=words, **more)


def many_descriptors(act: Act) -> Act:
    """More than `select` can count to."""

    def opened(place: Path) -> Ended:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            return act(place)
        finally:
            for each in many:
                os.close(each)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return opened


def forked(place: Path) -> Ended:
    """`train` in a fork of a process that has used JAX."""
    jax.devices()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that JAX does not like it
        child = os.fork()
    if not child:
        try:
            motet.train("a2c", "CartPole-v1", total_timesteps=10_000)
            os.write(write, b"trained")
        except motet.MotetError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        words = said.read()
    os.waitpid(child, 0)
    refuse()  # here all is well
    return Ended(2, words)


LARGE = "tests.hardening.broken:Large"


def large(place: Path) -> Ended:
    """50 MB of observation: to open its worker takes no longer than the time-out allows."""
    env = motet.make(LARGE)
    from motet.flow.host import Opening

    began = time.monotonic()
    pool = env.open(Opening(0, 1, 0, workers=1, timeout=20.0))  # type: ignore[union-attr]
    try:
        first = pool.reset()[0]
        assert first.nbytes == 50_000_000 and (first[0, :3] == 7).all()
        del first
    finally:
        pool.close()
    return Ended(0, f"{time.monotonic() - began:.1f} s")


def gone(place: Path) -> Ended:
    """In a folder that is deleted: nothing can be written there, and that is said."""
    return process(["train", "a2c", "CartPole-v1"], shell='mkdir gone && cd gone && rmdir ../gone && exec "$@"')(place)


SIGNALS = [
    *(signalled(plan, signal.SIGINT, code=130, words=SAVED, policy=True, rare=plan not in ("fine(2)", "batched(2)"))
      for plan in PLANS),
    *(signalled(plan, signal.SIGINT, signal.SIGINT, code=130, learned="nothing", policy=None, rare=True)
      for plan in ("multi_learner(1)", "sebulba(2)")),
    *(signalled(plan, signal.SIGTERM, code=143, words=SAVED, policy=True, rare=plan != "batched(2)") for plan in PLANS),
    *(signalled(plan, signal.SIGKILL, code=-9, rare=plan != "sebulba(2)") for plan in WORKERS),
    *(signalled(plan, signal.SIGHUP, code=-1, rare=True) for plan in HERE),
    Case(thing="signal: SIGKILL in native code", plan="batched(2)", act=killed_in_native_code, code=-9, policy=False),
    stopped_for_a_while("batched(2)", rare=True),
    stopped_for_a_while("coarse(2)", rare=True),
]  # fmt: skip
SURROUNDINGS = [
    around("closed streams", process(training(), shell='exec "$@" >&- 2>&-')),
    around("nobody at home", process(training(), program=NOBODY + MOTET, env={"HOME": None,
           "JAX_COMPILATION_CACHE_DIR": None})),
    around("a fork after JAX", forked, 2, "forked from process #, which had used JAX", learned="nothing"),
    around("1,100 descriptors", many_descriptors(command(training("", "batched(2)"))), plan="batched(2)"),
    around("1,100 descriptors", many_descriptors(command(training("", "sebulba(2)"))), plan="sebulba(2)"),
    around("no descriptors of processes", without_descriptors_of_processes, 2, "it was killed by signal 9",
           "batched(2)"),
    around("observations of 50 MB", large, plan="pool(1)", learned="nothing", memory=1_500_000),
    around("huge losses", command(training("huge reward")), 0, "diverging: the metric 'reward'", learned="nothing",
           policy=True),
    around("huge losses", command(training("huge reward", "coarse(2)")), 0, "diverging: the metric 'reward'",
           "coarse(2)", learned="nothing", policy=True),
    around("closed input", process(training(), shell='exec "$@" <&-'), rare=True),
    around("a full output", process(training(), shell='exec "$@" >/dev/full'), 2, "No space left on device",
           policy=True, learned="nothing", rare=True),
    around("a reader that leaves", process(training("slow"), shell='"$@" | head -c 1 >/dev/null'), 0,
           "Nobody reads any more how the run goes; it goes on", policy=True),
    around("a deleted folder", gone, 2, "", learned="nothing", rare=True),
    around("a home that is a file", process(training(), env={"HOME": "/dev/null", "JAX_COMPILATION_CACHE_DIR": None}),
           rare=True),
    around("a home where nobody may write", process(training(), env={"HOME": "/proc",
           "JAX_COMPILATION_CACHE_DIR": None}), rare=True),
    around("no temporary folder", process(training("", "batched(2)"), env={"TMPDIR": "/nowhere"}), plan="batched(2)",
           rare=True),
    around("the plainest locale", process(training(), env={"LC_ALL": "C", "PYTHONUTF8": "0"}), rare=True),
    around("without assertions", process(training("", "batched(2)"), env={"PYTHONOPTIMIZE": "2"}), plan="batched(2)",
           rare=True),
    around("one core", process(training("", "batched(2)"), shell='exec taskset -c 0 "$@"'), plan="batched(2)",
           rare=True),
    around("few descriptors", process(training("", "batched(2)"), shell='ulimit -n 40; exec "$@"'), plan="batched(2)",
           rare=True),
    around("a background job", process(training("", "batched(2)"), shell='trap "" INT; exec "$@"'), plan="batched(2)",
           rare=True),
]  # fmt: skip
CASES = [*SIGNALS, *SURROUNDINGS]
