"""Whose run is it? To evaluate a run of somebody's own code, that code must be imported, which runs it.

A run's folder says which modules to import. Folders come from anywhere, so this user's own are signed with a key that
only this user has; of others the reader is asked first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from motet.runs.folder import Names


def imports(names: Names) -> list[str]:
    """The modules and files whose code would run."""
    return [name.rpartition(":")[0] for name in (names.algorithm, names.environment) if ":" in name]


def sign(names: Names) -> str | None:
    """A signature that no other user can give, or None where no key can be kept."""
    key = _key(make=True)
    return _signature(key, names) if key else None


def is_own(names: Names, signature: object) -> bool:
    """Whether this user signed them."""
    key = _key(make=False)
    return bool(key) and isinstance(signature, str) and hmac.compare_digest(_signature(key, names), signature)


def _signature(key: bytes, names: Names) -> str:
    told = json.dumps(dataclasses.asdict(names), sort_keys=True)
    return hmac.new(key, told.encode(), hashlib.sha256).hexdigest()


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
