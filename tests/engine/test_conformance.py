"""The recorded cases that the engine has the actions and plugins for all hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.__main__ import cases, play

OWN = Path(__file__).parents[1] / "conformance" / "cases"
"""Cases of our own, in the same form, each with the section of the reference that its outcome was
worked out from by hand."""
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


def test_every_case_of_our_own_holds() -> None:
    played = [(case["id"], play(case)) for case in cases(OWN)]
    assert len(played) > 180
    assert [
        (name, differences) for name, (outcome, differences) in played if outcome != "passed"
    ] == []
