"""Taints on devices from rules: as if their driver had put them there."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World
from tests.engine.test_claims import DRIVER, claim, pod, request, slice_of, world


def rule(here: World, selector: Any, effect: str = "NoSchedule") -> None:
    here.state.upsert_other(
        "DeviceTaintRule",
        {
            "metadata": {"name": "rule"},
            "spec": {
                "deviceSelector": selector,
                "taint": {"key": "broken", "value": "yes", "effect": effect},
            },
        },
    )


@pytest.mark.parametrize(
    ("selector", "node"),
    [
        ({"driver": DRIVER, "pool": "n1"}, "n2"),
        ({"pool": "n2"}, "n1"),
        ({"device": "gpu-1"}, "n2"),
        ({}, None),
        (None, "n1"),
        ({"driver": "other.example.com"}, "n1"),
        ({"driver": DRIVER, "pool": "n1", "device": "gpu-9"}, "n1"),
    ],
)
def test_a_rule_keeps_pods_from_the_devices_that_it_selects(
    selector: Any, node: str | None
) -> None:
    here = world("n1", "n2")
    slice_of(here, "n1", "gpu-1")
    slice_of(here, "n2", "gpu-2")
    rule(here, selector)
    claim(here, "mine")
    pod(here, "one", "mine")
    assert [bind.node for bind in here.run().binds] == ([node] if node else [])


def test_a_rule_that_goes_or_does_nothing_keeps_nobody_away() -> None:
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    rule(here, {})
    claim(here, "mine")
    pod(here, "one", "mine")
    assert not here.run().binds
    rule(here, {}, effect="None")
    assert here.run().binds
    here.settle()
    rule(here, {}, effect="NoExecute")
    slice_of(here, "n1", "gpu-0", "gpu-1")
    claim(here, "next")
    pod(here, "two", "next")
    assert not here.run().binds
    here.state.remove_other("DeviceTaintRule", "rule")
    assert here.run().binds


def test_who_tolerates_the_taint_of_a_rule_gets_the_device() -> None:
    here = world("n1")
    slice_of(here, "n1", "gpu-0")
    rule(here, {"driver": DRIVER})
    claim(
        here,
        "tough",
        request(
            tolerations=[
                {"key": "broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
            ]
        ),
    )
    pod(here, "one", "tough")
    assert here.run().binds
