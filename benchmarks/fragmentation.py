"""How much of a GPU cluster is allocated when more was asked for than it has, and what a pod's place
costs then.

As in "Beware of Fragmentation" (USENIX ATC 2023): pods are drawn from a trace at random, with
replacement, until together they ask for 130% of the cluster's GPUs.  They come in that order, those
that find no place fail, none leaves.

    python -m benchmarks.fragmentation POD_LIST.csv.gz ... [--policies a,b] [--seeds N]

runs traces that are kept elsewhere, and other policies beside.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from benchmarks.figure import Aim, Figure
from benchmarks.simulate import NODES, TRACES
from hekla.engine.cycle import cycle
from hekla.engine.framework.plugin import Depends, Plugin
from hekla.engine.framework.policy import Policy
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import PodClass
from hekla.engine.model.resources import Floats
from hekla.engine.model.state import State
from hekla.engine.world import policy
from hekla.simulator import openb
from hekla.simulator.objects import pod, pod_group, stamp_of
from hekla.simulator.workload import SimulatedJob

LOAD = 1.3
SEEDS = 10
BATCH = 50
"""Pods that come from one cycle to the next."""
PACE = "fgd.pace"
BY_TRACE = {f"fgd.{name}": name for name in ("default", "gpushare40", "multigpu20")}
FIGURES = (*BY_TRACE, PACE)
AIMS = [
    Aim("fgd.gpushare40", ">= 94.15", "%", 9, "as fgd.default"),
    Aim("fgd.multigpu20", ">= 95.65", "%", 9, "as fgd.default"),
    Aim(
        PACE,
        "<= 5",
        "ms",
        9,
        "processor time of the cycles, a pod, under the policy of fgd.default",
    ),
]


class Random(Plugin):
    """Any node that will do."""

    name = "random"
    score_depends_on = Depends.CLUSTER

    def __init__(self, arguments: Any, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.draw = np.random.default_rng(1)

    def score(self, pods: PodClass, nodes: NodeView) -> Floats:
        return 100.0 * self.draw.random(len(nodes))


def sharing(weight: int = 0) -> dict[str, object]:
    arguments: dict[str, object] = {
        "deviceshare.VGPUEnable": True,
        "deviceshare.SchedulePolicy": "binpack",
        "deviceshare.ScheduleWeight": weight,
    }
    return {"name": "deviceshare", "arguments": arguments}


def best_fit() -> dict[str, object]:
    resources = ("cpu", "memory", openb.MEMORY)
    most = {name: {"type": "MostAllocated", "weight": 1} for name in resources}
    return {"name": "resource-strategy-fit", "arguments": {"resources": most}}


PLUGINS: Mapping[str, list[Any]] = {
    "fragmentation": [sharing(), "fragmentation"],
    "deviceshare": [sharing(10)],
    "best-fit": [sharing(), best_fit()],
    "binpack": [sharing(10), "binpack"],
    "nodeorder": [sharing(), "nodeorder"],
    "random": [sharing(), "random"],
}
"""Beside gang and predicates."""


def rules(name: str) -> Policy:
    plugins = ["gang", "predicates", *PLUGINS[name]]
    return policy(plugins=plugins, actions="allocate", custom=[Random])


def asked(job: SimulatedJob) -> int:
    """Of GPUs, in thousandths."""
    return int(job.requests.get(openb.NUMBER, 0)) * int(job.requests.get(openb.MEMORY, 0))


def drawn(jobs: list[SimulatedJob], until: float, seed: int) -> Iterator[SimulatedJob]:
    """Jobs of the trace at random, until together they ask for so much."""
    random = np.random.default_rng(seed)
    total = 0
    while total < until:
        job = jobs[int(random.integers(len(jobs)))]
        total += asked(job)
        yield job


@dataclasses.dataclass
class Filled:
    """A cluster at 130% load."""

    share: float
    """Of its GPUs that is allocated, percent."""
    placed: int
    pods: int
    seconds: float
    """Processor time of the cycles."""


def fill(pods: Path, nodes: Path, by: Policy, seed: int) -> Filled:
    """Place what comes, pod after pod."""
    with gzip.open(pods, "rt") as lines:
        jobs = openb.read(lines, pods.name, timed=False).jobs
    state, cards = State(), 0
    state.metered = False
    with gzip.open(nodes, "rt") as lines:
        for tree in openb.read_nodes(lines, nodes.name):
            if tree["kind"] == "Queue":
                state.upsert_queue(tree)
            else:
                state.upsert_node(tree)
                cards += int(tree["status"]["allocatable"].get(openb.MEMORY, 0))
    coming = list(drawn(jobs, LOAD * cards, seed))
    held, placed, took = 0, 0, 0.0
    for first in range(0, len(coming), BATCH):
        came = {}
        for at, job in enumerate(coming[first : first + BATCH], first):
            one = dataclasses.replace(job, name=f"p{at}")
            stamp = stamp_of(at * 1_000_000)
            group = {**pod_group(one, stamp), "status": {"phase": "Inqueue"}}
            tree = pod(one, one.templates()[0], one.name, one.name, stamp)
            state.upsert_pod_group(group)
            state.upsert_pod(tree)
            came[one.key] = one, group, tree
        began = time.process_time()
        decided = cycle(state, by, float(first))
        took += time.process_time() - began
        if decided.problems:
            raise RuntimeError(decided.problems[0])
        for bind in decided.binds:
            held += asked(came.pop(bind.pod)[0])
            placed += 1
        for _, group, tree in came.values():
            state.remove_pod(tree)
            state.remove_pod_group(group)
    return Filled(100 * held / cards, placed, len(coming), took)


def measure(names: set[str]) -> Iterator[Figure]:
    """Ten seeds of each trace."""
    pace: list[float] = []
    for name, trace in BY_TRACE.items():
        if name not in names and (PACE not in names or trace != "default"):
            continue
        seeds = SEEDS if name in names else 1
        runs = [fill(pod_list(trace), NODES, rules("fragmentation"), seed) for seed in range(seeds)]
        shares = [one.share for one in runs]
        pace += [1e3 * one.seconds / one.pods for one in runs]
        if name in names:
            how = f"{SEEDS} seeds, standard deviation {stdev(shares):.2f}, {min(shares):.2f} to {max(shares):.2f}"
            yield Figure(name, mean(shares), "%", f"trace {trace}, 130% load, {how}")
    if PACE in names:
        yield Figure(PACE, mean(pace), "ms", "policy fragmentation, from empty to 130% load")


def pod_list(trace: str) -> Path:
    return TRACES / "openb" / f"openb_pod_list_{trace}.csv.gz"


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fragmentation", description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path, help="pod lists; without, openb's default")
    parser.add_argument("--nodes", type=Path, default=NODES, help="node list")
    parser.add_argument("--policies", default=",".join(PLUGINS), help="of which to compare")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args(None if arguments is None else list(arguments))
    for trace in given.traces or [pod_list("default")]:
        for name in given.policies.split(","):
            runs = [fill(trace, given.nodes, rules(name), seed) for seed in range(given.seeds)]
            shares = [one.share for one in runs]
            spread = stdev(shares) if len(shares) > 1 else 0.0
            each = " ".join(f"{share:.2f}" for share in shares)
            print(f"{trace.name} {name}: {mean(shares):.2f} ({spread:.2f}): {each}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
