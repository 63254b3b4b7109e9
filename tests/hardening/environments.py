"""The table's rows of broken environments: in training under every plan, and in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.hardening.attack import HERE, PLANS, WORKERS, Case, Ended, command, patience, training

STEP = "Environment # (tests.hardening.broken:Broken) raised in step 5 of its episode: "
VALUE = "Environment # (tests.hardening.broken:Broken), in step 5 of its episode: "
MADE = "cannot be made: "

RAISED = {
    "raise": "RuntimeError: no battery",
    "exit 0": "SystemExit: 0",
    "exit 5": "SystemExit: 5",
    "odd": "Odd: odd",
    "nasty": "Nasty: (its own message cannot be shown: str() raised RuntimeError)",
    "generator exit": "GeneratorExit",
    "stop iteration": "StopIteration: 7",
    "no memory": "MemoryError: no more",
    "interrupt": "KeyboardInterrupt",
    "many lines": "ValueError: first line\nsecond line",
    "group": "BaseExceptionGroup: many (2 sub-exceptions)",
    "recursion": "RecursionError: maximum recursion depth exceeded",
}
VALUES = {
    "nan": "the observation should be finite, but holds nan at [1]",
    "infinite": "the observation should be finite, but holds inf at [0]",
    "shape": "the observation should have shape (2,), but has (3,)",
    "scalar": "the observation should have shape (2,), but has ()",
    "text": "the observation should have dtype float32, but has <U1",
    "objects": "the observation should have dtype float32, but has object",
    "complex": "the observation should have dtype float32, but has complex64",
    "nothing": "the observation should have dtype float32, but has object (NoneType)",
    "dictionary": "the observation should",
    "endless reward": "the reward should be a finite number, but is inf",
    "no reward": "the reward should be a finite number, but is None",
    "many rewards": "the reward should be a finite number, but is [1, 2]",
    "reward of text": "the reward should be a finite number, but is '1'",
    "no flag": "terminated should be a bool, but is 1 (int)",
    "flag of nothing": "terminated should be a bool, but is None",
    "three": "step should return (observation, reward, terminated, truncated, info)",
}
BEGINNINGS = {
    "raise in init": MADE + "RuntimeError: no battery",
    "exit in init": MADE + "SystemExit: 0",
    "odd in init": MADE + "Odd: odd",
    "raise in reset": "raised in reset: RuntimeError: no battery",
    "exit in reset": "raised in reset: SystemExit: 0",
    "nan in reset": "the observation should be finite, but holds nan at [1]",
    "shape in reset": "the observation should have shape (2,), but has (3,)",
    "one from reset": "reset should return (observation, info)",
    "raise in close": "its close() raised RuntimeError: the lid is stuck",
}
HARMLESS = ("raise in a later close", "exit in close", "odd in close", "shared buffer", "talk", "move", "no info",
            "double")  # fmt: skip
DEATHS = {
    "die": "it was killed by signal 9 (SIGKILL)",
    "terminate": "it was killed by signal 15 (SIGTERM)",
    "crash": "it was killed by signal 11 (SIGSEGV)",
    "abort": "it was killed by signal 6 (SIGABRT)",
    "end": "it exited with code 3",
    "end well": "it exited with code 0",
    "orphan": "it was killed by signal 9 (SIGKILL)",
}
HANGING = {
    "hang in reset": "is still resetting",
    "hold the lock": "is still stepping, at environment ",
    "stop": "is still stepping, at environment ",
}
OFTEN = {"raise", "exit 0", "odd", "nasty", "generator exit", "interrupt", "nan", "shape", "no reward", "three",
         "raise in reset", "raise in close", "exit in close", "shared buffer"}  # fmt: skip
"""Under most plans even where time is short; the others under one or two of them."""


def rows(how: str, plans: Sequence[str], code: int, words: str, **more: Any) -> list[Case]:
    """One thing under several plans. Where time is short, most meet one plan in a thread or one with processes, each
    another one: what they share is tested with those that meet all."""
    turn = sum(how.encode())
    few = {plans[turn % len(plans)]} if how not in OFTEN else {*HERE, WORKERS[turn % 2]}
    return [
        Case(
            thing=f"environment: {how or 'sound'}",
            plan=plan,
            act=command(training(how, plan)),
            code=code,
            words=words,
            **{"rare": plan not in few, **more},
        )
        for plan in plans
    ]


def once(how: str, plan: str, **more: Any) -> Case:
    """A worker that dies once and is started anew: its rows are left out, and the run goes on."""
    args = training(how, plan, once="died")
    return Case(thing=f"environment: {how} once", plan=plan, act=command(args), learned="valid", **more)


TRAINING = [
    *rows("", list(PLANS), 0, "", rare=False),
    *(row for how, words in RAISED.items() for row in rows(how, list(PLANS), 2, STEP + words)),
    *(row for how, words in VALUES.items() for row in rows(how, list(PLANS), 2, VALUE + words)),
    *(row for how, words in BEGINNINGS.items() for row in rows(how, list(PLANS), 2, words)),
    *(row for how in HARMLESS for row in rows(how, list(PLANS), 0, "")),
    *(row for how in ("forget", "ignore signals") for row in rows(how, WORKERS, 0, "")),
    *rows("warn", HERE, 0, "", hanging=True),
    *rows("thread", HERE, 0, "", hanging=True),
    *rows("hang in close", HERE, 0, "have not closed within", hanging=True),
    *rows("hang in close", WORKERS, 0, ""),
    *rows("hang", HERE, 2, "step_timeout", hanging=True),
    *rows("hang", WORKERS, 2, "is still stepping, at environment "),
    *(
        Case(
            thing=f"environment: {how}",
            plan=plan,
            act=command(training(how, plan)),
            code=2,
            words=words,
            rare=plan == ("sebulba(2)" if how == "stop" else "batched(2)"),
        )
        for how, words in HANGING.items()
        for plan in WORKERS
    ),
    *(
        row
        for how, words in DEATHS.items()
        for row in rows(how, WORKERS, 2, words, learned="valid", rare=how not in ("die", "end"))
    ),
    *rows("copy", WORKERS, 2, "forked, and the child"),
    *rows("stay", WORKERS, 0, ""),
    *(once(how, plan, rare=how != "die") for how in ("die", "end", "crash", "orphan") for plan in WORKERS),
]


def evaluation(how: str, workers: int, once: str) -> Any:
    """`motet evaluate` of a sound run, whose environment is then another."""

    def act(place: Path) -> Ended:
        ended = command(training())(place)
        assert ended.code == 0, ended
        config = place / "run" / "config.json"
        config.write_text(config.read_text().replace('"how": ""', f'"how": "{how}", "once": "{once}"'))
        return command(["evaluate", "run", "--trust", "--episodes", "3", "--workers", str(workers), "--restarts", "1",
                        "--step-timeout", patience(how, workers > 0)])(place)  # fmt: skip

    return act


def evaluated(how: str, workers: int, code: int, words: str, once: str = "", **more: Any) -> Case:
    return Case(
        thing=f"environment: {how or 'sound'}{' once' if once else ''}",
        plan=f"evaluate({workers})",
        act=evaluation(how, workers, once),
        code=code,
        words=words,
        **{"policy": True, **more},
    )


def after_training(how: str, plan: str, words: str, **more: Any) -> Case:
    """An environment that breaks as soon as there is a policy: training is over then."""
    args = training(how, plan, options=("--evaluate-episodes", "3"), after="run/policy.safetensors")
    words = f"but the evaluation failed: {words}"
    return Case(
        thing=f"environment: {how} in the evaluation", plan=plan, act=command(args), code=4, words=words, **more
    )


PART = "(tests.hardening.broken:Broken) raised in step 5 of its episode: "
EVALUATING = [
    *(evaluated("", workers, 0, "return 36.0", rare=False) for workers in (0, 2)),
    *(
        evaluated(how, workers, 2, PART + words, rare=how not in ("raise", "exit 0", "odd", "nasty"))
        for how, words in RAISED.items()
        for workers in (0, 2)
    ),
    *(evaluated("hang", workers, 2, "still stepping", hanging=not workers) for workers in (0, 2)),
    evaluated("nan", 0, 2, "the observation should be finite, but holds nan at [1]"),
    evaluated("hang in close", 0, 0, "have not closed within", hanging=True),
    evaluated("die", 2, 2, "it was killed by signal 9 (SIGKILL)"),
    evaluated("die", 1, 0, "return 36.0", once="died"),
    after_training("raise", "multi_learner(1)", "Environment #"),
    after_training("exit 0", "coarse(2)", "Environment #"),
    after_training("nan", "fine(2)", "Environment #"),
    after_training("hang", "batched(2)", "After # s worker #"),
    after_training("die", "sebulba(2)", "Worker #", rare=True),
]
CASES = [*TRAINING, *EVALUATING]
