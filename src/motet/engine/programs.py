"""What the replicas of one fragment compile alike: traced once, and compiled once if their devices allow it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Entry:
    """A program that one thread makes while the others who want it wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: Any = None


@dataclass
class ProgramCache:
    """Programs by name. Only what is wanted under the same name waits for each other."""

    places: int = 1
    """How many places will ask for them."""
    entries: dict[Hashable, Entry] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    tracing: threading.Lock = field(default_factory=threading.Lock)
    """Held while a function is traced: whoever wants the same one next finds it in JAX's own cache."""

    def get(self, name: Hashable, make: Callable[[], Any]) -> Any:
        with self.lock:
            entry = self.entries.setdefault(name, Entry())
        with entry.lock:
            if entry.made is None:
                entry.made = make()
            return entry.made
