"""An algorithm's options as JSON, and back. What is somebody's code is written down by its name.

{"code": "my_nets:Tower"}                            a class or a function
{"code": "my_nets:Tower", "fields": {"width": 8}}    a flax module
{"unnamed": "my_script:main.<locals>.<lambda>"}      what has no name to be found by
{"text": "my_nets:optimizer"}                        what learning needed, but acting does not
{"dtype": "bfloat16"}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from motet import named
from motet.errors import BadOption, MotetError
from motet.flow.algorithm import Algorithm, OwnCode
from motet.runs.reading import Damaged

NOT_SAVED = ("parent",)
"""Fields of every flax module that say where it is used, not what it is."""
MAIN = "__main__:"


def to_json(algorithm: Algorithm) -> dict[str, Any]:
    return {each.name: _option(each, getattr(algorithm, each.name)) for each in dataclasses.fields(algorithm)}


def _option(each: dataclasses.Field[Any], value: Any) -> Any:
    code: OwnCode | None = each.metadata.get("code")
    if code is None or value is None or isinstance(value, int | float):
        return _value(value)
    if not code.acts:
        return {"text": value if isinstance(value, str) else named.name_of(value) or _words(value)}
    return {"code": value} if isinstance(value, str) else _value(value)


def _value(value: Any) -> Any:
    import flax.linen as nn

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _value(each) for name, each in value.items()}
    if isinstance(value, nn.Module):
        return _module(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _value(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {"dtype": np.dtype(value).name}
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype) and callable(value):  # jnp.float32, say
        return {"dtype": dtype.name}
    name = named.name_of(value)
    return {"code": name} if name else {"unnamed": _words(value)}


def _module(module: Any) -> dict[str, Any]:
    """A module as its class and those of its fields that are not as they would be anyway."""
    name = named.name_of(type(module))
    if name is None:
        return {"unnamed": _words(type(module))}
    given = {}
    for each in dataclasses.fields(module):
        value = getattr(module, each.name)
        usual = each.default_factory() if callable(each.default_factory) else each.default
        if each.init and each.name not in NOT_SAVED and not (value is usual or _equal(value, usual)):
            given[each.name] = _value(value)
    return {"code": name, "fields": given}


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and isinstance(one, bool | int | float | str | tuple) and one == other


def _words(value: Any) -> str:
    """What a thing is, for people."""
    thing = value.update if hasattr(value, "update") and hasattr(value, "init") else value  # an optimiser of optax
    module, path = (getattr(thing, key, None) for key in ("__module__", "__qualname__"))
    return f"{module}:{path}" if path else f"a {type(value).__qualname__}"


def code_names(options: Any) -> list[str]:
    """The names of all code that must be found to have the options again, each once."""
    found, left = set(), [options]
    while left:  # a file may be nested deeper than functions can call each other
        each = left.pop()
        if isinstance(each, dict) and _is_code(each) and isinstance(each["code"], str):
            found.add(each["code"])
        left += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return sorted(found)


def learning_names(options: Any) -> list[str]:
    """The names of code that learning needs, but acting does not, as far as they can be found again."""
    texts = (each["text"] for each in dict(options).values() if _is_text(each)) if isinstance(options, dict) else ()
    return sorted({text for text in texts if _can_be_found(text)})


def _is_text(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"text"}


def _can_be_found(text: Any) -> bool:
    return isinstance(text, str) and named.is_named(text) and "<" not in text


def _is_code(value: Mapping[str, Any]) -> bool:
    return set(value) in ({"code"}, {"code", "fields"})


def read(options: Mapping[str, Any], algorithm: type[Algorithm] | Algorithm, *, learns: bool = False) -> dict[str, Any]:
    """The options with which an algorithm is made again. What is code is found by its name, which imports it; of an
    algorithm that is there already, it is taken from that. What only learning needs is left out, unless it `learns`."""
    known = {each.name: each for each in dataclasses.fields(algorithm)}
    unknown = [name for name in options if name not in known]
    if unknown:
        raise Damaged(f"its options fit no algorithm: {_kind(algorithm).__name__} has no {', '.join(unknown)}")
    made = {}
    for name, value in options.items():
        code: OwnCode | None = known[name].metadata.get("code")
        if code is not None and isinstance(value, str):
            raise Damaged(f"{name} should be a number or an object, but is {value!r}")  # an option would import it
        if isinstance(algorithm, Algorithm) and _holds_code(value):
            made[name] = getattr(algorithm, name)
        elif _is_text(value):
            made |= {name: _learning(name, value["text"])} if learns else {}
        else:
            made[name] = _read(name, value)
    return made


def _learning(name: str, text: Any) -> str:
    if not _can_be_found(text):
        raise BadOption(
            f"{name} was {text}, which has no name to be found by. Give the algorithm with it in Python, as in "
            f"motet.resume(folder, algorithm=motet.PPO({name}=...)), or before the next training define it at the top "
            f"of a module."
        )
    return text


def _kind(algorithm: type[Algorithm] | Algorithm) -> type[Algorithm]:
    return type(algorithm) if isinstance(algorithm, Algorithm) else algorithm


def _holds_code(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_code, value))
    if not isinstance(value, dict):
        return False
    return _is_code(value) or _is_text(value) or set(value) == {"unnamed"} or any(map(_holds_code, value.values()))


def _read(where: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(where, each) for each in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"unnamed"}:
        raise BadOption(
            f"{where} was {value['unnamed']}, which has no name to be found by. Give the algorithm with it, as in "
            f"Policy.load(folder, motet.PPO({where.partition('.')[0]}=...)), or before the next training define it at "
            "the top of a module."
        )
    if set(value) == {"dtype"} and isinstance(value["dtype"], str):
        return jnp.dtype(value["dtype"])
    if not _is_code(value):
        return {name: _read(f"{where}.{name}", each) for name, each in value.items()}
    found = _found(where, value["code"])
    return found if "fields" not in value else _remade(where, found, value["fields"])


def _found(where: str, name: Any) -> Any:
    if not isinstance(name, str) or not named.is_named(name):
        raise Damaged(f"{where} should name code as module:Name, but names {name!r}")
    try:
        return named.find(name)
    except MotetError as error:
        script = " It was defined in a script; in a module of its own it is found." if name.startswith(MAIN) else ""
        raise BadOption(
            f"{where} is {name}, which cannot be found: {error}{script} Give the algorithm with it, as in "
            f"Policy.load(folder, motet.PPO({where.partition('.')[0]}=...))."
        ) from None


def _remade(where: str, kind: Any, given: Any) -> Any:
    import flax.linen as nn

    if not isinstance(kind, type) or not issubclass(kind, nn.Module) or not isinstance(given, dict):
        raise Damaged(f"{where} should be a flax module and its fields")
    try:
        return kind(**{name: _read(f"{where}.{name}", each) for name, each in given.items()})
    except TypeError as error:
        raise BadOption(
            f"{where}: {kind.__qualname__} is not what it was when the policy was saved: {error}."
        ) from None
