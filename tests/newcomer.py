"""`python -m tests.newcomer [PAGE ...]`: what a newcomer does who has installed motet and reads its documents.

The wheel is built and installed, without extras, into an environment of its own; in an empty folder each page's Python
and commands are run in order. A page may ask for an extra that is missing: then what is printed must say how to install
it. Anything else that fails is an error, and the README must need nothing at all. Ends with 1 if something is wrong.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.test_docs import PAGES, ROOT, blocks, commands

FREE_OF_EXTRAS = (ROOT / "README.md",)
RUNNER = """
import json, subprocess, sys, types
module = types.ModuleType("__main__")
sys.modules["__main__"] = module
for kind, line, text in json.load(sys.stdin):
    print(f"@ {line}", flush=True)
    if kind == "python":
        exec(compile("\\n" * (line - 1) + text, sys.argv[1], "exec"), module.__dict__)
    else:
        done = subprocess.run(text, timeout=600)
        if done.returncode:
            sys.exit(f"{' '.join(text)} ended with {done.returncode}")
"""


def installed(folder: Path) -> Path:
    """A new environment with the built wheel in it -> its folder of programs."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder / "dist", ROOT], check=True)
    (wheel,) = (folder / "dist").glob("motet-*.whl")
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    install = ["-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "--constraint"]
    subprocess.run([programs / "python", *install, ROOT / "constraints.txt", wheel], check=True)
    return programs


def steps(page: Path, programs: Path) -> Iterator[tuple[str, int, object]]:
    """What a page shows, in order: Python, and commands of motet's."""
    for block in blocks(page):
        if block.language == "python":
            yield "python", block.line, block.text
        if block.language == "console":
            for line, command, _ in commands(block):
                program, *arguments = shlex.split(command)
                if program == "motet":
                    yield "command", line, [str(programs / "motet"), *arguments]


def follow(page: Path, programs: Path, folder: Path) -> tuple[bool, str]:
    """Do what a page says -> whether that is fine, and what happened."""
    place = folder / "-".join(page.relative_to(ROOT).with_suffix("").parts)
    place.mkdir()
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    work = json.dumps(list(steps(page, programs)))
    command = [programs / "python", "-c", RUNNER, str(page)]
    done = subprocess.run(command, cwd=place, input=work, capture_output=True, text=True, env=clean)
    if not done.returncode:
        return True, "as it reads"
    line = re.findall(r"^@ (\d+)$", done.stdout, re.MULTILINE)[-1]
    missing = re.search(r"pip install '(motet\[\w+\])'", done.stdout + done.stderr)
    if missing and page not in FREE_OF_EXTRAS:
        return True, f"up to line {line}, which says to install {missing[1]}"
    return False, f"FAILS at line {line}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def main(names: list[str]) -> int:
    pages = [page for page in PAGES if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md")]
    chosen = [page for page in pages if not names or page.name in names]
    fine = True
    with tempfile.TemporaryDirectory(prefix="motet-newcomer-") as place:
        programs = installed(Path(place))
        for page in chosen:
            ok, what = follow(page, programs, Path(place))
            print(f"{page.relative_to(ROOT)}: {what}", flush=True)
            fine = fine and ok
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
