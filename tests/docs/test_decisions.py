"""Decisions can be found: each record is in the index and has a subject, a date and a status, and
each citation leads to one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs/decisions"
RECORDS = sorted(DECISIONS.glob("[0-9]*.md"))
READ = {".py", ".md", ".toml", ".yaml", ".yml", ".c", ".sh", ".txt", ""}
HEADER = re.compile(
    r"# (?P<number>\d{4}) (?P<subject>\S.+)\n\n"
    r"Date: \d{4}-\d\d-\d\d\\\n"
    r"Status: (accepted|accepted, chang(es|ed by) \[\d{4}\]\(.+\))\n\n"
)
CITATION = re.compile(r"[Dd]ecisions?(?:/|\s+)(\d{4})\b")
LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")


def sources() -> Iterator[Path]:
    """The files of the repository that may cite a decision."""
    for top in (*ROOT.iterdir(), ROOT / ".ci", ROOT / ".github"):
        if top.is_file():
            yield top
        elif top.name in (
            "hekla",
            "docs",
            "tests",
            "benchmarks",
            "deploy",
            "examples",
            ".ci",
            ".github",
        ):
            yield from (path for path in top.rglob("*") if path.suffix in READ and path.is_file())


def test_there_are_at_most_ninety() -> None:
    assert 0 < len(RECORDS) <= 90


def test_each_has_a_subject_a_date_and_a_status() -> None:
    numbers = []
    for record in RECORDS:
        header = HEADER.match(record.read_text())
        assert header is not None, (
            f"{record.name}: a title with its number, then Date and Status, as docs/decisions/README.md has it"
        )
        assert record.name.startswith(header["number"] + "-"), record.name
        numbers.append(header["number"])
    assert len(set(numbers)) == len(numbers), "each number belongs to one record"


def test_each_is_in_the_index_once_under_its_title() -> None:
    index = (DECISIONS / "README.md").read_text()
    listed = re.findall(r"^- \[(\d{4})\]\((\S+)\) (.+)$", index, re.MULTILINE)
    titles = {
        record.name: record.read_text().partition("\n")[0].removeprefix("# ") for record in RECORDS
    }
    assert sorted(name for _, name, _ in listed) == sorted(titles)
    assert {name: f"{number} {title}" for number, name, title in listed} == titles


def test_each_citation_leads_to_a_record() -> None:
    known = {record.name[:4] for record in RECORDS}
    lost = [
        f"{path.relative_to(ROOT)}: {number}"
        for path in sources()
        for number in CITATION.findall(path.read_text(errors="ignore"))
        if number not in known
    ]
    assert not lost


def test_links_of_decisions_lead_to_files() -> None:
    pages = [*RECORDS, DECISIONS / "README.md", ROOT / "docs/performance.md"]
    lost = [
        f"{page.name}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text())
        if not (page.parent / link).exists()
    ]
    assert not lost


def test_files_that_records_name_are_there() -> None:
    pages = [*RECORDS, ROOT / "docs/performance.md"]
    pattern = r"`((?:hekla|tests|deploy|docs|benchmarks)/[\w./-]+)`"
    named = [(page.name, path) for page in pages for path in re.findall(pattern, page.read_text())]
    assert not [f"{page}: {path}" for page, path in named if not (ROOT / path).exists()]
