"""`vcctl top budgets`: what the page shows, from what the scheduler's store writes down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.api.text.times import instant
from hekla.cli.vcctl.top.budgets import LABELS
from hekla.engine.plugins.fairness.budgets import written
from hekla.engine.world import World, policy
from hekla.kube.errors import NotFound
from hekla.scheduler.memory.kept_usage import KEPT
from hekla.scheduler.memory.usage_store import UsageStore
from tests.cli.answers import Answers, command

PAGE = Path(__file__).parents[2] / "docs/scheduler/party-limits.md"
MAPS, GPU = "/api/v1/configmaps", "nvidia.com/gpu"


def kept() -> dict[str, Any]:
    """What is written down of users below accounts after an hour and a half."""
    limits = {
        "by": "account",
        "budget": {"resources": {GPU: "40h"}, "renew": "0 0 1 * *", "timeZone": "Europe/Vienna"},
        "of": {
            "physics": {"budget": {"resources": {GPU: "64h", "memory": "640Gih"}}},
            "physics/anna": {"budget": {"resources": {GPU: "20h"}}},
            "chemistry": {"budget": {"resources": {GPU: "1000h"}, "renew": "never"}},
        },
    }
    plugins = ["gang", "predicates", {"name": "party-limits", "arguments": limits}]
    world = World(policy(plugins=plugins), now=instant("2026-11-24T14:00:00Z"))
    world.nodes("n1", cpu=64, gpu=64, memory="512Gi")
    for user, cards in (("anna", 14), ("ben", 22)):
        marks = {"hekla.io/user": user, "hekla.io/account": "physics"}
        world.job(f"of-{user}", annotations=marks, gpu=cards, memory="64Gi")
    world.run()
    world.settle()
    world.now += 5400
    world.run()
    spending = world.state.job_table.spending
    assert spending is not None
    return written(spending)


def config_map(tree: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "party-limits-usage", "namespace": "volcano-system"}
    return {"metadata": meta, "data": {"state.json": json.dumps(tree)}}


@pytest.fixture
def server(running: Answers) -> Answers:
    running.gives.clear()
    running.asked.clear()
    return running


def run(server: Answers) -> str:
    return command("vcctl", "top", "budgets", f"--master={server.url}").stdout


def test_what_the_page_shows(server: Answers) -> None:
    server.gives[MAPS] = [config_map(kept())]
    shown = run(server)
    assert f"$ vcctl top budgets\n{shown}" in PAGE.read_text(), shown
    (asked,) = server.asked
    assert "labelSelector=app%3Dvolcano-scheduler%2Ccomponent%3Dparty-limits" in asked.query


async def test_the_store_labels_what_is_looked_for() -> None:
    class Kept:
        labels: dict[str, str]

        async def patch(self, *given: object) -> None:
            raise NotFound(404, "NotFound", "none")

        async def create(self, kind: object, body: dict[str, Any], namespace: str) -> None:
            self.labels = body["metadata"]["labels"]

    limits = {"budget": {"resources": {"cpu": "9h"}}}
    world = World(policy(plugins=["gang", {"name": "party-limits", "arguments": limits}]))
    world.nodes("n1")
    world.job("runs", cpu=1, on=["n1"], phase="Running")
    world.run()
    world.now += 60
    world.run()
    client = Kept()
    await UsageStore(KEPT[1], client, world.state, lambda: world.policy, "kube-system").save()  # type: ignore[arg-type]
    assert ",".join(f"{name}={value}" for name, value in client.labels.items()) == LABELS


def test_nobody_has_used_anything(server: Answers) -> None:
    server.gives[MAPS] = []
    assert run(server) == "Nobody has used anything of a budget.\n"


@pytest.mark.parametrize("text", ["", "[]", '{"lastCycle": "x"}', '{"lastCycle": "x", "used": {}, "budgets": {"a": 1}}'])  # fmt: skip
def test_what_cannot_be_read_is_said(server: Answers, text: str) -> None:
    server.gives[MAPS] = [{**config_map({}), "data": {"state.json": text}}]
    assert "ConfigMap volcano-system/party-limits-usage cannot be read: " in run(server)
