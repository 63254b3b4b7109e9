"""The peers' virtual environment: made when it is first needed, remade when its pins change."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINS = Path(__file__).with_name("peers.txt")
HOME = ROOT / ".venv-peers"
STAMP = HOME / "installed"


def python() -> Path:
    """The interpreter that the peers run under."""
    if not STAMP.is_file() or STAMP.read_text() != PINS.read_text():
        print(f"installing the peers of {PINS.relative_to(ROOT)} into {HOME.name}", file=sys.stderr, flush=True)
        venv.create(HOME, with_pip=True, clear=True)
        install = ("-m", "pip", "install", "-qq", "--disable-pip-version-check", "--requirement", str(PINS))
        subprocess.run([HOME / "bin" / "python", *install], check=True)
        STAMP.write_text(PINS.read_text())
    return HOME / "bin" / "python"
