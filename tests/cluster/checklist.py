"""The numbered items of the conformance checklist, and how the run of their tests is told.

A test names its item: `test_item_019_...` covers item 19; an item passes when each of its tests
that ran has passed and at least one ran.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

ITEMS = 150
NAME = re.compile(r"test_items?_(\d{3})(?:_(\d{3}))?_")


def items_of(name: str) -> list[int]:
    """The items that a test of this name covers: `test_item_007_x` covers 7, `test_items_043_049_x`
    covers 43 to 49."""
    found = NAME.search(name)
    if found is None:
        return []
    first = int(found.group(1))
    return list(range(first, int(found.group(2) or first) + 1))


class Tally:
    """How each item fared; fed with pytest's reports."""

    def __init__(self) -> None:
        self.passed: dict[int, int] = defaultdict(int)
        self.failed: dict[int, str] = {}
        self.skipped: dict[int, str] = {}

    def note(self, report: Any) -> None:
        for item in items_of(report.nodeid.rpartition("::")[2]):
            if report.failed:
                self.failed.setdefault(item, _one_line(report))
            elif report.skipped:
                reason = (
                    report.longrepr[2]
                    if isinstance(report.longrepr, tuple)
                    else str(report.longrepr)
                )
                self.skipped.setdefault(item, reason.removeprefix("Skipped: "))
            elif report.when == "call":
                self.passed[item] += 1

    def lines(self) -> list[str]:
        """The report: failures and skips with their reasons, then the count."""
        passed = [item for item in self.passed if item not in self.failed]
        skipped = {
            item: reason
            for item, reason in self.skipped.items()
            if item not in self.failed and item not in self.passed
        }
        rest = [
            item
            for item in range(1, ITEMS + 1)
            if item not in self.passed and item not in self.failed and item not in skipped
        ]
        lines = [f"item {item:3}: failed: {reason}" for item, reason in sorted(self.failed.items())]
        lines += [
            f"item {item:3}: passes in part: {self.skipped[item]}"
            for item in sorted(passed)
            if item in self.skipped
        ]
        lines += [f"item {item:3}: skipped: {reason}" for item, reason in sorted(skipped.items())]
        if 0 < len(rest) <= ITEMS // 2:
            lines.append(f"not run: {', '.join(map(str, rest))}")
        return [
            *lines,
            f"{len(passed)} of {ITEMS} items pass, {len(self.failed)} fail, {len(skipped)} skipped, {len(rest)} not run",
        ]


def _one_line(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return " ".join(text.split())[:200]
