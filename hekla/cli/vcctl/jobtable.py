"""The table of jobs.  Reference: cli 2.2.  Widths count bytes, and the last column is padded too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hekla.cli.vcctl.ages import creation_date
from hekla.cli.vcctl.connection import Tree

TYPE_LABEL = "volcano.sh/job-type"


class Column(NamedTuple):
    title: str
    width: int
    value: Callable[[Tree], str]


def _status(key: str) -> Callable[[Tree], str]:
    return lambda job: str((job.get("status") or {}).get(key) or 0)


def _spec(key: str) -> Callable[[Tree], str]:
    return lambda job: str((job.get("spec") or {}).get(key) or "")


def phase(job: Tree) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "")


def replicas(job: Tree) -> int:
    return sum(
        int(task.get("replicas") or 0) for task in (job.get("spec") or {}).get("tasks") or []
    )


COLUMNS = (
    Column("Creation", 15, lambda job: creation_date(job["metadata"].get("creationTimestamp"))),
    Column("Phase", 12, phase),
    Column(
        "JobType",
        12,
        lambda job: str((job["metadata"].get("labels") or {}).get(TYPE_LABEL) or "Batch"),
    ),
    Column("Replicas", 12, lambda job: str(replicas(job))),
    Column("Min", 6, _status("minAvailable")),
    Column("Pending", 10, _status("pending")),
    Column("Running", 10, _status("running")),
    Column("Succeeded", 12, _status("succeeded")),
    Column("Failed", 10, _status("failed")),
    Column("Unknown", 12, _status("unknown")),
    Column("RetryCount", 10, _status("retryCount")),
)
WIDE = (
    Column("   Queue", 19, lambda job: "   " + _spec("queue")(job)),
    Column("Scheduler", 16, _spec("schedulerName")),
)


def padded(text: str, width: int) -> str:
    """Left aligned to a width in bytes, never cut."""
    return text + " " * (width - len(text.encode()))


def table(
    shown: Sequence[Tree], measured: Sequence[Tree], *, namespaces: bool, wide: bool = False
) -> list[str]:
    """Header and rows of `shown`; the widths of the columns come from `measured`."""
    columns = [_sized("Name", 4, "name", measured), *COLUMNS, *(WIDE if wide else ())]
    if namespaces:
        columns.insert(0, _sized("Namespace", 9, "namespace", measured))
    rows = ["".join(padded(column.value(job), column.width) for column in columns) for job in shown]
    return ["".join(padded(column.title, column.width) for column in columns), *rows]


def _sized(title: str, least: int, key: str, jobs: Sequence[Tree]) -> Column:
    longest = max((len(str(job["metadata"].get(key) or "").encode()) for job in jobs), default=0)
    return Column(title, max(least, longest) + 3, lambda job: str(job["metadata"].get(key) or ""))
