"""Placing k pods of one class at once is the same as placing them one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.model.tasks import Status
from hekla.engine.placement import merge
from hekla.engine.placement.placer import Placer
from hekla.engine.world import World, policy

SIZES = st.tuples(st.integers(1, 8), st.integers(1, 16))
NODES = st.lists(
    st.tuples(SIZES, st.integers(0, 3), st.sampled_from(["", "soft", "zone=a", "zone=b"])),
    min_size=1,
    max_size=7,
)
SCORES = st.sampled_from([
    ["predicates", "nodeorder"],
    ["predicates", "binpack"],
    ["predicates", "nodeorder", "binpack"],
    ["predicates", {"name": "nodeorder", "arguments": {"mostrequested.weight": 3, "leastrequested.weight": 0}}, "binpack"],
    ["predicates", {"name": "nodeorder", "arguments": {"leastrequested.weight": -2}}],
])  # fmt: skip


def build(
    nodes: list, plugins: list, pods: int, request: tuple[float, int], seed: int, **more: Any
) -> World:
    world = World(policy(plugins=["gang", *plugins], actions="allocate"))
    world.policy = type(world.policy)(world.policy.actions, world.policy.tiers, {}, {}, seed)
    for number, ((cpu, memory), used, kind) in enumerate(nodes):
        labels = dict([kind.split("=")]) if "=" in kind else {}
        taints = ["later=:PreferNoSchedule"] if kind == "soft" else []
        world.nodes(
            f"n{number}", cpu=cpu, memory=f"{memory}Gi", pods=6, labels=labels, taints=taints
        )
        for held in range(min(used, cpu)):
            world.pod(f"held-{number}-{held}", job="held", node=f"n{number}", cpu=1)
    world.job("held", pods=0)
    prefers = {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 7,
                        "preference": {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]
                        },
                    },
                    {
                        "weight": 3,
                        "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                    },
                ]
            }
        }
    }
    world.job(
        "many",
        pods=pods,
        min_available=1,
        cpu=request[0],
        memory=f"{request[1]}Gi",
        **{"spec": prefers, **more},
    )
    return world


STEPS = st.sampled_from([(1, 1), (3, 2), (merge.AT_ONCE, merge.HARDLY_MORE)])


def bound(
    world: World,
    *,
    merged: bool,
    stepped: bool,
    steps: tuple[int, int] = (merge.AT_ONCE, merge.HARDLY_MORE),
) -> dict[str, str]:
    """What is bound when classes may be merged or stepped through; the plain way asks every filter
    and score before each pod.

    `steps`: how many levels a merge computes together, at most and at least.
    """

    def reluctant(self: Placer, *_: object) -> bool:
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merge, "AT_ONCE", steps[0])
        patched.setattr(merge, "HARDLY_MORE", steps[1])
        if not merged:
            patched.setattr(Placer, "changes_others", reluctant)
        if not stepped:
            patched.setattr(Placer, "steps", lambda *_: None)
        return world.run().bound()


REQUESTS = st.tuples(st.sampled_from([0.25, 0.5, 1, 2]), st.integers(1, 3))


@settings(max_examples=300, deadline=None)
@given(
    nodes=NODES,
    plugins=SCORES,
    pods=st.integers(1, 20),
    request=REQUESTS,
    seed=st.integers(0, 2),
    steps=STEPS,
)
def test_many_at_once_equals_one_at_a_time(
    nodes: list, plugins: list, pods: int, request: tuple, seed: int, steps: tuple
) -> None:
    plain = bound(build(nodes, plugins, pods, request, seed), merged=False, stepped=False)
    assert (
        bound(build(nodes, plugins, pods, request, seed), merged=True, stepped=True, steps=steps)
        == plain
    )
    assert bound(build(nodes, plugins, pods, request, seed), merged=False, stepped=True) == plain


SPREAD = {"matchLabels": {"spread": "yes"}}


def spread(when: str, skew: int) -> dict:
    return {
        "topologySpreadConstraints": [
            {
                "topologyKey": "zone",
                "maxSkew": skew,
                "whenUnsatisfiable": when,
                "labelSelector": SPREAD,
            }
        ]
    }


def affinity(kind: str, key: str, weight: int) -> dict:
    term = {"topologyKey": key, "labelSelector": SPREAD}
    if weight:
        return {
            "affinity": {
                kind: {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": weight, "podAffinityTerm": term}
                    ]
                }
            }
        }
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


TOGETHER = st.one_of(
    st.builds(spread, st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]), st.integers(1, 3)),
    st.builds(
        affinity,
        st.sampled_from(["podAffinity", "podAntiAffinity"]),
        st.sampled_from(["zone", "kubernetes.io/hostname"]),
        st.sampled_from([0, 5, 60]),
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    nodes=NODES,
    plugins=SCORES,
    pods=st.integers(2, 20),
    request=REQUESTS,
    seed=st.integers(0, 2),
    terms=TOGETHER,
    ports=st.booleans(),
)
def test_stepping_equals_asking_every_time(
    nodes: list, plugins: list, pods: int, request: tuple, seed: int, terms: dict, ports: bool
) -> None:
    more = {"spec": terms, "labels": {"spread": "yes"}, "port": 9000 if ports else 0}
    plain = bound(build(nodes, plugins, pods, request, seed, **more), merged=True, stepped=False)
    assert (
        bound(build(nodes, plugins, pods, request, seed, **more), merged=True, stepped=True)
        == plain
    )


@settings(max_examples=150, deadline=None)
@given(
    nodes=NODES,
    plugins=SCORES,
    pods=st.integers(1, 25),
    request=st.tuples(st.sampled_from([0.5, 1, 3]), st.integers(1, 6)),
)
def test_a_node_never_holds_more_than_it_has(
    nodes: list, plugins: list, pods: int, request: tuple
) -> None:
    world = build(nodes, plugins, pods, request, 0)
    before = (world.state.nodes.used > world.state.nodes.allocatable).any(axis=0)

    world.run()

    table = world.state.nodes
    over = (table.used > table.allocatable + 0.1).any(axis=0)
    assert not (over & ~before).any()
    assert (table.pods <= np.maximum(table.allocatable[2], 0)).all()


def test_ties_go_to_the_first_node_or_to_the_seed() -> None:
    chosen = set()
    for seed in range(8):
        world = build([((4, 8), 0, "")] * 5, ["predicates", "nodeorder"], 1, (1, 1), seed)
        chosen.add(world.run().bound()["default/many-task-0"])
        if seed == 0:
            assert chosen == {"n0"}
    assert len(chosen) > 1


def test_undoing_a_statement_restores_every_array() -> None:
    world = build([((4, 8), 1, ""), ((2, 4), 0, "soft")], ["predicates", "nodeorder"], 4, (1, 1), 0)
    session = open_session(world.state, hooks_of(world.state, world.policy), 0.0)
    nodes = world.state.nodes
    columns = ("used", "releasing", "pipelined", "requested", "nonzero", "pods")
    before = {name: getattr(nodes, name).copy() for name in columns}
    tasks = sorted(world.state.jobs["default/many"].pending(), key=lambda task: task.key)

    statement = session.statement()
    statement.place(tasks[:3], np.array([0, 1, 0]), Status.ALLOCATED)
    statement.pipeline(tasks[3], 1)
    statement.evict(world.state.tasks["default/held-0-0"], "preempt")
    assert any((getattr(nodes, name) != before[name]).any() for name in columns)
    statement.discard()

    for name in columns:
        assert (getattr(nodes, name) == before[name]).all(), name
    assert all(task.status is Status.PENDING and task.row < 0 for task in tasks)
    assert tasks[0].last is not None and tasks[0].last[0] is Status.ALLOCATED
