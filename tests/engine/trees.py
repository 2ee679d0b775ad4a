"""The two trees of domains that the reference's topology scenarios are told about; a pod of 2 cpu
fills a node."""

from __future__ import annotations

from typing import Any

from hekla.engine.world import World, policy
from tests.engine.flags import only

PLUGINS = [
    only("gang", "JobOrder", "JobReady", "JobPipelined", "JobStarving"),
    "predicates",
    only("network-topology-aware", "NodeOrder", "HyperNodeOrder", "HyperNodeGradient"),
]
SUB_GROUPS = [
    only(
        "gang", "JobOrder", "JobReady", "JobPipelined", "JobStarving", "SubJobReady", "SubJobOrder"
    ),
    *PLUGINS[1:],
]


def hyper(
    world: World, name: str, tier: int, *members: str, kind: str = "Node", tier_name: str = ""
) -> None:
    world.state.upsert_other(
        "HyperNode",
        {
            "metadata": {"name": name},
            "spec": {
                "tier": tier,
                "tierName": tier_name,
                "members": [
                    {"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members
                ],
            },
        },
    )


def bare(plugins: list[Any] | None = None) -> World:
    return World(policy(plugins=plugins or PLUGINS, actions="allocate"))


def tree_a(
    plugins: list[Any] | None = None, *, names: tuple[str, str] = ("", ""), top: bool = True
) -> World:
    """s0 = {s0-n1, s0-n2}, s1 = {s1-n3, s1-n4} at tier 1, s2 = {s0, s1} at tier 2."""
    world = bare(plugins)
    world.nodes("s0-n1", "s0-n2", "s1-n3", "s1-n4", cpu=2)
    hyper(world, "s0", 1, "s0-n1", "s0-n2", tier_name=names[0])
    hyper(world, "s1", 1, "s1-n3", "s1-n4", tier_name=names[0])
    if top:
        hyper(world, "s2", 2, "s0", "s1", kind="HyperNode", tier_name=names[1])
    return world


def tree_b(plugins: list[Any] | None = None) -> World:
    """s0 (tier 3) = {s1, s2}, s1 = {s3, s4}, s2 = {s5, s6} (tier 2), s3 to s6 (tier 1) of two nodes
    each."""
    world = bare(plugins)
    for number in range(3, 7):
        first, second = f"s{number}-n1", f"s{number}-n2"
        world.nodes(first, second, cpu=2)
        hyper(world, f"s{number}", 1, first, second)
    hyper(world, "s1", 2, "s3", "s4", kind="HyperNode")
    hyper(world, "s2", 2, "s5", "s6", kind="HyperNode")
    hyper(world, "s0", 3, "s1", "s2", kind="HyperNode")
    return world


def hard(tier: int) -> dict[str, Any]:
    return {"networkTopology": {"mode": "hard", "highestTierAllowed": tier}}


SOFT: dict[str, Any] = {"networkTopology": {"mode": "soft"}}


def named(name: str) -> dict[str, Any]:
    return {"networkTopology": {"mode": "hard", "highestTierName": name}}


def racks(world: World) -> list[str]:
    """The tier-1 domain of each bind."""
    return [one.node.split("-")[0] for one in world.decisions.binds]
