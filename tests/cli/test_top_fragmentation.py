"""`vcctl top fragmentation`: what its page shows, before and after a defragmentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.cli.vcctl.command import CommandError
from hekla.cli.vcctl.top.fragmentation import USUAL, _policy, planned, report
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.session import Session
from hekla.engine.policies import read_policy
from hekla.engine.world import World

PAGE = Path(__file__).parents[2] / "docs" / "scheduler" / "fragmentation.md"


def notebooks() -> World:
    """Two nodes of four GPUs with a notebook on each, and a job that wants four."""
    here = World(read_policy({**USUAL, "actions": "allocate, defragment"}))
    here.queue("research")
    here.nodes("a", "b", cpu=16, gpu=4)
    for node in "ab":
        here.job(f"notebook-{node}", cpu=2, memory="4Gi", gpu=1, on=[node], phase="Running")
    here.job("train", cpu=8, memory="16Gi", gpu=4, queue="research")
    here.run("allocate")
    return here


def opened(here: World) -> Session:
    return open_session(here.state, hooks_of(here.state, here.policy), here.now)


def test_the_page_shows_what_is_printed() -> None:
    here = notebooks()
    page = PAGE.read_text()
    assert "$ vcctl top fragmentation\n" + "\n".join(report(opened(here))) in page
    assert "$ vcctl top fragmentation --plan\n" + "\n".join(planned(opened(here))) in page
    for _ in range(4):
        here.run()
        here.settle(coming_back=True)
        here.now += 10
    after = "\n".join(report(opened(here)))
    assert "$ vcctl top fragmentation    # a minute later\n" + after in page
    assert here.pods["default/train-task-0"]["spec"]["nodeName"]


def test_a_plan_writes_nothing_and_an_empty_cluster_says_so() -> None:
    here = World(read_policy(USUAL))
    assert report(opened(here)) == ["There are no nodes."]
    here.nodes("a", cpu=4)
    assert report(opened(here)) == ["There are no pods, so there is nothing to measure by."]
    assert planned(opened(here)) == ["No move gains 0.5 or more. Fragmentation is 0.00."]


def test_a_policy_that_does_not_measure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text('actions: "allocate"\ntiers: [{plugins: [{name: gang}]}]\n')
    with pytest.raises(CommandError, match="no plugin fragmentation in it"):
        _policy(str(path))
