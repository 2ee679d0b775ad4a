"""The recorded cases that the engine has the actions and plugins for all hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.__main__ import cases, play

DIRECTORY = Path(__file__).parents[2].parent / "shared" / "conformance" / "cases"


@pytest.mark.skipif(not DIRECTORY.exists(), reason="the recorded cases are not here")
def test_every_recorded_case_holds() -> None:
    failed = []
    for case in cases(DIRECTORY):
        if case["kind"] == "admission":
            continue
        outcome, differences = play(case)
        if outcome == "failed":
            failed.append((case["id"], differences))
    assert failed == []
