"""The recorded cases beside the repository, for tests that read rows of their tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parents[1].parent / "shared" / "conformance" / "cases"

where_recorded = pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")
"""For a test, or a module's `pytestmark`.  Where the cases are, a table that is missing is a
failure."""


def rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table, named by its path below the cases, such as
    `scheduler/api/TestLessEqual`."""
    found: list[dict[str, Any]] = json.loads((CASES / f"{table}.json").read_text())
    return found
