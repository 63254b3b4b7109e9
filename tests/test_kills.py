"""A few of the kills of `make kills`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_run_that_is_killed_again_and_again_comes_to_the_same_end(tmp_path: Path) -> None:
    surroundings = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}  # whose files may be left half written
    ended = subprocess.run(
        [sys.executable, "-m", "tests.kills", "5"],
        env=surroundings,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 kills; anakin: the same end, bit for bit" in ended.stdout
    assert ended.stdout.count(": well") == 5
