"""What the documents say is so: their Python and their commands run, what they show is printed, their links lead on."""

from __future__ import annotations

import doctest
import io
import re
import shlex
import sys
import types
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from motet import cli

ROOT = Path(__file__).parents[1]
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")
PAGES = [*(ROOT / name for name in OTHERS), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Block:
    """A fenced block and the line of its first line of text."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1) for found in BLOCK.finditer(text)]


def assert_shown(page: Path, line: int, shown: str, printed: str) -> None:
    """Compare as doctest does: `...` stands for anything, and spaces are all alike."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not doctest.OutputChecker().check_output(shown, printed, flags):
        pytest.fail(f"{page.name}:{line} shows\n{shown}\nbut this is printed:\n{printed}", pytrace=False)


def run_python(page: Path, block: Block, module: types.ModuleType) -> str:
    """Run a block in the page's namespace -> what it prints. A traceback names the page and its line."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, module.__dict__)
    return printed.getvalue()


def commands(block: Block) -> Iterator[tuple[int, str, str]]:
    """(line, command, what is shown below it) for each prompt."""
    lines = block.text.splitlines()
    prompts = [place for place, line in enumerate(lines) if line.startswith(PROMPT)]
    for place, after in pairwise([*prompts, len(lines)]):
        yield block.line + place, lines[place].removeprefix(PROMPT), "\n".join(lines[place + 1 : after])


def run_command(page: Path, line: int, command: str, shown: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in arguments if "=" not in word} <= targets, f"{page.name}:{line}"
        return
    assert program == "motet", f"{page.name}:{line}: {program} is not run here; show only motet and make"
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as complaints:
        code = cli.main(arguments)
    assert code == 0, f"{page.name}:{line}: {command}\n{printed.getvalue()}{complaints.getvalue()}"
    if shown.strip():
        assert_shown(page, line, shown, printed.getvalue())


@pytest.mark.apart
@every_page
def test_page_runs_as_it_reads(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run in order; those in Python share a namespace, and `text` right after one is what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jax.device_count", lambda: 1)  # programs for one device are compiled sooner
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))  # where runs of one's own code are signed
    module = types.ModuleType("__main__")  # as in a script: workers get what is defined here by value
    monkeypatch.setitem(sys.modules, "__main__", module)
    printed = None
    for block in blocks(page):
        if block.language == "python":
            printed = run_python(page, block, module)
            continue
        if block.language == "console":
            for line, command, shown in commands(block):
                run_command(page, line, command, shown)
        elif block.language == "text" and printed is not None:
            assert_shown(page, block.line, block.text, printed)
        printed = None


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    links = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'(?:src|href)="([^"]+)"', text)]
    for link in links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"
