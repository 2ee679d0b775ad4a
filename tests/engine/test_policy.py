"""A policy is read strictly: what means nothing is a problem that names its nearest neighbour."""

from __future__ import annotations

import pytest

from hekla.engine.framework.policy import FLAGS, PolicyError
from hekla.engine.policies import default_policy, read_policy


def problems(tree: dict) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        read_policy(tree)
    return [str(one) for one in caught.value.problems]


def plugins(*options: dict) -> dict:
    return {"actions": "allocate", "tiers": [{"plugins": list(options)}]}


@pytest.mark.scenario("scheduler-core", 114)
def test_absent_flags_are_on_but_for_two() -> None:
    (option,) = read_policy(plugins({"name": "gang", "enableJobOrder": False})).tiers[0]
    off = {flag for flag in FLAGS if not option.flags[flag]}
    assert off == {"enableJobOrder", "enableHierarchy", "enabledClusterOrder"}


def test_wrong_names_are_answered_with_the_nearest() -> None:
    assert problems(plugins({"name": "gnag"})) == [
        'plugin "gnag" does not exist; did you mean "gang"?'
    ]
    assert problems({"actions": "enqueue, alocate"}) == [
        'action "alocate" does not exist; did you mean "allocate"?'
    ]
    assert problems({"actions": "allocate", "teirs": []}) == [
        'key "teirs" does not exist; did you mean "tiers"?'
    ]
    assert problems(plugins({"name": "gang", "enabledJobOrder": True})) == [
        'gang: key "enabledJobOrder" does not exist; did you mean "enableJobOrder"?'
    ]
    assert problems(plugins({"name": "binpack", "arguments": {"binpack.wieght": 1}})) == [
        'binpack: argument "binpack.wieght" does not exist; did you mean "binpack.weight"?'
    ]


def test_wrong_values_are_quoted() -> None:
    assert problems(plugins({"name": "binpack", "arguments": {"binpack.cpu": "three"}})) == [
        "binpack.cpu = 'three': expected `int`, got `str`"
    ]
    assert problems(
        plugins({"name": "binpack", "arguments": {"binpack.resources.nvidia.com/gpu": -3}})
    ) == ["binpack: binpack.resources.nvidia.com/gpu = -3: a weight is a whole number from 0 up"]
    assert problems(plugins({"name": "overcommit", "arguments": {"overcommit-factor": 0.5}})) == [
        "overcommit: overcommit-factor = 0.5: a number from 1.0 up"
    ]


def test_all_problems_are_told_at_once() -> None:
    tree = {"actions": "alocate", "tiers": [{"plugins": [{"name": "gnag"}]}]}
    assert len(problems(tree)) == 2


def test_drf_with_hierarchy_and_proportion_exclude_each_other_in_a_tier() -> None:
    tree = plugins({"name": "drf", "enableHierarchy": True}, {"name": "proportion"})
    assert problems(tree) == ["proportion and drf with hierarchy enabled conflicts"]


@pytest.mark.scenario("scheduler-core", 15)
def test_action_arguments() -> None:
    def read(arguments: dict) -> object:
        tree = {
            "actions": "allocate",
            "configurations": [{"name": "allocate", "arguments": arguments}],
        }
        return read_policy(tree).configurations["allocate"].get("predicateErrorCacheEnable", True)

    assert read({"predicateErrorCacheEnable": False}) is False
    assert read({"predicateErrorCacheEnable": "false"}) is False
    assert read({}) is True


def test_the_default_is_valid() -> None:
    assert default_policy().actions == ("enqueue", "allocate", "backfill")
