"""The documents as a site: every page is in its navigation, and links lead there to what they lead to here.

mkdocs itself is not needed for this. `make docs` builds the site, and is as strict.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"documents_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site = load(ROOT / "docs" / "site.py")
every_page = pytest.mark.parametrize("page", site.pages())


def places(nav: Any) -> Iterator[str]:
    """The pages of a navigation, however deep."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from places(each)


def test_every_page_is_in_the_navigation_once() -> None:
    written = [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")]
    assert set(written) <= set(site.pages())
    assert sorted(places(CONFIG["nav"])) == sorted(site.pages().values())


def test_readers_download_nothing() -> None:
    assert CONFIG["theme"]["font"] is False
    assert CONFIG["plugins"] == ["search"]
    assert not any("://" in each for each in CONFIG.get("extra_css", []) + CONFIG.get("extra_javascript", []))


def leads(text: str) -> list[str]:
    """Where the links of a page lead, but for those to other sites."""
    parts = site.FENCED.split(text)[::2]
    return [link["target"] for part in parts for link in site.LINK.finditer(part) if ":" not in link["target"]]


@every_page
def test_links_lead_to_pages_and_pictures_of_the_site(page: str) -> None:
    there = {*site.pages().values(), *map(site.place, site.sources())}
    where = site.place(page)
    for link in leads(site.translate((ROOT / page).read_text(), page)):
        target = link.partition("#")[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(where), target)) if target else where
        assert path in there or (ROOT / "docs" / path).is_file(), f"{page} links to {link}"


def test_a_page_has_other_links_in_the_site_and_the_same_text() -> None:
    text = "[a](docs/terms.md#the-loop) [b](src/motet/errors.py) [c](https://x.y)\n```python\n[d](e.md)\n```\n"
    translated = site.translate(text, "README.md")
    assert translated == text.replace("docs/terms.md", "terms.md").replace(
        "src/motet/errors.py", "source/src/motet/errors.py.md"
    )
    assert site.translate("[a](../README.md)", "docs/terms.md") == "[a](index.md)"


@pytest.mark.parametrize("path", site.sources())
def test_what_pages_link_to_is_shown(path: str) -> None:
    shown = site.show(path)
    file = ROOT / path
    assert shown.count(".py`](") if file.is_dir() else file.read_text() in shown, path


@every_page
def test_lists_and_tables_begin_after_an_empty_line(page: str) -> None:
    """Elsewhere the site would show them as text."""
    for part in site.FENCED.split((ROOT / page).read_text())[::2]:
        for before, line in zip(part.splitlines(), part.splitlines()[1:], strict=False):
            begins = re.match(r"([-*] |\d+\. |\|)", line) and not re.match(r"([-*] |\d+\. |\||  )", before)
            assert not begins or not before.strip(), f"{page}: an empty line is missing above {line!r}"
