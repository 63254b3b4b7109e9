"""What an algorithm's author writes: methods for one environment or one batch, and the loop that joins them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax

from motet.errors import BadAlgorithm, BadOption
from motet.flow.spaces import Box, Discrete, Space, parts

if TYPE_CHECKING:
    from motet.flow.loops import Flow


@dataclass(frozen=True)
class Spec:
    """What an algorithm is told of its task."""

    observation_space: Space
    action_space: Space
    iterations: int
    """How many training iterations the run will have (for schedules)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decision:
    """What `act` returns for one environment."""

    action: Any
    memory: Any = ()
    """What a recurrent policy carries to the next step; () for a feed-forward one."""
    extras: Any = ()
    """What learning wants to know later: log-probabilities, values."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A training loop. It holds no device, mesh, thread, queue, process or `jit`: a plan decides those."""

    max_lag: ClassVar[int | None] = 0
    """How many iterations old the acting policy may be and the algorithm still learn; None: any."""

    action_spaces: ClassVar[tuple[type[Space], ...]] = (Discrete, Box)
    """The kinds of actions it can choose, and of the parts of actions that have several."""

    num_envs: int = field(default=8, metadata={"low": 1})
    """Environments that act side by side."""

    def bind(self, spec: Spec) -> Self:
        """This algorithm for one task: a copy whose methods find the task in `self.spec`."""
        if not all(isinstance(space, self.action_spaces) for space in (spec.action_space, *parts(spec.action_space))):
            kinds = " or ".join(kind.__name__ for kind in self.action_spaces)
            raise BadAlgorithm(
                f"{type(self).__name__} chooses {kinds} actions, but this environment takes {spec.action_space}. "
                "Choose another algorithm; `motet algorithms` shows which actions each one serves."
            )
        bound = copy.copy(self)
        object.__setattr__(bound, "_spec", spec)
        return bound

    @property
    def spec(self) -> Spec:
        """The task that this algorithm was bound to."""
        if "_spec" not in self.__dict__:
            raise BadAlgorithm(f"{type(self).__name__} is not bound to a task; motet.train does that, or bind(spec).")
        return self.__dict__["_spec"]

    def init(self, key: jax.Array) -> Any:
        """The first learner state: parameters, optimiser state, counters."""
        raise NotImplementedError(f"{type(self).__name__} must define init(self, key)")

    def policy(self, state: Any) -> Any:
        """What acting needs of the learner state: the payload of the learner -> actor link."""
        return state.params

    def weights(self, state: Any) -> Any:
        """What `call`ed methods need of the learner state; the policy's payload unless overridden."""
        return self.policy(state)

    def memory(self) -> Any:
        """The memory of ONE environment at the start of an episode."""
        return ()

    def act(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> Decision:
        """Decide for ONE environment while training.

        It may have more parameters, by name: `index`, the environment's number, and `reward` and `action`, those of the
        step before, which are 0 where an episode begins.
        """
        raise NotImplementedError(f"{type(self).__name__} must define act(self, policy, memory, observation, key)")

    def exploit(self, policy: Any, memory: Any, observation: Any, key: jax.Array) -> Decision:
        """Decide for ONE environment when the policy is evaluated or used; `act` unless overridden. It may ask for more
        as `act` may."""
        return self.act(policy, memory, observation, key)

    def loop(self, flow: Flow) -> None:
        """One training iteration, top to bottom."""
        raise NotImplementedError(f"{type(self).__name__} must define loop(self, flow)")

    def __post_init__(self) -> None:
        check_ranges(self)


BESIDES = ("index", "reward", "action")
"""What `act` and `exploit` may ask for besides, by the names of their parameters."""
ALWAYS = ("policy", "memory", "observation", "key")


def besides(algorithm: Algorithm, decide: Callable[..., Decision]) -> tuple[str, ...]:
    """What `decide`, an `act` or `exploit`, asks for besides."""
    parameters = inspect.signature(decide).parameters
    for name, each in list(parameters.items())[len(ALWAYS) :]:
        if name not in BESIDES and each.default is inspect.Parameter.empty:
            raise BadAlgorithm(
                f"{type(algorithm).__name__}.{getattr(decide, '__name__', 'act')} takes {', '.join(ALWAYS)} and, by "
                f"name, {', '.join(BESIDES)}; it also wants {name!r}, which nothing gives it."
            )
    return tuple(name for name in BESIDES if name in parameters)


def exploits(algorithm: Algorithm) -> Callable[..., Decision]:
    """What decides when a policy is evaluated or used."""
    return algorithm.act if type(algorithm).exploit is Algorithm.exploit else algorithm.exploit


def option(
    default: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    code: OwnCode | None = None,
) -> Any:
    """A dataclass field with a default and a range that is checked when the algorithm is made.

    Of a tuple, every element must lie in the range. With `code`, whatever is no number is somebody's code.
    """
    limits = {"low": low, "high": high, "above": above, "choices": choices}
    return field(default=default, metadata={**limits, "code": code})


@dataclass(frozen=True)
class OwnCode:
    """Says of an option that it may be somebody's code."""

    accept: Callable[[Any], Any]
    """What to keep of a value that was given; a ValueError says what it must be."""
    acts: bool = True
    """Whether a trained policy needs it to act."""


def check_ranges(algorithm: Algorithm) -> None:
    """Raise one BadOption that names every field outside its range."""
    for name, value in vars(type(algorithm)).items():
        if isinstance(value, Field):
            raise BadAlgorithm(
                f"{type(algorithm).__name__} declares the option {name!r} but is no dataclass: put "
                "@dataclass(frozen=True, kw_only=True) above the class."
            )
    problems = []
    for each in fields(algorithm):
        value = getattr(algorithm, each.name)
        if isinstance(value, list) and str(each.type).startswith("tuple"):  # as good, but an algorithm must not change
            value = tuple(value)
            object.__setattr__(algorithm, each.name, value)
        wants = [] if value is None else _unfit(algorithm, each, value)
        if wants:
            problems.append(f"{each.name} must be {' and '.join(wants)}, got {value!r}")
    if problems:
        raise BadOption(f"{type(algorithm).__name__}: " + "; ".join(problems))


def _unfit(algorithm: Algorithm, each: Field[Any], value: Any) -> list[str]:
    """What a field asks of its value in vain. Of somebody's code, what is accepted takes the value's place."""
    code: OwnCode | None = each.metadata.get("code")
    if code is None or (_has_range(each) and isinstance(value, int | float)):
        return _wrong_type(value, each) or _unmet(value, each.metadata)
    try:
        object.__setattr__(algorithm, each.name, code.accept(value))
    except ValueError as error:
        return [str(error)]
    return []


def _has_range(each: Field[Any]) -> bool:
    return any(each.metadata.get(limit) is not None for limit in ("low", "high", "above"))


def _wrong_type(value: Any, each: Field[Any]) -> list[str]:
    """What a field with a numeric range asks of the type of `value` in vain."""
    if not _has_range(each):
        return []
    kind = each.type.__name__ if each.type in (int, float) else str(each.type)
    whole, several = kind.startswith(("int", "tuple[int")), kind.startswith("tuple")
    values = value if several and isinstance(value, tuple) else (value,)
    numbers = all(isinstance(v, int if whole else (int, float)) and not isinstance(v, bool) for v in values)
    if numbers and isinstance(value, tuple) == several:
        return []
    number = "whole number" if whole else "number"
    return [f"a tuple of {number}s such as {each.default}" if several else f"a {number}"]


def _unmet(value: Any, limits: Mapping[str, Any]) -> list[str]:
    """What `limits` asks of `value` in vain."""
    low, high, above, choices = (limits.get(name) for name in ("low", "high", "above", "choices"))
    values = value if isinstance(value, tuple) else (value,)
    wants = []
    if choices and value not in choices:
        wants.append(f"one of {', '.join(choices)}")
    if low is not None and not all(each >= low for each in values):
        wants.append(f"at least {low}")
    if above is not None and not all(each > above for each in values):
        wants.append(f"above {above}")
    if high is not None and not all(each <= high for each in values):
        wants.append(f"at most {high}")
    return wants
