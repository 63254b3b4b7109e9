"""With what a run was made: the command, the versions, the machine, and the state of the code around it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("motet", "jax", "jaxlib", "optax", "flax", "numpy", "gymnasium", "safetensors")
PATIENCE = 3.0
"""Seconds that git may take to answer."""


def command(arguments: Sequence[str] | None = None) -> str:
    """The command of this process, or the one that was given, as a shell reads it."""
    return shlex.join(sys.orig_argv if arguments is None else arguments) + "\n"


def system() -> dict[str, Any]:
    """What `system.json` holds."""
    import jax

    devices = jax.devices()
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory(),
        "devices": [{"platform": each.platform, "kind": each.device_kind, "id": each.id} for each in devices],
        "double_precision": jax.numpy.result_type(float) == "float64",
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "folder": os.getcwd(),
        "git": git(Path.cwd()),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def git(folder: Path) -> dict[str, Any] | None:
    """The commit that a folder is at, and how many files differ from it; None where there is no repository."""

    def ask(*words: str) -> str:
        asked = ["git", "-C", str(folder), *words]
        return subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    try:
        commit = ask("rev-parse", "HEAD").strip()
        changed = ask("status", "--porcelain", "--untracked-files=no").splitlines()
        return {"commit": commit, "branch": ask("rev-parse", "--abbrev-ref", "HEAD").strip(), "changed": len(changed)}
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
