"""Which features a process supports, and which a configuration turns on."""

from __future__ import annotations

import pytest

from hekla.agent import features
from hekla.agent.configuration import DEFAULTS, ColocationConfig, ConfigurationError, merge, read
from hekla.agent.features import Feature, supported, wanted

EVERY = frozenset(Feature)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["*"], EVERY),
        ([], frozenset()),
        (["CPUQoS"], {Feature.CPU_QOS}),
        (["*", "-CPUQoS"], EVERY - {Feature.CPU_QOS}),
        (["CPUQoS", "-CPUQoS"], {Feature.CPU_QOS}),
        (["-CPUQoS", "CPUQoS", "*"], EVERY - {Feature.CPU_QOS}),
        (list(features.DEFAULT), set(features.DEFAULT)),
    ],
)
def test_the_first_word_about_a_feature_decides(names: list[str], expected: set[Feature]) -> None:
    assert supported(names) == expected


def test_a_name_that_is_no_feature_is_refused() -> None:
    assert features.problem(["*", "-CPUQoS", "Eviction"]) is None
    assert "'CpuQos' is no feature; known are CPUQoS, CPUBurst" in (
        features.problem(["CpuQos"]) or ""
    )


def config(labels: dict[str, str]) -> ColocationConfig:
    sections = ", ".join(
        f'"{one}Config": {{"enable": true}}'
        for one in ("cpuQos", "cpuBurst", "memoryQos", "memoryQosV2", "networkQos", "cpuThrottling")
    )
    return merge(read(f'{{"globalConfig": {{{sections}}}}}')[0], labels)


ALWAYS = {Feature.EVICTION, Feature.RESOURCES}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ALWAYS),
        (
            {"volcano.sh/colocation": "true"},
            EVERY - {Feature.OVERSUBSCRIPTION, Feature.CPU_THROTTLE},
        ),
        ({"volcano.sh/oversubscription": "true"}, EVERY),
    ],
)
def test_what_the_node_takes_part_in_is_on(labels: dict[str, str], expected: set[Feature]) -> None:
    assert {feature for feature in Feature if wanted(feature, config(labels))} == expected


def test_what_is_not_turned_on_is_off() -> None:
    labels = {"volcano.sh/oversubscription": "true"}
    found = merge(read('{"globalConfig": {}}')[0], labels)
    assert {one for one in Feature if wanted(one, found)} == {*ALWAYS, Feature.OVERSUBSCRIPTION}


@pytest.mark.parametrize(
    ("feature", "text"),
    [
        (Feature.CPU_QOS, "nil cpu qos config"),
        (Feature.CPU_BURST, "nil cpu burst config"),
        (Feature.MEMORY_QOS, "nil memory qos config"),
        (Feature.MEMORY_QOS_V2, "nil memory qos v2 config"),
        (Feature.OVERSUBSCRIPTION, "nil overSubscription config"),
        (Feature.CPU_THROTTLE, "nil cpuThrottling config"),
    ],
)
def test_a_section_that_is_not_there_is_an_error(feature: Feature, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        wanted(feature, ColocationConfig(node_label_config=DEFAULTS.node_label_config))
    with pytest.raises(ConfigurationError, match="nil node label config"):
        wanted(feature, ColocationConfig())
