"""What a replica holds: the leaves of each variable, by its name."""

from __future__ import annotations

from typing import Any

Variables = dict[str, tuple[Any, ...]]
