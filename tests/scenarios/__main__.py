"""`python -m tests.scenarios [--full] [--seconds N] [--missing] [PAGE ...]`.

Runs the tests that carry scenarios: for half a minute, without the slow lane; with `--full` all of them to their end.  What was not run is
said.  What pytest says meanwhile goes to the standard error, the table to the standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.scenarios import pages
from tests.scenarios.selection import FULL, PAGES_VARIABLE, RESULTS

ROOT = Path(__file__).parents[2]
QUICK_SECONDS = 30.0
GRACE_SECONDS = 3.0
WORKERS = "3"  # tests of daemons wait more than they compute

Scenario = tuple[str, str]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("pages", nargs="*", help="only these pages")
    parser.add_argument("--full", action="store_true", help="run everything to its end, the slow lane too")
    parser.add_argument("--seconds", type=float, default=QUICK_SECONDS, help="how long the tests may take without --full")
    parser.add_argument("--missing", action="store_true", help="list the scenarios that no test carries, and those that fail")
    options = parser.parse_args(argv)
    reference = pages.read()
    if not reference:
        print(f"the reference is not there: {pages.REFERENCE}", file=sys.stderr)
        return 1
    if options.pages:
        reference = {page: names for page, names in reference.items() if page in options.pages}
    lines = run(options.pages, None if options.full else options.seconds)
    if not any("collected" in line for line in lines):
        print(
            "no test was collected: pytest's words are above" + (", or it had too little time" if options.seconds else ""), file=sys.stderr
        )
        return 1
    covered, ended = outcomes(lines)
    report(reference, covered, ended, list_missing=options.missing, full=options.full)
    return int(any("failed" in how for how in ended.values()))


def run(only: list[str], seconds: float | None) -> list[dict[str, object]]:
    """The lines that the plugin wrote: what was collected, and how each test ended.  Without a time limit the slow lane runs, too."""
    with tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "results"
        results.touch()
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.scenarios.selection", "-p", "no:cacheprovider",
                   "--continue-on-collection-errors", "--tb=no", "-n", WORKERS,
                   "--dist", "worksteal"]  # fmt: skip
        command += carriers()
        given = {**os.environ, RESULTS: str(results), PAGES_VARIABLE: " ".join(only), FULL: "" if seconds is not None else "1"}
        process = subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr, start_new_session=True, env=given)
        try:
            process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            _stop(process)
        return [json.loads(line) for line in results.read_text().splitlines() if line.endswith("}")]


def carriers() -> list[str]:
    """The test files in which a scenario is named; collecting the others would take longer than many tests."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if "scenario(" in file.read_text(encoding="utf-8")]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End pytest with its workers and what these started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def outcomes(lines: list[dict[str, object]]) -> tuple[set[Scenario], dict[Scenario, set[str]]]:
    """The scenarios that tests carry, and how the tests of each ended."""
    covered: set[Scenario] = set()
    ended: dict[Scenario, set[str]] = defaultdict(set)
    for line in lines:
        for marks in line.get("collected", ()):  # type: ignore[attr-defined]
            covered |= {(page, name) for page, name in marks}
        for page, name in line.get("scenarios", ()):  # type: ignore[attr-defined]
            covered.add((page, name))
            ended[page, name].add(str(line["outcome"]))
    return covered, ended


def report(
    reference: dict[str, list[str]], covered: set[Scenario], ended: dict[Scenario, set[str]], *, list_missing: bool, full: bool
) -> None:
    print(f"{'page':<20}{'scenarios':>10}{'covered':>10}{'pass':>10}{'fail':>10}{'not run':>10}")
    totals = [0, 0, 0, 0, 0]
    for page, names in reference.items():
        here = [name for name in names if (page, name) in covered]
        passing = [name for name in here if ended[page, name] == {"passed"}]
        failing = [name for name in here if "failed" in ended[page, name]]
        row = [len(names), len(here), len(passing), len(failing), len(here) - len(passing) - len(failing)]
        totals = [total + count for total, count in zip(totals, row, strict=True)]
        print(f"{page:<20}" + "".join(f"{count:>10}" for count in row))
        if list_missing:
            print(f"  no test: {', '.join(name for name in names if name not in here) or '-'}")
            print(f"  failing: {', '.join(failing) or '-'}")
    unknown = sorted(mark for mark in covered if mark[0] in reference and mark[1] not in reference[mark[0]])
    if unknown:
        print("tests carry scenarios that the reference does not have: " + ", ".join(f"{page} {name}" for page, name in unknown))
    scenarios, with_tests, passing_total, _, not_run = totals
    rest = f", {not_run} skipped or not run{'' if full else ' in the time given (--full runs all to their end)'}" if not_run else ""
    print(f"{scenarios} scenarios, {with_tests} covered, {passing_total} pass{rest}")


if __name__ == "__main__":
    raise SystemExit(main())
