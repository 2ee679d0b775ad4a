"""Standard Workload Format: logs of parallel machines, as the Parallel Workloads Archive keeps them.

One job a line, eighteen numbers, -1 where nothing is known; the header's comments say how large the
machine was.  https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from hekla.api.trees import Tree
from hekla.simulator.workload import (
    InputError,
    SimulatedJob,
    Workload,
    microseconds,
    node,
    queue,
)

FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
NUMBER, SUBMIT, RUN, ALLOCATED, REQUESTED, REQUESTED_TIME, STATUS = 0, 1, 3, 4, 7, 8, 10
CANCELLED = 5
PARTS = (2, 3, 4)
"""Statuses of lines that tell of a part of a job; a line of its own tells of all of it."""
USER, EXECUTABLE = 11, 13
LEAST = REQUESTED_TIME + 1
"""Fields that a line has at least; some logs leave the last ones out."""
_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes|MaxJobs)\s*:\s*(\d+)")

ESTIMATES = ("requested", "actual", "none")
"""Where walltimes come from: what users asked for (the run time where they asked for nothing), the
run times themselves, or nowhere."""


def read(
    lines: Iterable[str],
    name: str,
    *,
    estimates: str = "requested",
    pod_processors: int = 0,
    order: str = "fifo",
) -> Workload:
    """The jobs of a log and its machine.  Raises InputError.

    `pod_processors`: how many processors a pod has at most.  0: all of a job's in one pod, and the
    machine as one node; otherwise a job is a gang of pods, on nodes of that many processors.
    `order`: of the jobs in the one queue.
    """
    said: dict[str, int] = {}
    jobs: list[SimulatedJob] = []
    left_out = parts = 0
    for at, line in enumerate(lines, 1):
        if line.startswith(";"):
            if found := _HEADER.match(line):
                said[found[1]] = int(found[2])
            continue
        words = line.split()
        if not words:
            continue
        numbers = _numbers(words, name, at)
        if len(numbers) > STATUS and numbers[STATUS] in PARTS:
            parts += 1
            continue
        job = _job(numbers, words, name, at, estimates, pod_processors)
        if job is None:
            left_out += 1
        else:
            jobs.append(job)
    if not jobs:
        raise InputError(f"{name}: no line of it is a job that ran")
    processors = said.get("MaxProcs", 0)
    if processors <= 0:
        processors = max(said.get("MaxNodes", 0), *(int(job.processors) for job in jobs))
    notes = [f"jobs that never ran: {left_out}; left out"] if left_out else []
    if parts:
        notes.append(f"lines of parts of jobs (status 2 to 4): {parts}; left out")
    return Workload(jobs, machine(processors, pod_processors, order), notes)


def machine(processors: int, of_a_node: int = 0, order: str = "fifo") -> list[Tree]:
    """A machine of so many processors as nodes, and one queue."""
    size = of_a_node or processors
    sizes = [size] * (processors // size) + ([processors % size] if processors % size else [])
    nodes = [
        node(f"node-{number:05d}", {"cpu": str(cpus), "pods": str(cpus)})
        for number, cpus in enumerate(sizes)
    ]
    return [*nodes, queue("default", order)]


def _numbers(words: Sequence[str], name: str, at: int) -> list[float]:
    """The fields of a line.  Raises InputError."""
    if not LEAST <= len(words) <= len(FIELDS):
        raise InputError.at(
            name, at, f"{len(words)} fields; a job has {len(FIELDS)} (at least {LEAST})"
        )
    numbers = []
    for field, word in zip(FIELDS, words):
        try:
            numbers.append(float(word))
            if not math.isfinite(numbers[-1]):
                raise ValueError
        except ValueError:
            raise InputError.at(
                name, at, f'{field} = "{word}": a number, -1 where it is unknown'
            ) from None
    return numbers


def _job(
    numbers: Sequence[float],
    words: Sequence[str],
    name: str,
    at: int,
    estimates: str,
    pod_processors: int,
) -> SimulatedJob | None:
    """The job of a line; None for one that never ran."""
    processors = numbers[REQUESTED] if numbers[REQUESTED] > 0 else numbers[ALLOCATED]
    cancelled = len(numbers) > STATUS and numbers[STATUS] == CANCELLED
    if numbers[RUN] < 0 or processors <= 0 or (cancelled and numbers[RUN] == 0):
        return None
    if numbers[SUBMIT] < 0:
        raise InputError.at(name, at, f"submit time = {words[SUBMIT]}: seconds, from 0 up")
    asked = numbers[REQUESTED_TIME] if estimates == "requested" else -1.0
    walltime = None if estimates == "none" else asked if asked > 0 else numbers[RUN]
    whole = int(processors)
    each = min(pod_processors or whole, whole)
    pods = -(-whole // each)
    return SimulatedJob(
        name=f"job-{int(numbers[NUMBER]):08d}",
        submit=microseconds(numbers[SUBMIT]),
        duration=microseconds(numbers[RUN]),
        requests={"cpu": str(each)},
        pods=pods,
        min_available=pods,
        walltime=None if walltime is None else microseconds(walltime),
        user=_numbered("user-{}", numbers, USER),
        # The number tells programs apart; at the end of a name it would not (`without_number`).
        title=_numbered("executable-{}.swf", numbers, EXECUTABLE),
        processors=whole,
    )


def _numbered(form: str, numbers: Sequence[float], at: int) -> str:
    """A user or a program by its number; empty where the log has none."""
    return form.format(int(numbers[at])) if len(numbers) > at and numbers[at] > 0 else ""
