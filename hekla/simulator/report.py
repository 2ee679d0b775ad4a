"""A simulation's outcome as text: a table for people, CSV by job, JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from hekla.simulator.differences import sentences
from hekla.simulator.outcome import Figures, Outcome, slowdown_of
from hekla.simulator.run import Run
from hekla.simulator.workload import MICROSECONDS

COLUMNS = (
    "policy", "queue", "jobs", "ended", "evicted", "mean wait", "median", "p90", "longest", "slowdown",
)  # fmt: skip
CSV_COLUMNS = (
    "policy", "job", "queue", "processors", "pods", "submit", "start", "end", "wait", "slowdown", "evictions",
)  # fmt: skip


MOST_REASONS = 5
"""Why jobs have not started, as far as the table tells."""


def table(outcomes: Sequence[Outcome]) -> str:
    """The policies side by side: a line each, then a line for each queue where there are several."""
    rows: list[Sequence[str]] = [COLUMNS]
    for one in outcomes:
        rows.append(_row(one.policy, "", one.all))
        if len(one.queues) > 1:
            rows += [_row("", name, found) for name, found in one.queues.items()]
    lines = aligned(rows)
    lines.append("")
    rows = [("policy", "makespan", "cycles", "utilisation")]
    for one in outcomes:
        used = "  ".join(
            f"{name} {100 * part:.1f}%" for name, part in sorted(one.utilisation.items())
        )
        rows.append((one.policy, f"{one.makespan:,.0f}", f"{one.cycles:,}", used))
    lines += aligned(rows)
    lines += _estimates(outcomes)
    for one in outcomes:
        if one.differences is not None:
            lines += ["", *sentences(one.policy, one.differences)]
    for one in outcomes:
        lines += [f"{one.policy}: {problem}" for problem in one.problems]
        lines += _waiting(one)
    lines += ["", "Times in seconds; slowdowns bounded at 10 s."]
    return "\n".join(lines) + "\n"


def _waiting(one: Outcome) -> list[str]:
    """Why jobs have not started, of the first of them for each that is told something else."""
    if not one.waiting:
        return []
    count = len(one.waiting)
    lines = ["", f"{one.policy}: {count:,} {'job has' if count == 1 else 'jobs have'} not started."]
    told: dict[str, str] = {}
    for key, why in one.waiting.items():
        name = key.partition("/")[2]
        told.setdefault(why.removeprefix(name), why or f"{name}: nothing is known of why.")
    return lines + [f"  {why}" for why in list(told.values())[:MOST_REASONS]]


def _estimates(outcomes: Sequence[Outcome]) -> list[str]:
    """How true estimates of starts came, where they were made."""
    rows: list[Sequence[str]] = [
        ("policy", "waited", "unknown", "median error", "p90", "by wait", "within a minute", "of all jobs"),
    ]  # fmt: skip
    for one in outcomes:
        if (of := one.estimates) is not None:
            errors = (of.median_error, of.p90_error)
            shares = (of.median_relative, of.waited_within_minute, of.within_minute)
            rows.append(
                (
                    one.policy,
                    f"{of.waited:,}",
                    f"{of.unknown:,}",
                    *(f"{error:,.0f}" if math.isfinite(error) else "-" for error in errors),
                    *(f"{100 * share:.1f}%" if math.isfinite(share) else "-" for share in shares),
                )
            )
    return ["", *aligned(rows)] if len(rows) > 1 else []


def _row(policy: str, queue: str, of: Figures) -> Sequence[str]:
    times = (of.mean_wait, of.median_wait, of.p90_wait, of.longest_wait)
    counts = (of.jobs, of.ended, of.evictions)
    return (
        policy,
        queue,
        *(f"{one:,}" for one in counts),
        *("-" if math.isnan(one) else f"{one:,.0f}" for one in times),
        "-" if math.isnan(of.slowdown) else f"{of.slowdown:,.1f}",
    )


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of one width each: numbers to the right, other words to the left."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    right = [all(row[at][:1].isdigit() or row[at] in ("-", "") for row in rows[1:]) for at in range(len(widths))]  # fmt: skip
    return [
        "  ".join(
            word.rjust(width) if to_the_right else word.ljust(width)
            for word, width, to_the_right in zip(row, widths, right)
        ).rstrip()
        for row in rows
    ]


def as_json(outcomes: Sequence[Outcome]) -> str:
    """One object; numbers that are not there are null."""
    return json.dumps([_plain(_told(one)) for one in outcomes], indent=2, ensure_ascii=False) + "\n"


def _told(one: Outcome) -> dict[str, object]:
    """What there is to say; of estimates only where they were made."""
    return {name: value for name, value in asdict(one).items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def as_csv(names: Sequence[str], runs: Sequence[Run]) -> str:
    """A line a job and policy; empty where a job has not started or ended."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for policy, run in zip(names, runs):
        for one in run.jobs:
            job = one.job
            writer.writerow(
                (
                    policy,
                    job.name,
                    job.queue,
                    f"{job.processors:g}",
                    job.pods,
                    _seconds(job.submit),
                    _seconds(one.started),
                    _seconds(one.ended),
                    "" if one.started is None else _seconds(one.started - job.submit),
                    "" if one.ended is None else f"{slowdown_of(one):.6g}",
                    one.evictions,
                )
            )
    return text.getvalue()


def _seconds(moment: int | None) -> str:
    if moment is None:
        return ""
    whole, rest = divmod(moment, MICROSECONDS)
    return f"{whole}" + (f".{rest:06d}".rstrip("0") if rest else "")
