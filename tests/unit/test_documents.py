"""The documents: links that lead somewhere, a README of three minutes, lines of one width, a cluster on one screen."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
GRID_FILES = ROOT / "scripts/experiments/README.md"
MOST_LINES_OF_README = 150
LINES_OF_A_SCREEN = 45
WIDTH = 120

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def text(page: Path) -> str:
    """The page without blocks of code; its lines keep their numbers."""
    return FENCED.sub(lambda block: "\n" * block[0].count("\n"), page.read_text())


def anchors(page: Path) -> set[str]:
    """Those that the headings get where the page is shown: small letters, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines that are not code, of a table, or a picture. Four spaces make code, or a list in a list."""
    for number, line in enumerate(text(page).splitlines(), 1):
        if not line.startswith(("    ", "|", "![")):
            yield number, line


@pytest.mark.parametrize("page", [*PAGES, GRID_FILES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page: Path) -> None:
    for target in LINK.findall(text(page)):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(ROOT), target
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_prose_is_wider_than_the_others(page: Path) -> None:
    assert [(number, line) for number, line in prose(page) if len(line) > WIDTH] == []


def test_the_readme_takes_three_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_README


def test_every_page_is_named_in_the_readme() -> None:
    named = {(ROOT / target.partition("#")[0]).resolve() for target in LINK.findall(text(ROOT / "README.md"))}
    assert set((ROOT / "docs").glob("*.md")) <= named


def test_compose_yaml_opens_with_the_cluster() -> None:
    """Network, services and volume on the first screen; what the containers share comes after."""
    cluster, shared = (ROOT / "compose.yaml").read_text().split("\n---\n")
    assert re.findall(r"^[\w-]+", cluster, re.MULTILINE) == ["include", "services", "volumes"]
    assert len(cluster.splitlines()) <= LINES_OF_A_SCREEN
    assert re.findall(r"^[\w-]+", shared, re.MULTILINE) == ["x-settings", "x-image", "x-node", "x-rank", "services"]
