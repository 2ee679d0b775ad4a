"""What docs/judged-by-kubernetes.md shows is what the command takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.kubernetes.__main__ import parser

PAGE = Path(__file__).parents[2] / "docs" / "judged-by-kubernetes.md"
START = "    python -m tests.kubernetes "
SHOWN = [
    line.removeprefix(START) for line in PAGE.read_text().splitlines() if line.startswith(START)
]


def test_the_page_shows_every_command() -> None:
    assert {line.split()[0] for line in SHOWN} == {"build", "up", "e2e", "checklist", "differ"}


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_of_the_page_is_taken(line: str) -> None:
    assert callable(parser().parse_args(shlex.split(line)).command)
