"""Every error that motet raises on purpose: what was expected, what came, and what to change."""

from __future__ import annotations

import difflib
import signal
import threading
from collections.abc import Iterable, Sequence
from typing import Any


def described(error: BaseException) -> str:
    """Kind and message of anybody's error, even if it cannot say what it is."""
    try:
        message = str(error)
    except BaseException as second:
        message = f"(its own message cannot be shown: str() raised {type(second).__name__})"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def is_ctrl_c(error: BaseException) -> bool:
    """Whether an error is a person's interrupt, and not one that somebody's code raised: that comes to the main thread
    alone, and only where interrupts are not ignored."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    )


class MotetError(Exception):
    """The root of motet's own errors."""


class UnknownName(MotetError, ValueError):
    """A name that is in no list; the message suggests the nearest one, and of a long list shows the nearest few."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        known = sorted(known)
        by_lower = {each.lower(): each for each in known}
        near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=10, cutoff=0.5)]
        hint = f"Did you mean {near[0]!r}? " if near else ""
        shown = known if len(known) <= 40 else near or known[:10]
        more = f" and {len(known) - len(shown)} more" if len(shown) < len(known) else ""
        super().__init__(f"There is no {kind} {name!r}. {hint}Known: {', '.join(shown)}{more}.")


class BadOption(MotetError, ValueError):
    """An option outside its range."""


class BadAlgorithm(MotetError, TypeError):
    """A method of an algorithm gave something that its loop cannot use."""


class BadEnvironment(MotetError, TypeError):
    """An environment's reset or step gave something other than its spaces promise."""


class BadPlan(MotetError, ValueError):
    """A plan that does not fit its graph; `violations` lists every reason."""

    def __init__(self, violations: Sequence[str]):
        self.violations = tuple(violations)
        count = f"{len(self.violations)} problem{'s' if len(self.violations) != 1 else ''}"
        super().__init__("\n  - ".join([f"The plan cannot run; {count}, nothing was started:", *self.violations]))


class BadMachine(MotetError, ValueError):
    """A description of a machine that is none; `violations` lists every reason."""

    def __init__(self, violations: Sequence[str]):
        self.violations = tuple(violations)
        count = f"{len(self.violations)} problem{'s' if len(self.violations) != 1 else ''}"
        super().__init__("\n  - ".join([f"This describes no machine; {count}:", *self.violations]))


class Diverged(MotetError, ArithmeticError):
    """A loss or a parameter is no longer finite. `result` holds the last good state."""

    def __init__(self, message: str, iteration: int, result: Any = None):
        super().__init__(message)
        self.iteration = iteration
        self.result = result


class Interrupted(KeyboardInterrupt):
    """A signal stopped a run at a cut. Everything is saved: `motet.resume(run_dir)` goes on. `result` is what came of
    the run until then."""

    def __init__(self, signal: int, result: Any = None):
        super().__init__(f"stopped by signal {signal} and saved")
        self.signal, self.result = signal, result


class NotSaved(MotetError, OSError):
    """A trained policy could not be written into its run's folder. `result` holds the run's result, and `place` the
    folder where the policy is instead, if there was one."""

    def __init__(self, message: str, result: Any = None, place: Any = None):
        super().__init__(message)
        self.result, self.place = result, place


class Stalled(MotetError, TimeoutError):
    """A fragment waited longer than allowed; the message names who waits for whom."""


class EnvironmentFailed(MotetError, RuntimeError):
    """An environment raised, or the process it ran in died.

    `index` is the environment's number in the run and `step` the step of its episode, where they are known.
    """

    def __init__(self, message: str, index: int | None = None, step: int | None = None):
        super().__init__(message)
        self.index, self.step = index, step


class EnvironmentTimeout(Stalled):
    """A worker's environments took longer than allowed to start, to reset or to step."""


class NotEnoughMemory(MotetError, MemoryError):
    """The memory that a run would share with its workers is not there."""


class Disconnected(MotetError, ConnectionError):
    """A program that spans hosts has lost one of them."""


class Stopped(MotetError):
    """Raised inside a fragment when another fragment's error has ended the run."""
