"""The configuration: how a node's own is merged, and what is said of a bad one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hekla.agent import configuration
from hekla.agent.configuration import (
    DEFAULTS,
    ColocationConfig,
    ConfigurationError,
    Document,
    merge,
    overlay,
    read,
    validate,
    written,
)

COLOCATION, OVERSUBSCRIPTION = "volcano.sh/colocation", "volcano.sh/oversubscription"


def document(nodes: list[Any] | None = None, **sections: Any) -> Document:
    found, unknown = read(json.dumps({"globalConfig": sections, "nodesConfig": nodes}))
    assert not unknown
    return found


def merged(labels: dict[str, str], *nodes: Any, **sections: Any) -> Any:
    return msgspec.to_builtins(merge(document(list(nodes), **sections), labels))


@pytest.mark.parametrize(
    ("labels", "colocation", "oversubscription"),
    [
        ({}, False, False),
        ({COLOCATION: "true"}, True, False),
        ({COLOCATION: "T", OVERSUBSCRIPTION: "1"}, True, True),
        ({OVERSUBSCRIPTION: "true"}, True, True),
        ({COLOCATION: "yes", OVERSUBSCRIPTION: "false"}, False, False),
    ],
)
def test_the_labels_of_the_node_decide_and_not_the_document(
    labels: dict[str, str], colocation: bool, oversubscription: bool
) -> None:
    stated = {"nodeColocationEnable": True, "nodeOverSubscriptionEnable": True}
    found = merge(document(nodeLabelConfig=stated), labels).node_label_config
    assert found is not None
    assert found.node_colocation_enable is colocation
    assert found.node_over_subscription_enable is oversubscription


def test_of_entries_that_match_the_last_counts() -> None:
    pool = {"matchLabels": {"pool": "a"}}
    entries = (
        {"selector": pool, "cpuQosConfig": {"enable": True}, "cpuBurstConfig": {"enable": True}},
        {"selector": pool, "cpuQosConfig": {"enable": False}},
        {"cpuQosConfig": {"enable": True}},
        {
            "selector": {"matchExpressions": [{"key": "pool", "operator": "Like"}]},
            "cpuQosConfig": {"enable": True},
        },
    )
    found = merged({"pool": "a"}, *entries, cpuQosConfig={"enable": True})
    assert found["cpuQosConfig"] == {"enable": False}
    assert found["cpuBurstConfig"] == {"enable": False}, "of one entry alone"


def test_a_field_that_is_there_wins_even_when_it_is_nothing() -> None:
    found = merged(
        {},
        {"selector": {}, "evictingConfig": {"evictingCPUHighWatermark": 0}},
        evictingConfig={"evictingCPUHighWatermark": 70, "evictingMemoryHighWatermark": 65},
        overSubscriptionConfig={"enable": False, "overSubscriptionTypes": ""},
    )
    assert found["evictingConfig"] == {
        "evictingCPUHighWatermark": 0,
        "evictingMemoryHighWatermark": 65,
        "evictingCPULowWatermark": 30,
        "evictingMemoryLowWatermark": 30,
    }
    assert found["overSubscriptionConfig"] == {"enable": False, "overSubscriptionTypes": ""}


@pytest.mark.parametrize("text", ["null", "{}", '{"nodesConfig":[{"selector":{}}]}'])
def test_without_a_global_part_the_defaults_count(text: str) -> None:
    assert merge(read(text)[0], {COLOCATION: "true"}) == DEFAULTS


def test_the_defaults_come_back_from_their_own_text() -> None:
    text = written(Document(global_config=DEFAULTS))
    assert read(text) == (Document(global_config=DEFAULTS), [])
    assert '\n    "nodeLabelConfig": {' in text


def network(**percents: int) -> dict[str, Any]:
    return {"networkQosConfig": percents}


def evicting(**watermarks: int) -> dict[str, Any]:
    return {"evictingConfig": watermarks}


def throttling(**percents: int) -> dict[str, Any]:
    return {"cpuThrottlingConfig": percents}


PERCENT = "must be a positive number between 1 and 1000"


@pytest.mark.parametrize(
    ("sections", "text", "found"),
    [
        (network(qosCheckInterval=0), "qosCheckInterval must be a positive number", "qosCheckInterval is 0"),
        (network(onlineBandwidthWatermarkPercent=1001), f"onlineBandwidthWatermarkPercent {PERCENT}",
         "onlineBandwidthWatermarkPercent is 1001"),
        (network(offlineLowBandwidthPercent=0), f"offlineLowBandwidthPercent {PERCENT}", "offlineLowBandwidthPercent is 0"),
        (network(offlineHighBandwidthPercent=5),
         "offlineHighBandwidthPercent cannot be less than offlineLowBandwidthPercent", "offlineHighBandwidthPercent is 5"),
        ({"overSubscriptionConfig": {"overSubscriptionTypes": "cpu,gpu"}},
         "overSubscriptionType(gpu) is not supported, only supports cpu/memory", 'overSubscriptionTypes is "cpu,gpu"'),
        ({"overSubscriptionConfig": {"overSubscriptionTypes": "cpu, memory"}},
         "overSubscriptionType( memory) is not supported, only supports cpu/memory", 'overSubscriptionTypes is "cpu, memory"'),
        (evicting(evictingMemoryLowWatermark=-3), "evictingMemoryLowWatermark must be a positive number",
         "evictingMemoryLowWatermark is -3"),
        (evicting(evictingCPULowWatermark=81), "cpu evicting low watermark is higher than high watermark",
         "evictingCPULowWatermark is 81, evictingCPUHighWatermark 80"),
        (evicting(evictingMemoryHighWatermark=29), "memory evicting low watermark is higher than high watermark",
         "evictingMemoryLowWatermark is 30, evictingMemoryHighWatermark 29"),
        (throttling(cpuThrottlingThreshold=101), "cpuThrottlingThreshold must be a positive number between 1 and 100",
         "cpuThrottlingThreshold is 101"),
        (throttling(cpuJitterLimitPercent=-1), "cpuJitterLimitPercent must be a non-negative number between 1 and 100",
         "cpuJitterLimitPercent is -1"),
        (throttling(cpuRecoverLimitPercent=0), "cpuRecoverLimitPercent must be a positive number", "cpuRecoverLimitPercent is 0"),
        ({**throttling(cpuRecoverLimitPercent=0), **network(qosCheckInterval=-1)},
         "[qosCheckInterval must be a positive number, cpuRecoverLimitPercent must be a positive number]",
         "qosCheckInterval is -1, cpuRecoverLimitPercent is 0"),
    ],
)  # fmt: skip
def test_what_is_wrong(sections: dict[str, Any], text: str, found: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        validate(merge(document(**sections), {}))
    assert (str(error.value), error.value.found) == (text, found)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"overSubscriptionConfig": {"overSubscriptionTypes": ""}},
        throttling(cpuThrottlingThreshold=100, cpuJitterLimitPercent=0, cpuRecoverLimitPercent=200),
        evicting(evictingCPULowWatermark=80),
    ],
)
def test_what_is_right(sections: dict[str, Any]) -> None:
    validate(merge(document(**sections), {}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "the document: [] is no object; write {...}"),
        ('{"globalConfig": {"evictingConfig": {"evictingCPUHighWatermark": "80"}}}',
         'globalConfig.evictingConfig.evictingCPUHighWatermark: "80" is not a whole number'),
        ('{"globalConfig": {"cpuQosConfig": {"enable": 1}, "cpuBurstConfig": true}}',
         "[globalConfig.cpuQosConfig.enable: 1 is not true or false, globalConfig.cpuBurstConfig: true is no object; write {...}]"),
        ('{"nodesConfig": {"selector": {}}}', 'nodesConfig: {"selector": {}} is no list; write [...]'),
        ('{"nodesConfig": [{"overSubscriptionConfig": {"overSubscriptionTypes": ["cpu"]}}]}',
         'nodesConfig[0].overSubscriptionConfig.overSubscriptionTypes: ["cpu"] is not a text'),
        ('{"nodesConfig": [{"selector": {"matchLabels": {"a": 1}}}]}',
         "Expected `str`, got `int` - at `$.nodesConfig[0].selector.matchLabels[...]`"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read(text)
    assert str(error.value) == message


def test_a_document_that_is_too_deep_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not JSON: maximum recursion depth"):
        read("[" * 100_000)


def test_a_name_in_another_case_is_taken_and_an_unknown_one_is_named() -> None:
    text = '{"GlobalConfig": {"cpuQoSConfig": {"Enable": true, "enabled": true}, "evictionConfig": {}}}'
    found, unknown = read(text)
    assert found.global_config is not None
    assert found.global_config.cpu_qos_config == configuration.Switch(enable=True)
    assert unknown == [
        "GlobalConfig.cpuQoSConfig.enabled (did you mean enable?)",
        "GlobalConfig.evictionConfig (did you mean evictingConfig?)",
    ]


def test_an_overlay_changes_neither_side() -> None:
    above = ColocationConfig(cpu_qos_config=configuration.Switch(enable=True))
    assert overlay(DEFAULTS, above).cpu_qos_config == configuration.Switch(enable=True)
    assert DEFAULTS.cpu_qos_config == configuration.Switch(enable=False)
