"""Whose run is it? To use a run of somebody's own code, that code must be imported, which runs it.

A run's folder says which modules to import. Folders come from anywhere, so this user's own are signed with a key that
only this user has; of others the reader is asked first.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from motet.errors import BadOption

LIBRARIES = ("flax.linen", "jax.nn")
OURS = "motet.algorithms."


def imports(names: Iterable[str]) -> list[str]:
    """The modules and files whose code would run to find these names. What motet itself imports is nobody else's."""
    places = (name.rpartition(":")[::2] for name in names if ":" in name)
    return list(dict.fromkeys(place for place, name in places if not _is_known(place, name)))


def _is_known(place: str, name: str) -> bool:
    return (place in LIBRARIES or place.startswith(OURS)) and name.isidentifier()


def demand(doing: str, names: Iterable[str], signed: Mapping[str, Any], signature: object, trusted: bool) -> None:
    """Refuse to import what `names` ask for unless this user signed it, or trusts whoever wrote it."""
    modules = imports(names)
    if modules and not trusted and not is_own(signed, signature):
        raise BadOption(
            f"To {doing}, {' and '.join(modules)} would be imported, which runs their code, and this folder was not "
            "written by you. Look at what they are; if you trust them, say --trust, or in Python trust=True."
        )


def sign(told: Mapping[str, Any]) -> str | None:
    """A signature that no other user can give, or None where no key can be kept."""
    key = _key(make=True)
    return _signature(key, told) if key else None


def is_own(told: Mapping[str, Any], signature: object) -> bool:
    """Whether this user signed it."""
    key = _key(make=False)
    return bool(key) and isinstance(signature, str) and hmac.compare_digest(_signature(key, told), signature)


def _signature(key: bytes, told: Mapping[str, Any]) -> str:
    return hmac.new(key, json.dumps(told, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes:
    """This user's key; nothing where there is none."""
    try:
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        file = Path(base) / "motet" / "key"
        if make and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"key.{os.getpid()}")
            with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as new:
                new.write(secrets.token_bytes(32))
            os.link(part, file)  # whoever comes first; the file is there with all its bytes
            part.unlink()
        return file.read_bytes()
    except FileExistsError:
        return _key(make=False)
    except (OSError, RuntimeError):
        return b""
