"""The page about colocation: its files are there and are what it says, its configuration is the one that
is in force."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from hekla.agent.pods import LEVELS
from hekla.local.cluster.cluster import FIRST_COLOCATION

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/colocation.md").read_text()


def test_the_configuration_is_the_one_that_the_agent_begins_with() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(shown) == json.loads(FIRST_COLOCATION.read_text())


def test_the_examples_are_an_online_service_and_offline_work() -> None:
    files = re.findall(r"-f (examples/\S+)", PAGE)
    found = {}
    for file in files:
        for body in yaml.safe_load_all((ROOT / file).read_text()):
            tasks = body.get("spec", {}).get("tasks", [])
            for one in [body, *(task["template"] for task in tasks)]:
                level = one.get("metadata", {}).get("annotations", {}).get("volcano.sh/qos-level")
                if level:
                    found[body["metadata"]["name"]] = LEVELS[level]
    assert found == {"shop": 2, "client": 2, "render": -1, "spike": 1}
    (config_map, *_) = yaml.safe_load_all((ROOT / files[0]).read_text())
    for name, program in config_map["data"].items():
        compile(program, name, "exec")
