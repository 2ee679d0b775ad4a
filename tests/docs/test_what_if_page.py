"""The page about what-if: its questions, asked of the cluster that it names, are answered as it shows."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest
import yaml

from hekla.api.text.times import instant
from hekla.cli.vcctl.command import Invocation
from hekla.cli.vcctl.parsing import parse
from hekla.cli.vcctl.tree import VCCTL
from hekla.cli.whatif.jobs import parts_of
from hekla.cli.whatif.words import lines
from hekla.engine.policies import default_policy
from hekla.simulator.whatif.answer import ask
from hekla.simulator.whatif.changes import group_named, read_changes
from hekla.simulator.whatif.copy import ClusterCopy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/what-if.md").read_text()
SESSION = re.compile(r"```\n\$ vcctl job explain ([^\n]*)\n(.*?)```", re.DOTALL)


def cluster() -> ClusterCopy:
    """The cluster of examples/simulate, with the PodGroup that the controller makes of its Job."""
    made = ClusterCopy({"scheduler_names": ["volcano"]}, instant("2026-03-01T12:00:00Z"))
    listed = yaml.safe_load((ROOT / "examples/simulate/cluster.yaml").read_text())["items"]
    for tree in listed:
        if tree["kind"] != "Job":
            made.put(tree["kind"], tree)
            continue
        group, pods = parts_of(tree, {}, made.now)
        made.put("PodGroup", group)
        for pod in pods:
            made.put("Pod", pod)
    return made


def asked(command: str) -> list[str]:
    words: Invocation = parse(VCCTL, ["job", "explain", *shlex.split(command)])
    copy, namespace = cluster(), words.text("namespace")
    changes = read_changes(words.texts("what-if"), namespace)
    told = [line for change in changes for line in change.apply(copy)]
    key = group_named(copy, words.arguments[0], namespace)
    assert key is not None
    return lines(words.arguments[0], ask(copy, default_policy(), key), told, copy.now)


@pytest.mark.parametrize(("command", "output"), SESSION.findall(PAGE))
def test_questions_are_answered_as_the_page_shows(
    command: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert "\n".join(asked(command)) + "\n" == output
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_page_has_questions() -> None:
    assert len(SESSION.findall(PAGE)) >= 3
