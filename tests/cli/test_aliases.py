"""Files with aliases of aliases: a few lines that stand for megabytes are refused before anything
is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.cli.vcctl.command import CommandError
from hekla.cli.vcctl.jobs import job_from_file
from tests.cli.answers import Answers, command

REFUSED = "its aliases stand for more than any object may hold"
LEVELS = "".join(
    f"  {one}: &{one} [{', '.join(['*' + below] * 10)}]\n" for below, one in zip("abcdef", "bcdefg")
)
POWERS = f"metadata:\n  name: grown\nspec:\n  a: &a [x, x, x, x, x, x, x, x, x, x]\n{LEVELS}"


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    file = tmp_path / "grown.yaml"
    file.write_text(POWERS)
    return file


def test_of_a_job(grown: Path) -> None:
    with pytest.raises(CommandError, match=REFUSED):
        job_from_file(str(grown))


def test_of_a_flow(running: Answers, grown: Path) -> None:
    result = command("vcctl", "jobflow", "create", "-f", str(grown), "--master", running.url)
    assert result.returncode != 0 and REFUSED in result.stdout
