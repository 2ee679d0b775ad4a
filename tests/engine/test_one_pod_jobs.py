"""Jobs of one pod in a row: every cycle decides what it decides by the long way, and leaves the
same tables."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.plugin import Depends, Plugin, Reads, Score, Source
from hekla.engine.framework.session import Session
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.tasks import Status
from hekla.engine.placement.lookahead import Lookahead
from hekla.engine.placement.merge import Merge
from hekla.engine.world import World, policy


class LongWay(Plugin):
    """Says nothing, but might look at nodes: so every placement is written into the table before
    the next."""

    name = "long-way"

    def allocated(self, *told: Any) -> None:
        """Heard."""


class ShortWay(LongWay):
    reads = Reads(between_placements=Source.JOBS)

    def allocated(self, *told: Any) -> None:
        """Heard."""


class Stumbling(LongWay):
    """Raises when told of every fifth job."""

    name = "stumbling"

    def allocated(self, job: Any, task: Any, total: Any, count: int) -> None:
        if job.name.endswith("3"):
            raise RuntimeError(f"no liking for {job.name}")


class StumblingShort(Stumbling):
    reads = Reads(between_placements=Source.JOBS)
    allocated = Stumbling.allocated


POLICIES: dict[str, tuple[list[list[Any]], str]] = {
    "chart": (
        [
            ["priority", "gang", "conformance"],
            ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"],
        ],
        "enqueue, allocate, backfill",
    ),
    "evicting": (
        [
            ["priority", "gang", "conformance"],
            ["drf", "predicates", "capacity", "nodeorder", "pdb"],
        ],
        "enqueue, allocate, backfill, preempt, reclaim",
    ),
    "without gang": (
        [[{"name": "drf", "enableHierarchy": True}, "predicates", "binpack"]],
        "allocate, backfill",
    ),
    "sla": (
        [
            ["priority", "gang", {"name": "sla", "arguments": {"sla-waiting-time": "3s"}}],
            ["proportion", "predicates"],
        ],
        "enqueue, allocate",
    ),
}
QUEUES = ("default", "other", "third")


def pair(
    tiers: list[list[Any]],
    actions: str,
    long: type[Plugin] = LongWay,
    short: type[Plugin] = ShortWay,
) -> tuple[World, World]:
    """Two worlds of one policy: by the long way, and by the short one."""
    made = tuple(
        World(
            policy(tiers=[*tiers, [long.name]], actions=actions, custom=[kind]), default_queue=False
        )
        for kind in (long, short)
    )
    return made[0], made[1]


def queues(world: World, draw: random.Random) -> None:
    for name in QUEUES:
        spec: dict[str, Any] = {"weight": draw.randint(1, 3), "priority": draw.choice([0, 0, 1])}
        if draw.random() < 0.3:
            spec["capability"] = {"cpu": draw.randint(1, 60)}
        annotations = {
            "volcano.sh/hierarchy": f"root/{name}",
            "volcano.sh/hierarchy-weights": f"1/{draw.randint(1, 3)}",
        }
        if draw.random() < 0.2:
            annotations["hekla.io/job-order"] = draw.choice(["strict-fifo", "fifo", "fair-share"])
        state = "Closed" if draw.random() < 0.1 else "Open"
        world.state.upsert_queue(
            {
                "metadata": {"name": name, "annotations": annotations},
                "spec": spec,
                "status": {"state": state},
            }
        )


def step(world: World, draw: random.Random, number: int) -> None:
    kind = draw.randrange(13)
    if kind < 4:
        few = draw.random() < 0.2
        labels = {"app": draw.choice("aab"), **draw.choice([{}, {"own": str(number)}])}
        like = {
            "cpu": draw.choice([None, 0.5, 2]) if few else 1,
            "spec": zone() if few else {},
            "labels": labels,
        }
        lanes = draw.sample(QUEUES, draw.randint(1, 3))
        odd = draw.choice([0.0, 0.0, 0.1])  # Most are alike: only then is there a short way.
        for at in range(draw.choice([1, 4, 12, 30])):
            pods = 3 if draw.random() < odd else 1
            world.job(
                f"job{number}-{at}",
                pods=pods,
                min_available=draw.choice([0, 2]) if draw.random() < odd else pods,
                queue=draw.choice(lanes),
                phase=draw.choice(["Pending", "Inqueue"]),
                priority="high" if draw.random() < odd else "",
                min_resources=draw.choice([None, {"cpu": pods}]),
                port=80 if draw.random() < odd else 0,
                preemptable=True if draw.random() < odd else None,
                **like,
            )
            if draw.random() < odd:
                world.pod(f"later{number}-{at}", job=f"job{number}-{at}", cpu=1, spec=gated())
    elif kind == 4:
        names = (f"n{draw.randrange(9)}" for _ in range(3))
        labels = {
            "zone": draw.choice("ab"),
            **draw.choice([{}, {"topology.kubernetes.io/zone": draw.choice("ab")}]),
        }
        world.nodes(*names, cpu=draw.randint(1, 30), pods=draw.randint(2, 40), labels=labels)
    elif kind == 5:
        world.state.remove_node(f"n{draw.randrange(9)}")
    elif kind == 6:
        for key in [key for key in world.pods if draw.random() < 0.3]:
            del world.pods[key]
            world.state.remove_pod(key)
    elif kind == 7:
        for tree in list(world.pods.values()):
            if tree["spec"]["nodeName"] and draw.random() < 0.5:
                tree["status"]["phase"] = draw.choice(
                    ["Running", "Succeeded", "Succeeded", "Failed"]
                )
                world.state.upsert_pod(tree)
    elif kind == 8 and draw.random() < 0.2:
        world.pod(f"apart{number}", job=f"alone{number}", cpu=1, labels={"app": "b"}, spec=apart())
        world.job(f"alone{number}", pods=0, min_available=1, queue=draw.choice(QUEUES))
    elif kind == 9 and draw.random() < 0.5:
        queues(world, draw)
    elif kind == 9:
        selected = draw.choice([{"app": "a"}, {"app": "b"}, {"app": "a", "own": str(number)}, None])
        world.selector("Service", draw.choice("xy"), selected)
    else:
        world.now += 1
        world.run()
        if draw.random() < 0.8:
            world.settle()
        else:
            for bind in world.decisions.binds:
                world.state.bind_failed(bind.pod, draw.choice([None, world.now]))


def zone() -> dict[str, Any]:
    return {"nodeSelector": {"zone": "a"}}


def apart() -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "b"}}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


def gated() -> dict[str, Any]:
    return {"schedulingGates": [{"name": "later"}]}


def tables(world: World) -> Any:
    """What a cycle leaves behind."""
    state = world.state
    nodes = state.nodes
    columns = {
        name: getattr(nodes, name).tolist()
        for name in ("used", "releasing", "pipelined", "requested", "nonzero", "pods")
    }
    jobs = {
        job.key: (
            job.phase,
            job.allocated,
            job.conditions,
            job.fit_message,
            sorted(job.fit_errors),
            job.contribution,
            [
                (task.key, task.status, task.row, task.last, task.condition)
                for task in job.tasks.values()
            ],
        )
        for job in state.jobs.values()
    }
    sums = {
        queue.name: (queue.allocated, queue.request, queue.inqueue, queue.elastic, queue.jobs)
        for queue in state.queues.values()
    }
    held = [list(tasks) for tasks in nodes.tasks]
    return columns, jobs, sums, held, nodes.ports, list(state.active), state.job_table.reserved


def compare(
    name: str, seed: int, length: int, long: type[Plugin] = LongWay, short: type[Plugin] = ShortWay
) -> None:
    worlds = pair(*POLICIES[name], long, short)
    draws = [random.Random(seed), random.Random(seed)]
    for world, draw in zip(worlds, draws):
        queues(world, draw)
        world.priority_class("high", 100)
        world.nodes(
            "n0",
            "n1",
            "big",
            cpu=draw.choice([9, 40, 150]),
            pods=150,
            memory="64Gi",
            labels={"zone": "a"},
        )
    for number in range(length):
        for world, draw in zip(worlds, draws):
            step(world, draw, number)
        assert worlds[0].decisions == worlds[1].decisions
    for world in worlds:
        world.now += 1
        world.run()
    assert worlds[0].decisions == worlds[1].decisions
    assert tables(worlds[0]) == tables(worlds[1])


def forget(self: Lookahead, nodes: NodeTable) -> None:
    """A cycle begins with nothing chosen ahead."""
    self.sequences = {}
    nodes.log.clear()


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(3, 25))
def test_nodes_that_are_known_from_the_last_cycle_are_those_that_would_be_chosen(
    name: str, seed: int, length: int
) -> None:
    tiers, actions = POLICIES[name]
    found = []
    for thorough in (True, False):
        draw, world = (
            random.Random(seed),
            World(policy(tiers=tiers, actions=actions), default_queue=False),
        )
        decided = []
        with pytest.MonkeyPatch.context() as patch:
            if thorough:
                patch.setattr(Lookahead, "begin_cycle", forget)
            queues(world, draw)
            world.priority_class("high", 100)
            world.nodes(
                "n0",
                "n1",
                "big",
                cpu=draw.choice([9, 40, 150]),
                pods=150,
                memory="64Gi",
                labels={"zone": "a"},
            )
            for number in range(length):
                if draw.random() < 0.5:
                    step(world, draw, number)
                else:  # one small burst after the other
                    for at in range(draw.choice([1, 3, 9])):
                        world.job(f"burst{number}-{at}", cpu=1, queue=draw.choice(QUEUES))
                    world.now += 1
                    world.run()
                    if draw.random() < 0.5:
                        world.settle()
                decided.append(world.decisions)
        found.append((decided, tables(world)))
    assert found[0] == found[1]


def test_a_burst_of_jobs_is_placed_by_what_one_cycle_has_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(policy())
    world.nodes("n1", "n2", "n3", cpu=150, pods=150)
    asked: list[int] = []
    take = Merge.take
    monkeypatch.setattr(Merge, "take", lambda self, count: asked.append(count) or take(self, count))
    for number in range(12):
        for at in range(4):
            world.job(f"job{number}-{at}", cpu=1)
        world.run()
        world.settle()
    assert asked == [4, 256]  # not one for each cycle


class Moody(Plugin):
    """Likes another node in each cycle."""

    name = "moody"

    def open(self, session: Session) -> None:
        self.liked = session.state.cycle % 2

    def scores(self) -> Iterator[Score]:
        yield Score(
            "moody",
            1000.0,
            Depends.NODE_ROW,
            lambda pods, nodes, task: (
                100.0 * (nodes.take(np.arange(len(nodes.table))) == self.liked)
            ),
        )


CHANGES: dict[str, Callable[[World], Any]] = {
    "nothing": lambda world: None,
    "a new node": lambda world: world.nodes("n4", cpu=150, pods=150),
    "a larger node": lambda world: world.nodes("n2", cpu=900, pods=900),
    "nodes that go": lambda world: [world.state.remove_node(name) for name in ("n1", "n3")],
    "a node that fills": lambda world: world.pod("big", cpu=140, on="n2"),
    "a pod that goes": lambda world: world.state.remove_pod(next(iter(world.pods))),
    "a bind that fails": lambda world: world.state.bind_failed(world.decisions.binds[-1].pod),
}


@pytest.mark.parametrize("moody", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_happens_between_two_cycles_counts(
    monkeypatch: pytest.MonkeyPatch, change: str, moody: bool
) -> None:
    found = []
    for thorough in (False, True):
        if thorough:
            monkeypatch.setattr(Lookahead, "begin_cycle", forget)
        plugins: list[Any] = ["gang", "predicates", "nodeorder", *(["moody"] if moody else [])]
        world = World(policy(tiers=[plugins], custom=[Moody]))
        world.nodes("n1", "n2", "n3", cpu=150, pods=150)
        for number in range(5):
            if number == 4:
                CHANGES[change](world)
            for at in range(4):
                world.job(f"job{number}-{at}", cpu=1)
            world.run()
            if number != 3:
                world.settle()
        found.append(world.decisions.binds)
    assert found[0] == found[1]


LENGTHS = st.integers(3, 25)
SEEDS = st.integers(0, 10**9)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, length=LENGTHS)
def test_the_short_way_decides_what_the_long_way_does(name: str, seed: int, length: int) -> None:
    compare(name, seed, length)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, length=LENGTHS)
def test_a_plugin_that_fails_leaves_the_same_behind_on_both_ways(seed: int, length: int) -> None:
    compare("chart", seed, length, Stumbling, StumblingShort)


@pytest.mark.slow(seconds=100)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=500, deadline=None)
@given(seed=SEEDS, length=LENGTHS)
def test_the_short_way_decides_what_the_long_way_does_in_thousands_of_clusters(
    name: str, seed: int, length: int
) -> None:
    compare(name, seed, length)


def test_many_turns_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    hold_many = NodeTable.hold_many

    def counting(self: NodeTable, tasks: Any, rows: Any, status: Status) -> None:
        written.append(len(tasks))
        hold_many(self, tasks, rows, status)

    monkeypatch.setattr(NodeTable, "hold_many", counting)
    for world, many in zip(pair(*POLICIES["chart"]), (False, True)):
        written.clear()
        world.queue("default")
        world.nodes("n1", "n2", cpu=64, memory="64Gi")
        for number in range(40):
            world.job(f"job{number}", cpu=1)
        assert len(world.run().binds) == 40
        assert (max(written, default=0) > 20) is many


def test_a_subclass_does_not_inherit_what_its_base_reads() -> None:
    class Silent(ShortWay):
        name = "silent"

        def allocated(self, *told: Any) -> None:
            """Looks at nodes, for all that is known."""

    world = World(policy(plugins=["gang", "silent"], custom=[Silent]))
    world.run()
    assert not world.state.hooks.placements_unseen  # type: ignore[attr-defined]
