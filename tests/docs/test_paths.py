"""The pages for those who change Hekla name files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/glossary.md",
    "docs/architecture.md",
)
NAMED = re.compile(r"`((?:hekla|tests|docs|deploy|benchmarks)/[\w./-]+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = [ROOT / name for name in NAMED.findall(text)]
    linked = [(ROOT / page).parent / target for target in LINK.findall(text)]
    assert not [str(path) for path in (*named, *linked) if not path.exists()]
