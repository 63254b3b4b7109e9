"""What code a host environment is made of, as a hash: what was measured of it holds for this code and no other."""

from __future__ import annotations

import functools
import hashlib
import marshal
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any

import gymnasium


def code_of(env: Any) -> str:
    """Of an environment with its wrappers: the files that their classes are written in, and for those that are in no
    file, as in a notebook, their methods. What these call elsewhere is not looked at, but for the version of the
    libraries that the classes are from."""
    sha = hashlib.sha256()
    for kind in dict.fromkeys(base for each in _layers(env) for base in type(each).__mro__):
        if kind.__module__ not in ("builtins", "typing"):
            version = _version(kind.__module__.partition(".")[0])
            sha.update(f"{kind.__module__}.{kind.__qualname__} {version}".encode())
            sha.update(_written(kind))
    return sha.hexdigest()[:32]


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError):  # it is from no library; a name may be empty
        return ""


def _layers(env: Any) -> Iterator[Any]:
    yield env
    while isinstance(env, gymnasium.Wrapper | gymnasium.vector.VectorWrapper):
        env = env.env
        yield env


def _written(kind: type) -> bytes:
    """A class, as it was written or as it was compiled."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    try:
        if file is not None:
            return Path(file).read_bytes()
    except OSError:
        pass
    codes = (getattr(method, "__code__", None) for method in vars(kind).values())
    return b"".join(marshal.dumps(code.replace(co_filename="")) for code in codes if isinstance(code, CodeType))
