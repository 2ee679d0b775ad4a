"""A cycle with thousands of jobs waiting: by the default policy, and with backfill that minds time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.figure import Aim, Figure
from hekla.engine.cycle import hooks_of, uncollected
from hekla.engine.estimates.estimates import Estimation
from hekla.engine.framework.session import Session
from hekla.engine.world import World, policy

EASY = "engine.backfill.easy"
CONSERVATIVE = "engine.backfill.conservative"
NONE = "engine.backfill.none"
ESTIMATES = "engine.estimates"
FIGURES = (NONE, EASY, CONSERVATIVE, ESTIMATES)
AIMS = [Aim(NONE, "<= 50", "ms", 9, "as engine.backfill.easy, with a backfill that minds no time")]
NODES, WAITING, SHAPES, CYCLES = 1_000, 10_000, 1_000, 20


def measure(names: set[str]) -> Iterator[Figure]:
    """A full cluster on which one pod ends before each cycle that is measured."""
    where = "10,000 waiting jobs of 1 to 4 pods, 1,000 shapes, 1,000 nodes, 4,000 running pods"
    for name, mode, scale, unit in (
        (NONE, "", 1e3, "ms"),
        (EASY, "easy", 1e3, "ms"),
        (CONSERVATIVE, "conservative", 1.0, "s"),
    ):
        if name in names:
            times, started = cycles(waiting(mode))
            worst = f"worst {scale * max(times):.3g} {unit}"
            said = f"{where}; median of {CYCLES}, {worst}; {started} pods passed"
            yield Figure(name, scale * sorted(times)[CYCLES // 2], unit, said)
    if ESTIMATES in names:
        yield estimates()


def estimates() -> Figure:
    """When all that wait will start, made anew after a cycle; and the longest step of it, which is
    how long a cycle may have to wait."""
    world = waiting("easy")
    hooks_of(world.state, world.policy).keeps_session = True
    world.run()
    world.settle()
    world.run()
    takes = []
    longest = 0.0
    for _ in range(3):
        session = hooks_of(world.state, world.policy).session
        assert isinstance(session, Session)
        made = Estimation(session)
        began = last = time.perf_counter()
        with uncollected():
            for _ in made.steps():
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
        takes.append(time.perf_counter() - began)
    known = sum(1 for one in made.found.values() if one.known)
    said = f"{len(made.found):,} estimates, {known:,} known, easy; best of 3, longest step {1e3 * longest:.3g} ms"
    return Figure(ESTIMATES, min(takes), "s", said)


def cycles(world: World) -> tuple[list[float], int]:
    """Seconds of each cycle, and how many pods were bound in all."""
    world.run()
    world.settle()
    world.run()
    times, started = [], 0
    for number in range(CYCLES):
        world.now += 1
        world.end(f"runs-{number}-0")
        began = time.perf_counter()
        decided = world.run()
        times.append(time.perf_counter() - began)
        started += len(decided.binds)
        world.settle()
        world.run()
    return times, started


def waiting(mode: str) -> World:
    """Four pods run on each node, for one to five hours; everybody else waits."""
    world = World(
        policy(
            plugins=["priority", "gang", "drf", "predicates", "nodeorder"],
            actions="allocate, backfill",
            configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
        )
    )
    world.nodes(*(f"n{number}" for number in range(NODES)), cpu=32, memory="128Gi")
    for number in range(4 * NODES):
        node, place = number % NODES, number // NODES
        annotations = {"hekla.io/walltime": f"{3600 + (7919 * number) % 14400}"}
        world.job(
            f"runs-{node}-{place}",
            cpu=8,
            memory="30Gi",
            on=[f"n{node}"],
            phase="Running",
            annotations=annotations,
        )
    for number in range(WAITING):
        shape = number % SHAPES
        world.job(
            f"waits-{number}",
            pods=1 + number % 4,
            cpu=f"{1000 + 20 * shape}m",
            memory=f"{1 + shape % 50}Gi",
            annotations={"hekla.io/walltime": f"{60 + (104729 * number) % 36000}"},
        )
    return world
