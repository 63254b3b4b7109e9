"""Checkpoints in a run's folder: each a folder of its own, which is there whole or not at all.

`state.safetensors` has the arrays, `checkpoint.json` says what they are, with the hash of the one and of itself. Both
are open data; nothing in them is code. A checkpoint is written beside its place, to the disk, and then renamed: a
process may be killed at any moment, and the disk may be full.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motet.errors import BadOption
from motet.runs import arrays as files
from motet.runs.reading import Damaged, read_json

FORMAT = 1
"""The version of all this. A file of a later one is refused."""
FOLDER, STATE, TOLD = "checkpoints", "state.safetensors", "checkpoint.json"
NAME = re.compile(r"\d{10,}")


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    path: Path
    told: Mapping[str, Any]
    arrays: dict[str, np.ndarray]


def save(run: Path, iteration: int, told: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write a checkpoint of a run -> its folder. An OSError leaves those that are there as they are."""
    base = run / FOLDER
    base.mkdir(exist_ok=True)
    place, making = base / f"{iteration:010}", base / f".new-{iteration:010}"
    shutil.rmtree(making, ignore_errors=True)
    try:
        making.mkdir()
        about = {**told, "format": FORMAT, "sha256": files.write(making / STATE, arrays)}
        with (making / TOLD).open("x") as out:
            json.dump({"told": about, "sha256": _hash(about)}, out, indent=1)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        _to_disk(making)
        _remove(place)  # of a run that was taken up before it
        making.rename(place)
        _to_disk(base)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return place


def prune(run: Path, keep: int, best: int | None = None) -> None:
    """Remove all but the last `keep` checkpoints, and the one of iteration `best`."""
    for path in all_of(run)[:-keep]:
        if int(path.name) != best:
            _remove(path)
    for path in (run / FOLDER).glob(".old-*"):
        shutil.rmtree(path, ignore_errors=True)


def forget_after(run: Path, iteration: int) -> None:
    """Remove what lies beyond the checkpoint that a run goes on from: it would not be that run's. So would halves of
    checkpoints that a run left when it was killed."""
    for path in all_of(run):
        if int(path.name) > iteration:
            _remove(path)
    for path in (*halves(run), *(run / FOLDER).glob(".old-*")):
        shutil.rmtree(path, ignore_errors=True)


def halves(run: Path) -> list[Path]:
    """What was being written when a run was killed."""
    return sorted((run / FOLDER).glob(".new-*"))


def all_of(run: Path) -> list[Path]:
    """The folders of a run's checkpoints, oldest first."""
    found = (run / FOLDER).iterdir() if (run / FOLDER).is_dir() else ()
    return sorted((path for path in found if NAME.fullmatch(path.name)), key=lambda path: int(path.name))


def read(path: Path) -> Checkpoint:
    """A checkpoint, if it is whole and as it was written."""
    told = about(path)
    try:
        return Checkpoint(path, told, files.read(path / STATE, str(told.get("sha256"))))
    except FileNotFoundError:
        raise Damaged(f"{path} is damaged: it lacks {STATE}.") from None


def about(path: Path) -> Mapping[str, Any]:
    """What a checkpoint says of itself."""
    try:
        whole = read_json(path / TOLD)
        if not isinstance(whole, dict) or not isinstance(whole.get("told"), dict):
            raise Damaged(f"{path / TOLD} is damaged: it should hold an object `told`.")
        told = whole["told"]
        version = told.get("format")
        if isinstance(version, int) and version > FORMAT:
            raise BadOption(
                f"{path} was written by a later version of motet (format {version}; this one knows {FORMAT}). "
                "Install that version to go on from it."
            )
        if whole.get("sha256") != _hash(told):
            raise Damaged(f"{path / TOLD} is damaged: it is not what was written.")
        if version != FORMAT:
            raise Damaged(f"{path / TOLD} is damaged: its format should be {FORMAT}, but is {version!r}.")
        return told
    except FileNotFoundError:
        raise Damaged(f"{path} is damaged: it lacks {TOLD}.") from None


def _hash(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _remove(path: Path) -> None:
    """Take a checkpoint away at once, then what it consists of: half of one must never be found."""
    gone = path.with_name(f".old-{path.name}")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _to_disk(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
