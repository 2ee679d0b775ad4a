"""KAI's scale tests (test/e2e/scale in NVIDIA/KAI-Scheduler): 500 nodes of 8 GPUs, for the engine
alone.

There, the scheduler is stopped while the jobs are made, and started; what is measured lasts until
the last pod has a node.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.figure import Figure
from hekla.engine.world import World, policy

MIXED, FILL = "kai.mixed", "kai.fill"
FIGURES = (MIXED, FILL)
NODES, GPUS = 500, 8
QUEUES = 5


def measure(names: set[str]) -> Iterator[Figure]:
    """Seconds from the first cycle to the last placement."""
    for name, prepare, said in (
        (
            MIXED,
            mixed,
            f"{QUEUES} queues, each a gang of 25 full nodes and 50 pods without GPU, and 50 jobs without",
        ),
        (FILL, fill, "4,000 jobs of one pod and one GPU"),
    ):
        if name in names:
            world, pods = prepare()
            yield Figure(name, placed(world, pods), "s", f"500 nodes of 8 GPUs; {said}")


def cluster() -> World:
    world = World(
        policy(
            plugins=["priority", "gang", "predicates", "proportion", "nodeorder", "binpack"],
            actions="enqueue, allocate, backfill",
        )
    )
    world.nodes(*(f"node-{number}" for number in range(NODES)), cpu=128, memory="1024Gi", gpu=GPUS)
    return world


def mixed() -> tuple[World, int]:
    """A fifth of each queue's GPUs: learners of whole nodes with two environments each, and
    preprocessing beside them."""
    world, pods = cluster(), 0
    learners, alone = NODES // 20, NODES // 10
    for number in range(QUEUES):
        name = f"queue-{number}"
        world.queue(name)
        world.job(f"rl-{number}", pods=0, min_available=3 * learners, queue=name, phase="Pending")
        for at in range(3 * learners):
            world.pod(
                f"rl-{number}-{at}",
                job=f"rl-{number}",
                cpu=1,
                memory="1Gi",
                gpu=GPUS if at < learners else 0,
            )
        for at in range(alone):
            world.job(f"cpu-{number}-{at}", queue=name, phase="Pending", cpu=1, memory="1Gi")
        pods += 3 * learners + alone
    return world, pods


def fill() -> tuple[World, int]:
    world = cluster()
    for number in range(NODES * GPUS):
        world.job(f"job-{number}", phase="Pending", cpu=1, memory="1Gi", gpu=1)
    return world, NODES * GPUS


def placed(world: World, pods: int) -> float:
    began, bound = time.perf_counter(), 0
    for _ in range(20):
        bound += len(world.run().binds)
        if bound == pods:
            return time.perf_counter() - began
    raise RuntimeError(f"{bound} of {pods} pods were placed")
