"""The documents as a site: what it holds besides the pages of this folder, and where their links lead in it.

Pages are written to be read in the repository, where links lead to its files. mkdocs knows this folder alone; so the
pages that lie elsewhere are added, and files that a page links to, such as a test, become pages that show them.
`mkdocs.yml` names this file as a hook. Nothing here is downloaded.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "examples/README.md": "examples.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages outside of this folder -> their places in the site."""

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<before>\]\(|(?:src|href)=\")(?P<target>[^)\s\"]+)(?P<after>\)|\")")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml", ".md": "markdown"}


def pages() -> dict[str, str]:
    """Every page that was written as one, by its path in the repository -> its place in the site."""
    here = {str(page.relative_to(ROOT)): page.name for page in sorted((ROOT / "docs").glob("*.md"))}
    return {**ELSEWHERE, **here}


def place(path: str) -> str:
    """Where a file or folder of the repository is in the site."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path.rstrip('/')}.md"


def translate(text: str, path: str) -> str:
    """The text of the page at `path` in the repository, with links that lead to the same things in the site."""

    def lead(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        there = place(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
        relative = posixpath.relpath(there, posixpath.dirname(place(path)) or ".")
        return f"{link['before']}{relative}{hash_}{anchor}{link['after']}"

    return _outside_of_code(text, lambda part: LINK.sub(lead, part))


def sources() -> list[str]:
    """The files and folders of the repository that pages link to and that are no pages, with what folders hold."""
    found = {path for page in pages() for path in linked(page) if place(path).startswith("source/")}
    inside = {str(each.relative_to(ROOT)) for path in found for each in (ROOT / path).glob("*.py")}
    return sorted(found | inside)


def linked(page: str) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    for part in FENCED.split((ROOT / page).read_text())[::2]:
        for link in LINK.finditer(part):
            target = link["target"].partition("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                yield posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def show(path: str) -> str:
    """A page that shows a file, or lists what is in a folder. Readers who search look for what is explained."""
    file, head = ROOT / path, f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    if file.is_dir():
        names = sorted(each.name for each in file.glob("*.py"))
        return head + "".join(f"- [`{name}`]({file.name}/{name}.md)\n" for name in names)
    return f"{head}``````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}``````\n"


def slug(heading: str, separator: str) -> str:
    """What a heading is called in links: as in the repository's web pages, so that links serve in both."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    parts = FENCED.split(text)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))


# What mkdocs calls.


def on_config(config: Any) -> Any:
    config.mdx_configs["toc"]["slugify"] = slug
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, where in ELSEWHERE.items():
        files.append(File.generated(config, where, content=(ROOT / path).read_text()))
    for path in sources():
        files.append(File.generated(config, place(path), content=show(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    written = {where: path for path, where in pages().items()}
    path = written.get(page.file.src_uri)
    return markdown if path is None else translate(markdown, path)
