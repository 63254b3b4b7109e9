"""One case of the table: something broken, the plan or command that meets it, and what must happen."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from motet import cli
from tests.hardening.adds import ITERATIONS, TIMESTEPS, sound
from tests.hardening.left import MARK, marked, nothing_left
from tests.sharing import sharing

PLANS = {
    "batched(2)": ("--preset", "batched", "--workers", "2"),
    "multi_learner(1)": ("--preset", "multi_learner", "--learners", "1"),
    "coarse(2)": ("--preset", "coarse", "--actors", "2"),
    "fine(2)": ("--preset", "fine", "--environments", "2"),
    "sebulba(2)": ("--preset", "sebulba", "--threads", "2", "--workers", "1"),
}
WORKERS = ("batched(2)", "sebulba(2)")
"""Those with environments in processes of their own."""
HERE = tuple(name for name in PLANS if name not in WORKERS)
ROOT = Path(__file__).parents[2]
MOTET = "import sys; from motet.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Ended:
    """How an attack ended."""

    code: int
    said: str
    """To standard error, warnings included."""
    shown: str = ""
    """To standard output."""


Act = Callable[[Path], Ended]
"""Does what a user would, in an empty folder which is the current one."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is broken, under which plan or command, what is done, and what must come of it."""

    thing: str
    plan: str
    act: Act
    code: int = 0
    words: str | Sequence[str] = ()
    """What must be said or shown; `#` stands for any number."""
    within: float = 60.0
    """Seconds, on cores that are busy with others' tests too."""
    learned: str = "sound"
    """What the rows in the folder `run` must be: `sound`, those of sound environments, all of them if the run trained
    to its end; `valid`, none that contradicts itself; `nothing`, where no rows are left or nothing was trained."""
    policy: bool | None = None
    """Whether there is a policy in the folder then; by default if training came to its end."""
    hanging: bool = False
    """Whether a thread is inside of code that nobody can end."""
    rare: bool = False
    """Whether it waits for `make attack`."""
    memory: int = 500_000
    """Kilobytes that it may take."""
    group: str = ""
    """Cases of one group share what one process has made."""

    @property
    def name(self) -> str:
        return f"{self.thing}-{self.plan}"


def parameters(cases: Sequence[Case]) -> list[object]:
    def marks(case: Case) -> list[pytest.MarkDecorator]:
        together = sharing(case.group) if case.group else pytest.mark.apart
        return [together, *([pytest.mark.attack] if case.rare else [])]

    return [pytest.param(case, id=case.name, marks=marks(case)) for case in cases]


def hold(case: Case, place: Path) -> None:
    """Do it, and hold it to everything: exit code, words, time, what is left, and what was learned from."""
    began, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with nothing_left(hanging=case.hanging):
        ended = case.act(place)
    seconds = time.monotonic() - began
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < memory + case.memory
    assert ended.code == case.code, ended
    everything = re.sub(r"\d+", "#", f"{ended.said}\n{ended.shown}")
    for words in [case.words] if isinstance(case.words, str) else case.words:
        assert re.sub(r"\d+", "#", words) in everything, ended
    # Without an environment's own traceback, from its process.
    ours = re.sub(r"In worker #:\n\W*(Exception Group )?Traceback", "", everything)
    assert "Traceback" not in ours and "Exception ignored" not in ours, ended
    assert seconds < case.within
    _hold_rows(case, place / "run")
    assert not list(place.rglob("*.part"))


def _hold_rows(case: Case, run: Path) -> None:
    """No wrong row was learned from, and a policy is where training came to its end."""
    whole = case.code in (0, 4)
    if case.policy is not None or case.learned != "nothing":
        assert (run / "policy.safetensors").is_file() == (whole if case.policy is None else case.policy)
        assert case.code < 0 or not (run / "running").exists()  # whoever was killed could not tidy up
    if case.learned == "nothing":
        return
    file = run / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    assert not whole or len(rows) == ITERATIONS
    for row in rows:
        expected = sound(row["iteration"])
        seen = {name: row[name] for name in expected}
        if case.learned == "valid":
            assert seen["wrong"] == 0 and seen["rows"] <= 1, row
        else:
            assert seen == pytest.approx(expected), row


def training(how: str = "", plan: str = "multi_learner(1)", *, options: Sequence[str] = (), **env: str) -> list[str]:
    """The arguments of a run of the adding algorithm on broken environments."""
    return [
        "train", "tests.hardening.adds:Adds", "tests.hardening.broken:Broken",
        "--env-kwargs", json.dumps({"how": how, **env}), "--total-timesteps", str(TIMESTEPS), "--run-dir", "run",
        "--evaluate-episodes", "0", "--restarts", "1", "--step-timeout", patience(how, plan in WORKERS),
        *PLANS[plan], *options,
    ]  # fmt: skip


def patience(how: str, processes: bool) -> str:
    """Seconds for a step. Processes need some to begin with, on cores that are busy."""
    hangs = how.startswith("hang") and how != "hang in close"
    return ("10" if processes else "3") if hangs or how in ("hold the lock", "stop") else "60"


def command(args: Sequence[str]) -> Act:
    """`motet ARGS` in this process: what is attacked is not the process itself."""

    def act(place: Path) -> Ended:
        with (
            _nobody_left(uuid.uuid4().hex),
            redirect_stdout(io.StringIO()) as shown,
            redirect_stderr(io.StringIO()) as said,
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.filterwarnings("always", message="The environments of .* have not closed")
            warnings.filterwarnings("always", message="old")
            code = cli.main(list(args))
        return Ended(code, said.getvalue() + "".join(f"{each.message}\n" for each in warned), shown.getvalue())

    return act


@contextmanager
def _nobody_left(mark: str) -> Iterator[None]:
    """All processes that are started meanwhile, and those that they start, are over soon."""
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]
        _hold_that_all_ended(mark)


def _hold_that_all_ended(mark: str) -> None:
    _wait(lambda: not marked(mark), 15)
    left = marked(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes were left"


def process(
    args: Sequence[str],
    *,
    program: str = MOTET,
    env: Mapping[str, str | None] | None = None,
    shell: str = 'exec "$@"',
    when: Callable[[Path], bool] | None = None,
    then: Callable[[int], object] | None = None,
) -> Act:
    """`motet ARGS` in a process of its own, started by a shell that says how; `when` something is so, `then` something
    is done to it. Whatever it started must be over soon after it is."""

    def act(place: Path) -> Ended:
        mark = uuid.uuid4().hex
        surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), MARK: mark}
        surroundings = {name: value for name, value in {**surroundings, **(env or {})}.items() if value is not None}
        arguments = ["sh", "-c", shell, "sh", sys.executable, "-c", program, *args]
        with (
            open(place / "out", "w+") as out,
            open(place / "err", "w+") as err,
            subprocess.Popen(arguments, stdout=out, stderr=err, cwd=place, env=surroundings, process_group=0) as done,
        ):
            try:
                if when is not None and then is not None:
                    _wait(lambda: when(place) or done.poll() is not None, 60)
                    if done.poll() is None:
                        then(done.pid)
                code = done.wait(90)
            except BaseException:
                done.kill()
                raise
            _hold_that_all_ended(mark)
            out.seek(0), err.seek(0)
            return Ended(code, err.read(), out.read())

    return act


def _wait(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
