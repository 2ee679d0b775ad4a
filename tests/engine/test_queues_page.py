"""The queues of the user page, played: what the page promises of them is what comes to pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hekla.engine.framework.policy import Policy
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import play, running

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "queues"
SHIPPED: list[Any] = [
    ["priority", {"name": "gang", "enablePreemptable": False}, "conformance"],
    ["predicates", "proportion", "nodeorder"],
]


def test_the_page_shows_the_examples() -> None:
    page = (ROOT / "docs" / "queues.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.S)
    assert block in (EXAMPLES / "weights.yaml").read_text()
    assert set(re.findall(r"\(\.\./examples/queues/([\w.]+)\)", page)) == {
        path.name for path in EXAMPLES.iterdir()
    }


def queues(world: World, name: str) -> None:
    for manifest in yaml.safe_load_all((EXAMPLES / name).read_text()):
        world.state.upsert_queue({**manifest, "status": {"state": "Open"}})


def submitted(world: World, queue: str, jobs: int) -> None:
    """So many jobs of one pod of one cpu."""
    for number in range(jobs):
        world.job(f"{queue}-{number}", cpu=1, queue=queue, phase="Pending")


def held(world: World, *queues: str) -> list[int]:
    return [sum(running(world, f"{queue}-{number}") for number in range(24)) for queue in queues]


def cluster(rules: Policy) -> World:
    world = World(rules)
    world.nodes(*(f"n{number}" for number in range(6)), cpu=4, memory="64Gi")
    return world


def test_two_teams_by_weight() -> None:
    world = cluster(policy(tiers=SHIPPED, actions="enqueue, allocate, reclaim, backfill"))
    queues(world, "weights.yaml")
    submitted(world, "team-a", 24)
    play(world)
    assert held(world, "team-a") == [24], "alone, a team may have everything"
    submitted(world, "team-b", 24)
    play(world)
    assert held(world, "team-a", "team-b") == [8, 16]


def test_a_team_has_a_ceiling() -> None:
    world = cluster(policy(tiers=SHIPPED, actions="enqueue, allocate, reclaim, backfill"))
    queues(world, "weights.yaml")
    submitted(world, "team-b", 24)
    play(world)
    assert held(world, "team-b") == [20]


def test_a_tree_lends_and_takes_back() -> None:
    rules: dict[str, Any] = yaml.safe_load((EXAMPLES / "policy.yaml").read_text())
    world = cluster(read_policy(rules))
    world.queue("root")
    queues(world, "tree.yaml")
    submitted(world, "training", 24)
    play(world)
    assert held(world, "training") == [18], (
        "research may hold 20, and 2 of them are kept for notebooks"
    )
    submitted(world, "production", 24)
    play(world)
    assert held(world, "training", "production") == [10, 12], "and 2 are still kept"
    submitted(world, "notebooks", 4)
    play(world)
    assert held(world, "training", "notebooks", "production") == [8, 4, 12]
