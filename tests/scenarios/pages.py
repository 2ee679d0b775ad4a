"""Reading the scenarios' numbers from a page of the reference.

A page has one section whose heading speaks of acceptance scenarios, a conformance checklist,
condensed tests or end-to-end checks.  It ends at the next heading of its own or a higher level.  A
scenario is a line of it that begins with a number and a dot (`12. `), on the page of the
descheduler with a capital letter and a dot (`C. `).  Numbers do not start again in subsections;
code blocks are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

REFERENCE = Path(__file__).parents[2].parent / "shared" / "spec"

_HEADING = re.compile(r"(#+)\s+(.*)")
_SECTION = re.compile(
    r"acceptance scenarios|conformance checklist|tests condensed|end-to-end checks", re.IGNORECASE
)
_SCENARIO = re.compile(r" {0,3}(\d+|[A-Z])\. ")


def scenarios_of(text: str) -> list[str]:
    """The names (numbers or letters, as text) of a page's scenarios, in order."""
    names: list[str] = []
    section, in_code = 0, False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
        if in_code:
            continue
        heading = _HEADING.match(line)
        if heading:
            level = len(heading[1])
            if section and level <= section:
                section = 0
            if not section and _SECTION.search(heading[2]):
                section = level
            continue
        found = _SCENARIO.match(line) if section else None
        if found and found[1] not in names:
            names.append(found[1])
    return names


def read(directory: Path = REFERENCE) -> dict[str, list[str]]:
    """Page -> its scenarios.  A page without numbered scenarios has an empty list."""
    return {
        page.stem: scenarios_of(page.read_text(encoding="utf-8"))
        for page in sorted(directory.glob("*.md"))
    }
