"""From words on the command line to dataclasses, by tyro: numbers as people write them, code by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import make_dataclass
from typing import Any, get_args, get_origin

import tyro
from tyro.conf import OmitArgPrefixes


def parse(command: str, args: Sequence[str], about: str, usual: Mapping[str, Any] | None = None, **parts: type) -> Any:
    """Read `args` into an object with one attribute for each of `parts`, which are dataclasses. What is not said is as
    in `usual`, an object for each of them; without it, as they declare."""
    options = make_dataclass("Options", list(parts.items()))
    default = {} if usual is None else {"default": options(**usual)}
    with _rules():
        return tyro.cli(
            options, prog=f"motet {command}", description=about, args=args, config=(OmitArgPrefixes,), **default
        )


def _rules() -> Any:
    """Read whole numbers as people write them, 500_000 or 5e5, and options that take somebody's code by its name."""
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def whole_numbers(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
        return _one_word("INT", whole, int) if info.type is int else None

    @registry.primitive_rule
    def code(info: tyro.constructors.PrimitiveTypeInfo) -> Any:
        kinds = get_args(info.type)
        if not any(get_origin(each) is Callable for each in kinds):
            return None
        return _one_word("FLOAT|NAME", number_or_name) if float in kinds else _one_word("NAME", name_or_none)

    return registry


def _one_word(metavar: str, read: Callable[[str], Any], kind: type = object) -> Any:
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: read(args[0]),
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


def number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        if ":" in text:
            return text
        raise ValueError(f"expected a number or a name such as my_nets.py:schedule, got {text!r}") from None


def name_or_none(text: str) -> str | None:
    return None if text == "None" else text


def whole(text: str) -> int:
    try:
        number = float(text.replace("_", ""))
        # `int` reads long numbers exactly; a float has 53 bits.
        return int(text) if "e" not in text.lower() and number.is_integer() else int(_integral(number))
    except (ValueError, OverflowError):
        raise ValueError(f"expected a whole number such as 500_000 or 5e5, got {text!r}") from None


def _integral(number: float) -> float:
    if not number.is_integer():
        raise ValueError
    return number
