"""Planned defragmentation: what it would move and why, what it leaves alone, and that it ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.actions.defragment import Plan, plan
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.world import World, policy

MIX = [{"requests": {"cpu": 4, "nvidia.com/gpu": 4}}, {"requests": {"cpu": 1, "nvidia.com/gpu": 1}}]
STATED = {"name": "fragmentation", "arguments": {"fragmentation.mix": MIX}}


def world(*plugins: Any, actions: str = "allocate, defragment", **arguments: int) -> World:
    return World(
        policy(
            plugins=["gang", "predicates", STATED, *plugins],
            actions=actions,
            configurations=[{"name": "defragment", "arguments": arguments}],
        )
    )


def scattered(here: World, **job: Any) -> None:
    """Two nodes of four GPUs, on each a pod with one of them: nobody who wants four finds them."""
    here.nodes("a", "b", cpu=16, gpu=4)
    for node in ("a", "b"):
        here.job(f"on-{node}", cpu=1, gpu=1, on=[node], phase="Running", **job)


def planned(here: World, least: float = 0.5, most: int = 5) -> Plan:
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    return plan(session, least, most)


def test_a_plan_says_what_would_fit_and_changes_nothing() -> None:
    here = world(actions="allocate")
    scattered(here)
    here.job("large", cpu=4, gpu=4)
    here.run()
    before = here.state.nodes.used.copy(), dict(here.state.tasks)
    found = planned(here)
    (move,) = found.moves
    assert {move.source, move.target} == {"a", "b"}
    assert found.fit == {"default/large": 1}
    assert found.before - found.after >= move.gain - 1e-9 > 0.5
    assert (here.state.nodes.used == before[0]).all()
    assert here.state.tasks == before[1]


def test_it_moves_one_pod_and_the_large_one_fits() -> None:
    here = world()
    scattered(here)
    here.job("large", cpu=4, gpu=4)
    (eviction,) = here.run().evictions
    assert eviction.reason == "defragment"
    assert "pods that then fit: 1 of default/large" in eviction.purpose
    here.settle(coming_back=True)
    ends(here)
    placed = {pod["spec"]["nodeName"] for name, pod in here.pods.items() if "on-" in name}
    assert len(placed) == 1
    assert here.pods["default/large-task-0"]["spec"]["nodeName"] not in {"", *placed}


def test_without_the_action_nobody_is_moved() -> None:
    here = world(actions="allocate")
    scattered(here)
    here.job("large", cpu=4, gpu=4)
    assert here.run().evictions == []


def test_a_gain_below_the_threshold_is_none() -> None:
    here = world(minGain=10_000)
    scattered(here)
    assert here.run().evictions == []
    assert planned(here, least=100).moves == []


def test_a_gang_stays_whole() -> None:
    here = world()
    here.nodes("a", "b", cpu=16, gpu=4)
    here.job("gang", pods=2, cpu=1, gpu=1, on=["a", "b"], phase="Running")
    assert here.run().evictions == []
    here = world()
    here.nodes("a", "b", cpu=16, gpu=4)
    here.job("gang", pods=2, min_available=1, cpu=1, gpu=1, on=["a", "b"], phase="Running")
    assert len(here.run().evictions) == 1


def test_whoever_may_not_be_evicted_stays() -> None:
    here = world()
    scattered(here, preemptable=False)
    assert here.run().evictions == []


def test_calm_eviction_is_obeyed() -> None:
    calm = {"name": "calm-eviction", "arguments": {"minRuntime": "10m"}}
    here = world(calm)
    here.tells_starts = True
    scattered(here)
    for tree in here.pods.values():
        tree["status"]["startTime"] = "1970-01-12T13:46:00Z"  # 40 s before the world's clock
        here.state.upsert_pod(tree)
    assert here.run().evictions == []
    here.now += 600
    assert len(here.run().evictions) == 1


def test_a_rate_and_a_notice_hold() -> None:
    none = {"name": "calm-eviction", "arguments": {"evictionRate": "0/1h"}}
    here = world(none)
    scattered(here)
    assert here.run().evictions == []
    told = {"name": "calm-eviction", "arguments": {"notice": "60s"}}
    here = world(told)
    scattered(here)
    decided = here.run()
    assert decided.evictions == []
    assert len(decided.notices or ()) == 1
    here.settle()
    here.now += 61
    assert len(here.run().evictions) == 1


def test_budgets_hold() -> None:
    here = world("pdb")
    scattered(here, labels={"app": "served"})
    here.state.upsert_other(
        "PodDisruptionBudget",
        {
            "metadata": {"name": "served", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "served"}}},
            "status": {"disruptionsAllowed": 0},
        },
    )
    assert here.run().evictions == []


def ends(here: World, most: int = 40) -> None:
    """Cycles without an outside change come to rest."""
    for _ in range(most):
        decided = here.run()
        if not decided.binds and not decided.evictions and not here.run().evictions:
            return
        here.settle(coming_back=True)
        here.now += 10
    raise AssertionError("it still evicts")


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([0, 1, 1, 2]), st.integers(0, 3)),
        min_size=2,
        max_size=14,
    ),
    st.sampled_from([[], ["nodeorder"], ["binpack"]]),
    st.booleans(),
)
def test_it_ends(pods: list[tuple[int, int, int]], others: list[str], states: bool) -> None:
    """Whatever else decides where pods go, and from wherever they begin."""
    first: Any = STATED if states else "fragmentation"
    here = World(
        policy(
            plugins=["gang", "predicates", first, *others],
            actions="allocate, defragment",
            configurations=[{"name": "defragment", "arguments": {"minGain": 5}}],
        )
    )
    here.nodes(*(f"n{number}" for number in range(4)), cpu=9, gpu=4)
    room = {f"n{number}": [9, 4] for number in range(4)}
    for number, (cpu, gpu, node) in enumerate(pods):
        name = f"n{node}"
        fits = room[name][0] >= cpu and room[name][1] >= gpu
        if fits:
            room[name][0] -= cpu
            room[name][1] -= gpu
        where: Any = {"on": [name], "phase": "Running"} if fits else {}
        here.job(f"j{number}", cpu=cpu, gpu=gpu, **where)
    ends(here)
