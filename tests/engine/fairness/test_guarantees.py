"""A guarantee is kept free for an idle queue, however many others borrow, and in trees too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.model.tasks import Status
from hekla.engine.plugins.fairness.guarantees import Guarantees
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import play, running, submitted
from tests.engine.fairness.test_rest import held

ACTIONS = "enqueue, allocate, backfill, reclaim"


def cluster(*, tree: bool = False) -> World:
    capacity: dict[str, Any] = {"name": "capacity", "enableHierarchy": tree}
    world = World(
        policy(
            tiers=[["priority", "gang", "conformance"], ["predicates", capacity, "nodeorder"]],
            actions=ACTIONS,
        )
    )
    world.nodes("n1", "n2", cpu=6, memory="64Gi")
    if tree:
        world.queue("root")
    return world


def ask(world: World, *queues: str, jobs: int = 12) -> None:
    for queue in queues:
        for number in range(jobs):
            submitted(world, f"{queue}-{number}", 1, queue=queue)


def cpus(world: World, *queues: str) -> int:
    return sum(int(held(world)[queue] // 1000) for queue in queues)


def test_two_that_borrow_leave_a_third_its_guarantee() -> None:
    world = cluster()
    world.queue("idle", guarantee={"cpu": 4})
    world.queue("qa", deserved={"cpu": 4})
    world.queue("qb", deserved={"cpu": 4})
    ask(world, "qa", "qb")
    play(world)
    assert cpus(world, "qa", "qb") == 8, "12 less the 4 that are kept, for both together"
    waiting = next(
        f"{queue}-{number}"
        for queue in ("qa", "qb")
        for number in range(12)
        if not running(world, f"{queue}-{number}")
    )
    assert "what others' guarantees leave" in world.why(waiting)
    ask(world, "idle", jobs=4)
    told = play(world)
    assert cpus(world, "idle") == 4
    assert not [one for decisions in told for one in decisions.evictions], (
        "nobody has to leave for what was kept"
    )


def test_one_gang_may_use_its_own_guarantee_and_not_the_others() -> None:
    world = cluster()
    world.queue("idle", guarantee={"cpu": 4})
    world.queue("qa", guarantee={"cpu": 2})
    submitted(world, "qa-wide", 9, queue="qa")
    ask(world, "qa", jobs=8)
    play(world)
    assert (running(world, "qa-wide"), cpus(world, "qa")) == (0, 8)


def test_alike_pods_in_a_row_stop_at_what_is_kept() -> None:
    world = cluster()
    world.queue("idle", guarantee={"cpu": 4})
    world.queue("qa")
    world.queue("qb")
    for queue in ("qa", "qb"):
        submitted(world, f"{queue}-elastic", 6, least=1, queue=queue)
    play(world)
    assert cpus(world, "qa", "qb") == 8
    session = open_session(world.state, hooks_of(world.state, world.policy), world.now)
    jobs = [world.state.jobs[f"default/{queue}-elastic"] for queue in ("qa", "qb")]
    waiting = [
        (job, task) for job in jobs for task in job.tasks.values() if task.status is Status.PENDING
    ]
    assert len(waiting) == 4
    for job, task in waiting:  # as preempt and reclaim ask, pod by pod
        assert not session.votes.allocatable(session.queue_of(job), task)


@pytest.mark.parametrize("parent", [{}, {"capability": {"cpu": 10}}, {"guarantee": {"cpu": 4}}])
def test_in_a_tree_a_cousin_s_guarantee_is_kept(parent: dict[str, Any]) -> None:
    world = cluster(tree=True)
    world.queue("top", parent="root", **parent)
    world.queue("idle", parent="top", guarantee={"cpu": 4})
    world.queue("sister", parent="top", deserved={"cpu": 2})
    world.queue("cousin", parent="root", deserved={"cpu": 2})
    ask(world, "sister", "cousin")
    play(world)
    assert cpus(world, "sister", "cousin") == 8
    assert cpus(world, "sister") <= parent.get("capability", {"cpu": 12})["cpu"] - 4
    ask(world, "idle", jobs=4)
    play(world)
    assert cpus(world, "idle") == 4


def test_what_is_guaranteed_in_vain_stops_nobody() -> None:
    """Guarantees that the cluster cannot keep, because a node is gone, leave each queue its own."""
    world = cluster()
    world.queue("qa", guarantee={"cpu": 8})
    world.queue("qb", guarantee={"cpu": 8})
    ask(world, "qa")
    play(world)
    assert cpus(world, "qa") == 8
    ask(world, "qb")
    play(world)
    assert cpus(world, "qb") == 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=5), st.data())
def test_counting_up_and_down_is_counting_anew(
    queues: list[tuple[int, int]], data: st.DataObject
) -> None:
    names = [f"q{number}" for number in range(len(queues))]
    parents = [
        data.draw(st.sampled_from(["", *names[:number]])) if number else ""
        for number in range(len(names))
    ]
    leaves = [name for name in names if name not in parents]
    now = dict.fromkeys(names, 0.0)

    def book() -> Guarantees:
        def below(name: str) -> float:
            return now[name] + sum(
                below(one) for one, parent in zip(names, parents) if parent == name
            )

        rows = (
            (name, parent, {"cpu": float(kept)}, {"cpu": below(name)}, {})
            for name, parent, (kept, _) in zip(names, parents, queues)
        )
        return Guarantees({"cpu": 12.0}, rows)

    kept = book()
    for _ in range(12):
        queue = data.draw(st.sampled_from(leaves))
        more = data.draw(st.sampled_from([1.0, 2.0, -1.0]))
        if now[queue] < -more if more < 0 else not kept.admits(queue, {"cpu": more}):
            continue
        now[queue] += more
        kept.hold(queue, {"cpu": abs(more)}, 1.0 if more > 0 else -1.0)
        fresh = book()
        for name in leaves:
            assert kept.most(name, {"cpu": now[name]}) == pytest.approx(
                fresh.most(name, {"cpu": now[name]})
            )
