"""Leaving out domains that are too small, and those that cannot be better, changes nothing about
what is decided."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.domains import Domains
from hekla.engine.world import World, policy

PLUGINS = ["gang", "predicates", "binpack", "network-topology-aware"]
RACKS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3),
    min_size=1,
    max_size=6,
)
"""For each rack its nodes: cpus, and how many are taken."""
HARD = st.sampled_from([{"mode": "hard", "highestTierAllowed": tier} for tier in (1, 2, 3)])
WISH = st.one_of(HARD, st.just({"mode": "soft"}))


def build(
    racks: list, wish: dict, parts: tuple[int, int, int] | None, pods: int, cpu: int, others: list
) -> World:
    """Racks in rows of two, rows under one root; a job of plain pods, or of sub-groups with a wish
    of their own."""
    world = World(policy(plugins=PLUGINS, actions="enqueue, allocate, backfill"))
    for number, nodes in enumerate(racks):
        names = [f"r{number}-n{at}" for at in range(len(nodes))]
        for name, (size, used) in zip(names, nodes):
            world.nodes(name, cpu=size)
            if min(size, used):
                world.pod(
                    f"held-{name}", node=name, cpu=min(size, used), scheduler="default-scheduler"
                )
        domain(world, f"rack-{number}", 1, "Node", names)
    rows = [range(at, min(at + 2, len(racks))) for at in range(0, len(racks), 2)]
    for number, row in enumerate(rows):
        domain(world, f"row-{number}", 2, "HyperNode", [f"rack-{one}" for one in row])
    domain(world, "all", 3, "HyperNode", [f"row-{number}" for number in range(len(rows))])
    group: dict[str, Any] = {"networkTopology": wish}
    if parts is not None:
        size, groups, tier = parts
        inner = {"mode": "hard", "highestTierAllowed": tier}
        group["subGroupPolicy"] = [
            {
                "name": "part",
                "subGroupSize": size,
                "minSubGroups": groups,
                "matchLabelKeys": ["part"],
                "networkTopology": inner,
            }
        ]
        world.job(
            "wide",
            pods=0,
            min_available=size * groups,
            group=group,
            min_resources={"cpu": cpu * size * groups},
        )
        for number in range(size * groups):
            world.pod(f"wide-{number}", job="wide", cpu=cpu, labels={"part": f"p{number // size}"})
    else:
        world.job("wide", pods=pods, cpu=cpu, group=group)
    for number, (count, least, wanted) in enumerate(others):
        world.job(
            f"other-{number}",
            pods=count,
            min_available=min(least, count),
            cpu=wanted,
            group={"networkTopology": wish},
        )
    return world


def domain(world: World, name: str, tier: int, kind: str, members: list[str]) -> None:
    chosen = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    world.state.upsert_other(
        "HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": chosen}}
    )


def decided(world: World, *, exhaustive: bool) -> list[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patched:
        if exhaustive:
            for name in ("ranks", "bounds", "_roomy"):
                patched.setattr(Domains, name, lambda *_: None)
        found = []
        for _ in range(2):
            found.append(world.run().bound())
            world.settle()
        return found


@settings(max_examples=400, deadline=None)
@given(
    racks=RACKS, wish=WISH, parts=st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    pods=st.integers(1, 8), cpu=st.integers(1, 3),
    others=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2)), max_size=2),
)  # fmt: skip
def test_what_is_left_out_would_not_have_been_chosen(
    racks: list, wish: dict, parts: Any, pods: int, cpu: int, others: list
) -> None:
    given_ = (racks, wish, parts, pods, cpu, others)
    assert decided(build(*given_), exhaustive=False) == decided(build(*given_), exhaustive=True)
