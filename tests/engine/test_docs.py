"""The example policies of the documentation are valid, and every plugin has a page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from hekla.engine.framework.policy import Policy
from hekla.engine.plugins import PLUGINS
from hekla.engine.policies import read_policy
from hekla.engine.world import World

DOCS = Path(__file__).parents[2] / "docs" / "scheduler"


@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_the_page_has_an_example_that_is_read(name: str) -> None:
    text = (DOCS / f"{name}.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    policy = read_policy(yaml.safe_load(example))
    assert name in {option.name for tier in policy.tiers for option in tier}
    _runs(policy)
    kind = PLUGINS[name].Arguments
    for one in msgspec.structs.fields(kind):
        assert one.name in kind.made or one.encode_name in text


def _runs(policy: Policy) -> None:
    """Two cycles of a small cluster under the page's policy; nothing breaks, and a pod that fits is
    bound."""
    world = World(policy)
    world.queue("root")
    world.queue("busy", parent="root", deserved={"cpu": 1}, weight=2)
    world.nodes("n1", "n2", cpu=4, labels={"volcano.sh/nodegroup-name": "busy"})
    world.job(
        "runs", pods=3, min_available=1, cpu=1, queue="busy", on=["n1", "n1"], phase="Running"
    )
    world.job("waits", pods=2, cpu=1, phase="Pending", min_resources={"cpu": 2})
    for _ in range(2):
        assert world.run().problems == []
        world.settle()
        world.now += 60


def test_the_actions_of_gangs_have_a_page() -> None:
    (example,) = re.findall(
        r"```yaml\n(.*?)```", (DOCS / "gang-eviction.md").read_text(), re.DOTALL
    )
    assert {"gangpreempt", "gangreclaim"} <= set(read_policy(yaml.safe_load(example)).actions)
