"""`python -m tests.conformance DIR [--json]`: runs the scheduling cases found under DIR.

Prints each failure with what was expected and what came, how many cases were left out because an
action or plugin does not exist yet, and as the last line `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.conformance.calls import run_calls
from tests.conformance.case import Case, Difference, LeftOut
from tests.conformance.sessions import run_multi_session, run_session


def run_admission(case: Case) -> list[Difference]:
    """The rules have a player of their own."""
    from tests.admission.cases import run

    return [Difference("admission", "as recorded", str(one)) for one in run(case)]


RUNNERS: dict[str, Callable[[Case], list[Difference]]] = {
    "session": run_session,
    "multi-session": run_multi_session,
    "score": run_calls,
    "call": run_calls,
    "admission": run_admission,
}


def cases(directory: Path) -> Iterator[Case]:
    """All cases under a directory that a runner runs."""
    for path in sorted(directory.rglob("*.json")):
        listed = json.loads(path.read_text())
        if not isinstance(listed, list):
            continue
        for case in listed:
            if isinstance(case, dict) and case.get("kind") in RUNNERS:
                yield case


def play(case: Case) -> tuple[str, list[Difference]]:
    """The outcome of one case: passed, failed or left out."""
    try:
        differences = RUNNERS[case["kind"]](case)
    except LeftOut as missing:
        return f"left out: {missing}", []
    except Exception:  # a case that breaks off is a finding, and the others are still played
        last = traceback.format_exc().strip().splitlines()
        return "failed", [
            Difference("run", "no error", " | ".join(line.strip() for line in last[-5:]))
        ]
    return ("failed" if differences else "passed"), differences


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object a case")
    parser.add_argument("--kind", help="only cases of this kind")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for case in cases(arguments.directory):
        if arguments.kind and case["kind"] != arguments.kind:
            continue
        outcome, differences = play(case)
        counts[outcome.split(":")[0]] += 1
        if outcome.startswith("left out"):
            missing[outcome.removeprefix("left out: ")] += 1
        if arguments.json:
            print(json.dumps(_row(case, outcome, differences)))
        elif outcome == "failed":
            print(f"FAILED {case['id']}  ({case.get('name', '')})")
            for one in differences:
                print(
                    f"    {one.what}\n        expected {one.expected}\n        got      {one.got}"
                )
    if not arguments.json:
        names = ", ".join(f"{name} {count}" for name, count in missing.most_common())
        print(
            f"{counts['left out']} left out: an action or plugin does not exist yet ({names or 'none'})"
        )
        print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


def _row(case: Case, outcome: str, differences: list[Difference]) -> dict[str, Any]:
    shown = [
        {"what": one.what, "expected": str(one.expected), "got": str(one.got)}
        for one in differences
    ]
    return {"id": case["id"], "kind": case["kind"], "outcome": outcome, "differences": shown}


if __name__ == "__main__":
    sys.exit(main())
