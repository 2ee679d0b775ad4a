"""Simulations of published workloads: how long they take, and the figures that others have published
of them.

The Lublin log is overloaded on purpose, so that policies differ much.  Its users' estimates are
perfect: it names none, and the run times are taken.  SJF + EASY is EASY in the order of walltimes.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Aim, Figure
from hekla.engine.framework.policy import Policy
from hekla.engine.policies import default_policy
from hekla.engine.world import policy
from hekla.simulator import jobfile, openb, swf
from hekla.simulator.outcome import Outcome, outcome
from hekla.simulator.simulation import simulate
from hekla.simulator.start_estimates import simulate_with_estimates

TRACES = Path(__file__).parents[2] / "shared" / "traces"
LOG = TRACES / "swf" / "lublin_256.swf.gz"
PODS = TRACES / "openb" / "openb_pod_list_default.csv.gz"
NODES = TRACES / "openb" / "openb_node_list_gpu_node.csv.gz"
OPENB = "simulate.openb"
DAY = Path(__file__).parents[1] / "examples" / "simulate" / "day.yaml"
WHOLE_DAY = "simulate.day"
TAKES = "simulate.swf"
EASY_WAIT, EASY_SLOWDOWN = "lublin.easy.wait", "lublin.easy.bsld"
FCFS_WAIT, FCFS_SLOWDOWN = "lublin.fcfs.wait", "lublin.fcfs.bsld"
SJF_WAIT, SJF_SLOWDOWN = "lublin.sjf.wait", "lublin.sjf.bsld"
RUNS = {
    "easy": ("fifo", "easy", EASY_WAIT, EASY_SLOWDOWN),
    "fcfs": ("fifo", "strict", FCFS_WAIT, FCFS_SLOWDOWN),
    "sjf": ("shortest-first", "easy", SJF_WAIT, SJF_SLOWDOWN),
}
"""Order of the queue, mode of backfill, and what is measured."""
TRUE, IN_A_MINUTE = "estimates.lublin", "estimates.lublin.minute"
FIGURES = (
    TAKES,
    WHOLE_DAY,
    OPENB,
    TRUE,
    IN_A_MINUTE,
    *(name for run in RUNS.values() for name in run[2:]),
)
AIMS = [
    Aim(FCFS_WAIT, "<= 2388444", "s", 9, "average wait, nobody passes (exactly this)"),
    Aim(FCFS_SLOWDOWN, "<= 66502.5", "", 9, "average bounded slowdown, 10 s"),
    Aim(SJF_WAIT, "<= 59632.2", "s", 9, "average wait, shortest first with EASY (exactly this)"),
    Aim(SJF_SLOWDOWN, "<= 40.6", "", 9, "average bounded slowdown, 10 s"),
    Aim(IN_A_MINUTE, ">= 65", "%", 9, "jobs that start within a minute of the first estimate"),
]


def measure(names: set[str]) -> Iterator[Figure]:
    """One simulation for each policy."""
    if OPENB in names:
        yield gpus()
    if names & {TRUE, IN_A_MINUTE}:
        for figure in estimates():
            if figure.name in names:
                yield figure
    if WHOLE_DAY in names:
        yield day()
    for name, (order, mode, wait, slowdown) in RUNS.items():
        if not names & {wait, slowdown, *((TAKES,) if name == "easy" else ())}:
            continue
        began = time.perf_counter()
        found = lublin(order, mode)
        took = time.perf_counter() - began
        how = f"10,000 jobs on 256 processors, order {order}, backfill {mode}, {found.cycles:,} cycles"
        if name == "easy" and TAKES in names:
            yield Figure(TAKES, took, "s", how)
        if wait in names:
            yield Figure(wait, found.all.mean_wait, "s", how)
        if slowdown in names:
            yield Figure(slowdown, found.all.slowdown, "", how)


def gpus() -> Figure:
    """The trace of a GPU cluster under one policy, read and simulated."""
    began = time.perf_counter()
    with gzip.open(PODS, "rt") as lines:
        workload = openb.read(lines, PODS.name)
    with gzip.open(NODES, "rt") as lines:
        workload.cluster = openb.read_nodes(lines, NODES.name)
    arguments = {"deviceshare.VGPUEnable": True, "deviceshare.SchedulePolicy": "binpack"}
    sharing = {"name": "deviceshare", "arguments": {**arguments, "deviceshare.ScheduleWeight": 10}}
    rules = policy(
        plugins=["gang", "predicates", "nodeorder", sharing], actions="allocate, backfill"
    )
    (run,) = simulate(workload, [rules])
    took, found = time.perf_counter() - began, outcome("openb", run)
    jobs = f"{found.all.ended:,} of {found.all.jobs:,} pods ended on 1,213 nodes"
    return Figure(OPENB, took, "s", f"default trace, {jobs}, {found.cycles:,} cycles")


def day() -> Figure:
    """The day of the examples under the policy that is used when none is given, read and
    simulated."""
    began = time.perf_counter()
    workload = jobfile.read(DAY.read_text(), DAY.name)
    (run,) = simulate(workload, [default_policy()])
    took, found = time.perf_counter() - began, outcome("day", run)
    pods = sum(one.job.pods for one in run.jobs if one.ended is not None)
    jobs = f"{pods:,} pods in {found.all.ended:,} jobs on 200 nodes, 15 queues"
    return Figure(WHOLE_DAY, took, "s", f"{jobs}, default policy, {found.cycles:,} cycles")


def estimates() -> Iterator[Figure]:
    """Each job's first estimate of its start on the log's machine, against its start."""
    began = time.perf_counter()
    with gzip.open(LOG, "rt") as lines:
        workload = swf.read(lines, LOG.name)
    ((_, found),) = simulate_with_estimates(workload, [backfilling("easy")])
    took = time.perf_counter() - began
    how = f"EASY, {found.waited:,} of {found.jobs:,} jobs had to wait; simulated in {took:.0f} s"
    off = f"median {found.median_error:,.0f} s, p90 {found.p90_error:,.0f} s"
    yield Figure(TRUE, 100 * found.median_relative, "%", f"{how}; {off}")
    waited = f"{100 * found.waited_within_minute:.1f} % of those that waited"
    yield Figure(IN_A_MINUTE, 100 * found.within_minute, "%", f"{how}; {waited}")


def backfilling(mode: str) -> Policy:
    return policy(
        plugins=["gang", "predicates"],
        actions="allocate, backfill",
        configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
    )


def lublin(order: str, mode: str) -> Outcome:
    """The log on its own machine, read and simulated."""
    with gzip.open(LOG, "rt") as lines:
        workload = swf.read(lines, LOG.name, order=order)
    (run,) = simulate(workload, [backfilling(mode)])
    return outcome(mode, run)
