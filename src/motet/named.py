"""Anybody's own code by name: `package.module:Name`, or `folder/file.py:Name`. The current folder is searched too."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from motet.errors import BadOption, UnknownName, described

_spelled: dict[tuple[str, str], str] = {}
"""(module, name) -> how to ask for it from anywhere, where its module's name does not suffice."""


def is_named(name: str) -> bool:
    """Whether a name says where to look for it."""
    return ":" in name


def module_of(name: str) -> ModuleType:
    """The module that a name says. Importing it runs its code."""
    place, _, _ = name.rpartition(":")
    if place.endswith(".py"):
        return _import_file(Path(place), name)
    _search(os.getcwd())
    return _import(place, name)


def find(name: str) -> Any:
    """What the name stands for."""
    module, attribute = module_of(name), name.rpartition(":")[2]
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [each for each in vars(module) if not each.startswith("_")]
            raise UnknownName(f"name in {name.rpartition(':')[0]}", attribute, public)
        found = getattr(found, part)
    return found


def everywhere(name: str) -> str:
    """The same name as it is understood in every folder."""
    place, colon, attribute = name.rpartition(":")
    return f"{Path(place).absolute()}{colon}{attribute}" if place.endswith(".py") else name


def spell(thing: Any) -> str:
    """A name under which a class or function is found again."""
    where = thing.__module__, thing.__qualname__
    return _spelled.get(where, ":".join(where))


PUBLIC = ("flax.linen", "jax.nn")
"""Modules that offer what lies elsewhere, in places that change from version to version."""


def name_of(thing: Any) -> str | None:
    """A name under which a class or function is found again; None if there is none, as for lambdas."""
    name, module, path = (getattr(thing, key, None) for key in ("__name__", "__module__", "__qualname__"))
    for place in PUBLIC:
        if isinstance(name, str) and getattr(sys.modules.get(place), name, None) is thing:
            return f"{place}:{name}"
    if not isinstance(module, str) or not isinstance(path, str):
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):  # nothing has a part "<locals>"
        found = getattr(found, part, None)
    return spell(thing) if found is thing else None


def _import_file(file: Path, name: str) -> ModuleType:
    """A file as a module of its own name: worker processes, which are told where modules are found, find it too."""
    file = file.absolute()
    if not file.is_file():
        raise BadOption(f"There is no file {file} for {name!r}.")
    known = sys.modules.get(file.stem)
    if known is not None and Path(known.__file__ or "").absolute() != file:
        raise BadOption(f"{file} cannot be imported: there is a module {file.stem!r} already. Rename the file.")
    _search(str(file.parent))
    module = _import(file.stem, name)
    if Path(module.__file__ or "").absolute() != file:
        raise BadOption(f"{file} cannot be imported: {module.__file__} has the same name. Rename the file.")
    attribute = name.rpartition(":")[2]
    _spelled[(file.stem, attribute)] = f"{file}:{attribute}"
    return module


def _search(folder: str) -> None:
    """Last: what is there must not stand in for a module of the same name."""
    if folder not in sys.path and not ("" in sys.path and folder == os.getcwd()):
        sys.path.append(folder)


def _import(module: str, name: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise BadOption(
                f"There is no module {module!r} for {name!r}: neither installed nor in {os.getcwd()}. "
                "A name is package.module:Name or folder/file.py:Name."
            ) from None
        raise BadOption(f"{module!r} cannot be imported: {error}.") from error
    except (KeyboardInterrupt, BadOption):
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise BadOption(f"{module!r} cannot be imported: it raised {described(error)}{at}.") from error
