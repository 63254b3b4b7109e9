"""Profiles that were measured before, in the user's cache folder; of other code, shapes or hardware none is used."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from motet.engine.raised import Raised
from motet.flow.fingerprint import fingerprint
from motet.flow.graph import Graph
from motet.plan.cost import Profile
from motet.plan.machine import Machine


def key(graph: Graph, machine: Machine, about: Mapping[str, object]) -> str:
    """What a profile holds for: this loop with these shapes, this machine, these versions and options of XLA, and
    motet's own code, which runs it."""
    versions = [source(PACKAGE), *(f"{name} {metadata.version(name)}" for name in ("jax", "jaxlib"))]
    parts = [
        fingerprint(graph),
        machine.to_text(),
        *versions,
        os.environ.get("XLA_FLAGS", ""),
        json.dumps(dict(about), default=repr),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@functools.cache
def source(folder: Path) -> str:
    """A hash of all code below a folder. It is read once, since it does not change while it runs."""
    sha = hashlib.sha256()
    for file in sorted(each for each in folder.rglob("*") if each.suffix in CODE):
        sha.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return sha.hexdigest()


PACKAGE = Path(__file__).parents[1]
CODE = (".py", ".cl")


def load(name: str) -> Profile | None:
    """The profile of that key; None if there is none, or it cannot be read."""
    file = _file(name)
    try:
        found = Profile.from_json(file.read_text()) if file is not None else None
        if found is not None:
            Raised.of(found)  # or it is damaged
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save(name: str, profile: Profile) -> None:
    """Keep a profile. Whoever has no folder for it measures again."""
    file = _file(name)
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(profile.to_json())
        partial.replace(file)
    except OSError:
        return


def forget(name: str) -> None:
    """Measure again next time."""
    file = _file(name)
    if file is not None:
        file.unlink(missing_ok=True)


def folder() -> Path | None:
    """Where profiles are kept; None for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "motet" / "profiles"
    except RuntimeError:
        return None


def _file(name: str) -> Path | None:
    place = folder()
    return place / f"{name}.json" if place is not None else None
