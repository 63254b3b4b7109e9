"""What can be laid around any environment by name: on the command line, in `motet.make` and in a run's configuration.

Each has one meaning, whether the environment is compiled or runs on the host. They are laid around it in the order of
`WRAPPERS`: the time limit counts the environment's own steps, an action may then last several of them, and frames are
stacked of what is left to see.
"""

from __future__ import annotations

from collections.abc import Mapping

from motet.errors import BadEnvironment, BadOption
from motet.flow.environment import Environment
from motet.flow.host import HostEnvironment

WRAPPERS = ("time_limit", "action_repeat", "frame_stack")


def asked(**options: int | None) -> dict[str, int]:
    """Of the wrappers' options those that are given, checked, in the order in which they are laid around."""
    found = {}
    for name in WRAPPERS:
        value = options.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadOption(f"{name} must be a whole number of at least 1, got {value!r}")
        found[name] = value
    return found


def wrap(env: Environment | HostEnvironment, wrappers: Mapping[str, int]) -> Environment | HostEnvironment:
    """The environment with these wrappers, as `asked` gives them."""
    if not wrappers:
        return env
    if isinstance(env, Environment):
        return _compiled(env, wrappers)
    from motet.envs.gymnasium import Gymnasium
    from motet.envs.host_wrappers import Wrapped

    if not isinstance(env, Gymnasium) or env.vector:
        flags = ", ".join(wrappers)
        raise BadEnvironment(
            f"{env.name} steps many environments as one, which {flags} cannot be laid around; look among its own "
            "options (--env-kwargs), or use single environments of Gymnasium."
        )
    wrapped = Gymnasium(Wrapped(env.make, tuple(wrappers.items())), check_bounds=env.check_bounds)
    wrapped.name = env.name
    return wrapped


def _compiled(env: Environment, wrappers: Mapping[str, int]) -> Environment:
    from motet.envs import wrappers as compiled

    kinds = {
        "time_limit": compiled.LimitDuration,
        "action_repeat": compiled.ActionRepeat,
        "frame_stack": compiled.FrameStack,
    }
    for name, value in wrappers.items():
        env = kinds[name](env, value)
    return env
