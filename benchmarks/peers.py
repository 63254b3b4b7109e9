"""The peers' virtual environments: made when they are first needed, remade when their pins change."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(name: str = "peers") -> Path:
    """The interpreter that the peers of `name`.txt run under."""
    pins, home = Path(__file__).with_name(f"{name}.txt"), ROOT / f".venv-{name}"
    stamp = home / "installed"
    if not stamp.is_file() or stamp.read_text() != pins.read_text():
        print(f"installing the peers of {pins.relative_to(ROOT)} into {home.name}", file=sys.stderr, flush=True)
        venv.create(home, with_pip=True, clear=True)
        install = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--requirement", str(pins))
        subprocess.run([home / "bin" / "python", *install], check=True)
        stamp.write_text(pins.read_text())
    return home / "bin" / "python"
