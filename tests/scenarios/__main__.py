"""`python -m tests.scenarios [--full] [--seconds N] [--missing] [PAGE ...]`.

Runs the tests that carry scenarios: for half a minute, without the slow lane; with `--full` all of
them to their end.  What was not run is said.  What pytest says meanwhile goes to the standard
error, the table to the standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.scenarios import pages
from tests.scenarios.selection import FULL, PAGES_VARIABLE, RESULTS

ROOT = Path(__file__).parents[2]
QUICK_SECONDS = 24.0
"""For the tests: with its own start and end the command takes half a minute."""
GRACE_SECONDS = 3.0
WORKERS = 3
"""Processes of pytest; tests of daemons wait more than they compute."""
ENGINE = "tests/engine/"
"""Where no test starts a program."""
LIVE = ("live", "client", "cluster(", "apiserver", "subprocess", "hekla.cli", "daemon", "whole")
"""Elsewhere, signs in the name or text of a file whose tests do: run after the others, so that
little is lost when the time is up."""

Scenario = tuple[str, str]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("pages", nargs="*", help="only these pages")
    parser.add_argument(
        "--full", action="store_true", help="run everything to its end, the slow lane too"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=QUICK_SECONDS,
        help="how long the tests may take without --full",
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="list the scenarios that no test carries, and those that fail",
    )
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
            "no test was collected: pytest's words are above"
            + (", or it had too little time" if options.seconds else ""),
            file=sys.stderr,
        )
        return 1
    covered, ended = outcomes(lines)
    report(reference, covered, ended, list_missing=options.missing, full=options.full)
    return int(any("failed" in how for how in ended.values()))


def run(only: list[str], seconds: float | None) -> list[dict[str, object]]:
    """The lines that the plugin wrote: what was collected, and how each test ended.  Without a time
    limit the slow lane runs, too."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as directory:
        given = {
            **os.environ,
            PAGES_VARIABLE: " ".join(only),
            FULL: "" if seconds is not None else "1",
        }
        waiting = batches(carriers(only), deadline is not None)
        results: list[Path] = []
        running: list[subprocess.Popen[bytes]] = []
        try:
            while (waiting or running) and (deadline is None or time.monotonic() < deadline):
                running = [process for process in running if process.poll() is None]
                while waiting and len(running) < WORKERS:
                    results.append(Path(directory) / str(len(results)))
                    running.append(_start(waiting.pop(0), {**given, RESULTS: str(results[-1])}))
                time.sleep(0.05)
        finally:
            _stop(running)
        written = [
            line for path in results if path.exists() for line in path.read_text().splitlines()
        ]
        return [json.loads(line) for line in written if line.endswith("}")]


def carriers(only: list[str]) -> dict[Path, str]:
    """The test files in which a scenario (of these pages) is named, with their texts; to collect
    the others would take longest."""
    texts = {
        file: file.read_text(encoding="utf-8")
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    return {
        file: text
        for file, text in texts.items()
        if "scenario(" in text and (not only or any(page in text for page in only))
    }


def batches(files: dict[Path, str], limited: bool) -> list[list[str]]:
    """Arguments of pytest, run after run.  A file stands in one run only: it is collected once, and
    its servers are started once.

    Where the time is limited, what starts programs is collected beforehand, to be known of in any
    case.
    """
    live = {file: text for file, text in files.items() if starts_programs(_name(file), text)}
    quick = {file: text for file, text in files.items() if file not in live}
    known = [["--collect-only", "-qq", *map(_name, live)]] if limited and live else []
    return [*known, *dealt(quick, 2 * WORKERS), *dealt(live, 3 * WORKERS)]


def starts_programs(name: str, text: str) -> bool:
    return not name.startswith(ENGINE) and any(sign in name or sign in text for sign in LIVE)


def dealt(files: dict[Path, str], count: int) -> list[list[str]]:
    """At most `count` lists, of about the same length of text."""
    hands: list[list[Path]] = [[] for _ in range(count)]
    for file in sorted(files, key=lambda one: len(files[one]), reverse=True):
        min(hands, key=lambda hand: sum(len(files[one]) for one in hand)).append(file)
    return [[_name(file) for file in hand] for hand in hands if hand]


def _name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def _start(arguments: list[str], given: dict[str, str]) -> subprocess.Popen[bytes]:
    """One run of pytest.  Nothing of a failure is shown, so assertions are not rewritten to tell of
    it."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.scenarios.selection",
        "-p",
        "no:cacheprovider",
        "--assert=plain",
        "--continue-on-collection-errors",
        "--tb=no",
    ]
    return subprocess.Popen(
        [*command, *arguments], cwd=ROOT, stdout=sys.stderr, start_new_session=True, env=given
    )


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """End each pytest with what it started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_SECONDS
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        if all(process.poll() is not None for process in processes):
            return


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
    reference: dict[str, list[str]],
    covered: set[Scenario],
    ended: dict[Scenario, set[str]],
    *,
    list_missing: bool,
    full: bool,
) -> None:
    print(f"{'page':<20}{'scenarios':>10}{'covered':>10}{'pass':>10}{'fail':>10}{'not run':>10}")
    totals = [0, 0, 0, 0, 0]
    for page, names in reference.items():
        here = [name for name in names if (page, name) in covered]
        passing = [name for name in here if ended[page, name] == {"passed"}]
        failing = [name for name in here if "failed" in ended[page, name]]
        row = [
            len(names),
            len(here),
            len(passing),
            len(failing),
            len(here) - len(passing) - len(failing),
        ]
        totals = [total + count for total, count in zip(totals, row, strict=True)]
        print(f"{page:<20}" + "".join(f"{count:>10}" for count in row))
        if list_missing:
            print(f"  no test: {', '.join(name for name in names if name not in here) or '-'}")
            print(f"  failing: {', '.join(failing) or '-'}")
    unknown = sorted(
        mark for mark in covered if mark[0] in reference and mark[1] not in reference[mark[0]]
    )
    if unknown:
        print(
            "tests carry scenarios that the reference does not have: "
            + ", ".join(f"{page} {name}" for page, name in unknown)
        )
    scenarios, with_tests, passing_total, _, not_run = totals
    rest = (
        f", {not_run} skipped or not run{'' if full else ' in the time given (--full runs all to their end)'}"
        if not_run
        else ""
    )
    print(f"{scenarios} scenarios, {with_tests} covered, {passing_total} pass{rest}")


if __name__ == "__main__":
    raise SystemExit(main())
