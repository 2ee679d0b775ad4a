"""Every citation of the behaviour reference, in code and pages, leads to a numbered section or
item."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    path.stem: path.read_text()
    for path in (ROOT / "docs/behaviour").glob("*.md")
    if path.stem != "README"
}
ANCHORS = {page: set(re.findall(r'<a id="([\w.]+)"></a>', text)) for page, text in PAGES.items()}
ITEMS = {page: set(re.findall(r"^ *(\d+)\. ", text, re.MULTILINE)) for page, text in PAGES.items()}
NUMBERS = r"\d+(?:\.\d+)*"
CITATION = re.compile(rf"\b({'|'.join(PAGES)}) ({NUMBERS}(?:(?:,| to| and|;) {NUMBERS})*)")


def test_every_citation_leads_somewhere() -> None:
    count, lost = 0, []
    for folder in ("hekla", "tests", "benchmarks", "docs", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if (
                path.suffix not in (".py", ".md", ".c", ".yaml")
                or "docs/behaviour" in path.as_posix()
            ):
                continue
            for page, numbers in CITATION.findall(path.read_text(errors="ignore")):
                for number in re.findall(NUMBERS, numbers):
                    count += 1
                    if number not in ANCHORS[page] and number not in ITEMS[page]:
                        lost.append(f"{path.relative_to(ROOT)}: {page} {number}")
    assert not lost
    assert count > 400, "the expression finds them no more"


def test_the_index_lists_every_page() -> None:
    listed = re.findall(
        r"^\| \[([\w-]+)\]\(\1\.md\)", (ROOT / "docs/behaviour/README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(PAGES)


def test_links_between_the_pages_lead_to_sections() -> None:
    index = (ROOT / "docs/behaviour/README.md").read_text()
    for page, number in re.findall(r"\(([\w-]+)\.md#([\w.]+)\)", index):
        assert number in ANCHORS[page]
