"""Reads TensorBoard's files, checksums included, without TensorBoard."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def events(folder: Path) -> list[Any]:
    """All events of a folder, in the order of their files."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[attr-defined]
    from tensorboardX.record_writer import masked_crc32c

    found = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data = file.read_bytes()
        while data:
            (size,), (check,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
            assert check == masked_crc32c(data[:8])
            body, data = data[12 : 12 + size], data[16 + size :]
            found.append(Event.FromString(body))
    return found


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Curve -> its points."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        for value in event.summary.value:
            curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves
