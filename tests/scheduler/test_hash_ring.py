"""Schedulers that divide a cluster by hash."""

from __future__ import annotations

import pytest

from hekla.api import scheduling
from hekla.api.kubernetes import core
from hekla.engine.model.state import State
from hekla.scheduler.hash_ring import Ring
from hekla.scheduler.informers import sources

NAMES = [f"scheduler-{number}" for number in range(3)]
ENVIRONMENT = {
    "MULTI_SCHEDULER_ENABLE": "true",
    "SCHEDULER_POD_NAME": "scheduler-1",
    "SCHEDULER_NUM": "3",
}


def test_everything_belongs_to_exactly_one() -> None:
    rings = [Ring(NAMES, name) for name in NAMES]
    owners = [[ring.owns_node(f"node-{number}") for ring in rings] for number in range(300)]
    assert all(sum(one) == 1 for one in owners)
    assert all(any(one[at] for one in owners) for at in range(3))


def test_one_more_scheduler_moves_only_what_it_takes() -> None:
    before, after = Ring(NAMES, NAMES[0]), Ring([*NAMES, "scheduler-3"], NAMES[0])
    moved = [name for name in map(str, range(1000)) if before.owner(name) != after.owner(name)]
    assert moved
    assert {after.owner(name) for name in moved} == {"scheduler-3"}


def test_the_environment_says_whether_there_is_one() -> None:
    assert Ring.from_environment({}) is None
    ring = Ring.from_environment(ENVIRONMENT)
    assert ring is not None
    assert (ring.own, set(ring.owners)) == ("scheduler-1", set(NAMES))
    alone = Ring.from_environment(
        {**ENVIRONMENT, "SCHEDULER_POD_NAME": "scheduler-0", "SCHEDULER_NUM": "many"}
    )
    assert alone is not None
    assert set(alone.owners) == {"scheduler-0"}
    with pytest.raises(ValueError, match="ends in the number"):
        Ring.from_environment({**ENVIRONMENT, "SCHEDULER_POD_NAME": "scheduler"})


def test_pods_of_one_owner_stay_together_and_pods_on_nodes_count_where_the_node_does() -> None:
    ring = Ring(NAMES, "scheduler-1")
    mine = next(name for name in map(str, range(100)) if ring.owner(name) == "scheduler-1")
    other = next(name for name in map(str, range(100)) if ring.owner(name) != "scheduler-1")
    owned = {"name": other, "ownerReferences": [{"name": mine}]}
    assert ring.owns({"metadata": owned})
    assert ring.has_business({"metadata": owned, "spec": {}})
    assert not ring.has_business({"metadata": owned, "spec": {"nodeName": other}})
    assert ring.has_business({"metadata": {"name": other}, "spec": {"nodeName": mine}})


def test_the_feed_lets_in_what_is_ours() -> None:
    ring = Ring(NAMES, "scheduler-1")
    mine = next(name for name in map(str, range(100)) if ring.owner(name) == "scheduler-1")
    other = next(name for name in map(str, range(100)) if ring.owner(name) != "scheduler-1")
    state = State(scheduler_names=["volcano"])
    by_kind = {source.kind.kind: source for source in sources(state, ring=ring)}
    for name in (mine, other):
        by_kind[core.NODE.kind].upsert({"metadata": {"name": name}, "status": {}})
        by_kind[core.POD.kind].upsert(
            {
                "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"schedulerName": "volcano"},
            }
        )
        by_kind[scheduling.POD_GROUP.kind].upsert(
            {"metadata": {"name": name, "namespace": "ns"}, "spec": {}}
        )
    assert (list(state.nodes.rows), list(state.tasks), list(state.jobs)) == (
        [mine],
        [f"ns/{mine}"],
        [f"ns/{mine}"],
    )
