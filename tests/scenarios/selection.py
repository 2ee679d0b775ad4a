"""The pytest plugin that keeps the tests which carry scenarios, and reports how each ended.

A report knows its test by its `user_properties`; that is how the scenarios of a test reach the file
of results.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

RESULTS = "HEKLA_SCENARIO_RESULTS"
PAGES_VARIABLE = "HEKLA_SCENARIO_PAGES"
FULL = "HEKLA_SCENARIO_FULL"
"""Set: the slow lane is run, too; otherwise its tests are only counted as there."""
PAGES = os.environ.get(PAGES_VARIABLE, "").split()
"""Only tests of these pages; none: all."""
SLOWER = ("cluster", "apiserver", "server", "api", "client")
"""Parts of the names of fixtures that start processes, the slowest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kept = []
    for item in items:
        marks = [[str(part) for part in mark.args[:2]] for mark in item.iter_markers("scenario")]
        if marks and (not PAGES or any(page in PAGES for page, _ in marks)):
            item.user_properties.append(("scenarios", marks))
            kept.append(item)
    _write({"collected": [dict(item.user_properties)["scenarios"] for item in kept]})
    if not os.environ.get(FULL):
        kept = [item for item in kept if item.get_closest_marker("slow") is None]
    # Tests that start servers come last, so that little is lost when the time is up.
    items[:] = sorted(kept, key=_slowness)


def _slowness(item: pytest.Item) -> int:
    names = " ".join(getattr(item, "fixturenames", ()))
    return max(
        (len(SLOWER) - place for place, part in enumerate(SLOWER) if part in names), default=0
    )


def pytest_runtest_logreport(report: Any) -> None:
    if report.when != "call" and report.outcome == "passed":
        return
    scenarios = dict(report.user_properties).get("scenarios")
    if scenarios:
        _write({"test": report.nodeid, "outcome": report.outcome, "scenarios": scenarios})


def _write(line: dict[str, Any]) -> None:
    with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
