"""Somebody's code as an option: found by its name, and called with what it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from motet import named
from motet.errors import BadOption, MotetError, described


def accept(value: Any, kinds: tuple[type, ...], wanted: str) -> Any:
    """What to keep of an option's value, which must be of these `kinds`, a function or a name.

    Algorithms must be hashable, so their options must be. Files get names that are understood in every folder.
    """
    if isinstance(value, str) and named.is_named(value):
        return named.everywhere(value)
    if isinstance(value, str) or not (isinstance(value, kinds) or callable(value)):
        raise ValueError(wanted)
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"{wanted}, and hashable: of tuples and numbers, not of arrays") from None
    return value


def found(value: Any) -> Any:
    """What a name stands for; anything else is itself."""
    return named.find(value) if isinstance(value, str) else value


def called(option: str, make: Callable[..., Any], known: Mapping[str, Any], first: str | None = None) -> Any:
    """What `make` gives when it is told of `known` whatever it has parameters for, by their names.

    If it has a single parameter, of another name, that is the `first`.
    """
    what = getattr(make, "__qualname__", repr(make))
    try:
        parameters = inspect.signature(make).parameters
        given = {name: value for name, value in known.items() if name in parameters}
        rest = [] if given or first is None else [known[first]] * (len(parameters) == 1)
        return make(*rest, **given)
    except MotetError:
        raise
    except Exception as error:
        told = ", ".join(known)
        raise BadOption(
            f"{option}: {what} raised {described(error)}. It is called with {told}, of which it is told what it has "
            "parameters for, by their names."
        ) from error
