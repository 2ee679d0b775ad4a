"""Pollux's workloads of deep learning jobs on 64 GPUs, under least attained service.

The data are the simulator's of the paper (Qiao et al., OSDI 2021; petuum/adaptdl, branch
osdi21-artifact, directory `simulator`): workloads with a number of GPUs and a batch size for each
job, and for each application what was measured of its steps and of its progress.  A job's length
follows from these for GPUs on as few nodes as possible; nobody tells it to the scheduler.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.figure import Figure
from hekla.engine.framework.policy import Policy
from hekla.engine.world import policy
from hekla.simulator.simulation import simulate
from hekla.simulator.work import Work
from hekla.simulator.workload import (
    MICROSECONDS,
    InputError,
    SimulatedJob,
    Workload,
    microseconds,
    node,
    queue,
)

DATA = "pollux"
LAS = "pollux.las"
FIGURES = (LAS,)
NODES, OF_A_NODE = 16, 4
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
"""How many epochs of each application were measured, and are trained."""
MOST_LOCAL = {"yolov3": 8}
"""The largest batch of a GPU, where it is not the largest that was measured."""
PERIOD = 60 * MICROSECONDS
"""Between two looks of the scheduler while somebody waits."""
THRESHOLDS = "16h"
"""GPU-hours after which a job goes behind those with less, as in the artifact's `tiresias.py`."""
RESTART = 30 * MICROSECONDS
"""A job that was stopped goes on where it was after so long, as in the artifact's `simulator.py`."""
COLUMNS = ("name", "time", "num_replicas")
NEARLY = 1e-8


def measure(names: set[str], path: Path) -> Iterator[Figure]:
    """Each workload alone on the cluster, and the mean of all."""
    if LAS not in names:
        return
    means = {one.stem: completion(one) / 3600 for one in workloads(path)}
    said = ", ".join(f"{name} {hours:.2f}" for name, hours in means.items())
    yield Figure(
        LAS,
        statistics.fmean(means.values()),
        "h",
        f"thresholds {THRESHOLDS}, a look a minute, restarts of 30 s; {said}",
    )


def workloads(path: Path) -> list[Path]:
    """The files, by name: of the artifact, of its directory `simulator`, or of one with workloads
    alone; or a single file.  Raises InputError."""
    if path.is_file():
        return [path]
    for directory in (path / "simulator" / "workloads", path / "workloads", path):
        if found := sorted(directory.glob("*.csv")):
            return found
    raise InputError(f"{path}: there is no *.csv in it; docs/scoreboard.md says what is read")


def rules() -> Policy:
    """Jobs are stopped as a whole, and packed."""
    service = {
        "name": "least-attained-service",
        "arguments": {"least-attained-service.thresholds": THRESHOLDS},
    }
    packed = {
        "name": "binpack",
        "arguments": {
            "binpack.resources": "nvidia.com/gpu",
            "binpack.resources.nvidia.com/gpu": 10,
        },
    }
    return policy(
        plugins=[service, {"name": "gang", "enablePreemptable": False}, "predicates", packed],
        actions="allocate, gangpreempt",
    )


def completion(path: Path) -> float:
    """Mean seconds from arrival to end."""
    (run,) = simulate(read(path), [rules()], period=PERIOD)
    ended = [one.ended - one.job.submit for one in run.jobs if one.ended is not None]
    if len(ended) < len(run.jobs):
        raise RuntimeError(f"{path.name}: {len(run.jobs) - len(ended)} jobs never ended")
    return statistics.fmean(ended) / MICROSECONDS


def read(path: Path) -> Workload:
    """The jobs of a workload on its cluster.  The traces are those beside the workload's directory.
    Raises InputError."""
    traces = path.parent.parent / "traces"
    applications: dict[str, Application] = {}
    jobs = []
    for number, row in enumerate(rows(path, COLUMNS), 2):
        try:
            submit, gpus = float(row["time"]), int(row["num_replicas"])
            lasts = float(row["duration"]) if row.get("duration") else None
            batch = int(row["batch_size"]) if lasts is None else 0
            name = row["application"] if lasts is None else ""
        except KeyError as error:
            raise InputError.at(
                str(path), number, f"no column {error}, and no duration either"
            ) from None
        except ValueError as error:
            raise InputError.at(str(path), number, f"{error}: numbers are expected") from None
        if not 1 <= gpus <= NODES * OF_A_NODE:
            raise InputError.at(
                str(path), number, f"num_replicas = {gpus}: from 1 to {NODES * OF_A_NODE}"
            )
        if lasts is None and name not in applications:
            applications[name] = Application(traces / name)
        seconds = applications[name].length(gpus, batch) if lasts is None else lasts
        jobs.append(
            SimulatedJob(
                row["name"],
                microseconds(submit),
                microseconds(seconds),
                {"nvidia.com/gpu": "1"},
                pods=gpus,
                min_available=gpus,
                work=Work(together=True, checkpoint=0, restart=RESTART),
                processors=gpus,
            )
        )
    cards = {"nvidia.com/gpu": str(OF_A_NODE), "pods": "110"}
    return Workload(
        jobs, [*(node(f"node-{at:02d}", cards) for at in range(NODES)), queue("default")]
    )


@dataclass(frozen=True)
class Step:
    """What a step of so many samples a GPU takes, in seconds; `sync` is the part that a step which
    only accumulates saves."""

    local: float
    time: float
    sync: float


@dataclass(frozen=True)
class Epoch:
    """The end of an epoch: progress in steps of the smallest batch, and the gradient's statistics
    in it."""

    progress: float
    square: float
    variance: float


class Application:
    """What was measured of an application."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.epochs: dict[int, list[Epoch]] = {}
        for path in directory.glob("validation-*.csv"):
            self.epochs[int(path.stem.rpartition("-")[2])] = [
                Epoch(float(row["progress"]), float(row["grad_sqr"]), float(row["grad_var"]))
                for row in rows(path, ("progress", "grad_sqr", "grad_var"))
            ]
        if not self.epochs:
            raise InputError(f"{directory}: there is no validation-BATCH.csv in it")
        columns = ("local_bsz", "step_time", "sync_time")
        self.placements: dict[str, list[Step]] = {}
        for row in rows(directory / "placements.csv", ("placement", *columns)):
            self.placements.setdefault(row["placement"], []).append(step(row))
        self.scaled: dict[tuple[int, int], list[Step]] = {}
        """(nodes, GPUs) -> steps, whichever way the GPUs are spread over the nodes."""
        for row in rows(directory / "scalability.csv", ("num_nodes", "num_replicas", *columns)):
            size = int(float(row["num_nodes"])), int(float(row["num_replicas"]))
            self.scaled.setdefault(size, []).append(step(row))
        for placement, steps in self.placements.items():
            size = len(placement), sum(map(int, placement))
            self.scaled.setdefault(size, []).extend(steps)

    @cached_property
    def most_local(self) -> float:
        measured = max(one.local for steps in self.placements.values() for one in steps)
        return MOST_LOCAL.get(self.name, measured)

    def length(self, gpus: int, batch: int) -> float:
        """Seconds that the whole training takes on so many GPUs, packed."""
        smallest, largest = min(self.epochs), max(self.epochs)
        local = math.ceil(batch / gpus - NEARLY)
        more = math.ceil(local / self.most_local - NEARLY) - 1
        if gpus == 1 and batch > smallest:
            more = max(1, more)
        atomic = math.ceil(local / (more + 1) - NEARLY)
        atomic = min(atomic, largest // (gpus * (more + 1)))
        one = self.step(gpus, atomic)
        each = one.time + more * (one.time - one.sync)
        total = gpus * atomic * (more + 1)
        seconds, before = 0.0, 0.0
        for number in range(min(EPOCHS.get(self.name, 10**9), *map(len, self.epochs.values()))):
            after = min(epochs[number].progress for epochs in self.epochs.values())
            square, variance = self.gradient(total, number)
            gain = (variance + square) / (variance / (total / smallest) + square)
            seconds += (after - before) * each / gain
            before = after
        return seconds

    def gradient(self, batch: float, epoch: int) -> tuple[float, float]:
        """Square and variance at a batch between two that were measured."""
        sizes = sorted(self.epochs)
        low = max((one for one in sizes if one <= batch), default=sizes[0])
        high = min((one for one in sizes if one >= batch), default=sizes[-1])
        part = (batch - low) / (high - low) if high > low else 0.0
        here, there = self.epochs[low][epoch], self.epochs[high][epoch]
        return (
            here.square + part * (there.square - here.square),
            here.variance + part * (there.variance - here.variance),
        )

    def step(self, gpus: int, local: float) -> Step:
        """A step on as few nodes as possible: as measured there, or else on so many nodes and
        GPUs, or the nearest numbers of them."""
        whole, rest = divmod(gpus, OF_A_NODE)
        parts = [rest] * bool(rest) + [OF_A_NODE] * whole
        steps = self.placements.get("".join(map(str, parts)))
        if steps is None:
            nodes = len(parts)
            near = min(self.scaled, key=lambda size: (abs(size[1] - gpus), abs(size[0] - nodes)))
            steps = self.scaled[near]
        return between(sorted(steps, key=lambda one: one.local), local)


def between(steps: Sequence[Step], local: float) -> Step:
    """On the straight line between the two nearest that were measured."""
    low = max(
        (one for one in steps if one.local <= local), key=lambda one: one.local, default=steps[0]
    )
    high = min(
        (one for one in steps if one.local >= local), key=lambda one: one.local, default=steps[-1]
    )
    part = (local - low.local) / (high.local - low.local) if high.local > low.local else 0.0
    return Step(
        local, low.time + part * (high.time - low.time), low.sync + part * (high.sync - low.sync)
    )


def step(row: dict[str, str]) -> Step:
    return Step(float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"]))


def rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows of a CSV with at least these columns.  Raises InputError."""
    try:
        with path.open(newline="") as lines:
            reader = csv.DictReader(lines)
            missing = [one for one in columns if one not in (reader.fieldnames or ())]
            if missing:
                raise InputError.at(str(path), 1, f"there is no column {', '.join(missing)}")
            yield from reader
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
