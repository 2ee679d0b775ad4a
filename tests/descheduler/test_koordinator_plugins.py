"""FragmentationAware and ScaleDownBinPack, by the arguments and formulas that Koordinator documents."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hekla.descheduler.evictor import NO_ROOM
from hekla.descheduler.plugins.fragmentation import NO_EVENER_PLACE, imbalance
from hekla.descheduler.plugins.scale_down import LAST
from hekla.descheduler.policy.policy import Policy, PolicyError
from hekla.descheduler.tables import Owner, Tables
from tests.descheduler.stories import NOW, Ran, node, pod, profile, run

GI = float(1 << 30)
EVEN, PACK = "FragmentationAware", "ScaleDownBinPack"


def aware(arguments: str = "{}") -> Policy:
    return profile(EVEN, arguments, point="balance")


def packing(arguments: str = "{}", evictor: str = "{}") -> Policy:
    return profile(PACK, arguments, evictor, "balance")


# FragmentationAware


def test_the_deviation_of_the_documented_example() -> None:
    found = imbalance(np.array([[0.9, 0.25], [0.5, 0.5], [0.7, math.nan], [math.nan, math.nan]]))
    assert found.tolist() == pytest.approx([0.325, 0, 0, 0])


def uneven(**more: Any) -> Tables:
    """`busy` has given away 90% of its cpu and 25% of its memory, `spare` the other way round."""
    return Tables(
        [node("busy", 4000, 8 * GI), node("spare", 4000, 8 * GI)],
        [
            pod("eats", "busy", 1600, 0.5 * GI, **more),
            pod("sips", "busy", 400, 0.5 * GI, **more),
            pod("stays", "busy", 1600, 1 * GI, owners=(Owner("DaemonSet", "d"),)),
            pod("remembers", "spare", 1000, 7 * GI, **more),
        ],
    )


def test_the_pod_goes_without_which_a_node_is_most_even() -> None:
    ran = run(aware(), uneven())
    assert ran.names == ["eats"], "one a node, and `spare` is even with it"
    assert ran.evictions[0].reason == (
        "node busy is uneven: cpu 90%, memory 25% given away, a deviation of 0.33, without it 0.16"
    )


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("{imbalanceThreshold: 0.4}", []),
        ("{minImprovementThreshold: 0.2}", []),
        ("{paused: true}", []),
        ("{dryRun: true}", []),
        ("{evictableNamespaces: {exclude: [default]}}", []),
        ("{nodeSelector: {matchLabels: {pool: a}}}", []),
        ("{podSelectors: [{selector: {matchLabels: {app: web}}}]}", []),
        ("{resources: [memory, example.com/gpu]}", []),
        ("{apiVersion: descheduler/v1alpha2, kind: FragmentationAwareArgs}", ["eats"]),
    ],
)  # fmt: skip
def test_what_the_arguments_say(arguments: str, names: list[str]) -> None:
    assert run(aware(arguments), uneven()).names == names


def test_nobody_goes_where_another_node_would_lose_as_much() -> None:
    tables = Tables(
        [node("a", 4000, 8 * GI), node("b", 4000, 8 * GI)],
        [pod("p", "a", 3000, GI), pod("q", "b", 1000, 0.25 * GI)],
    )
    ran = run(aware(), tables)
    assert ran.names == [] and ran.report.refused[EVEN, NO_EVENER_PLACE] >= 1
    assert run(aware("{nodeFit: false}"), tables).names == ["p"], "without a look at the others"


def test_the_evictor_is_asked_for_room_though_the_plugin_does_not() -> None:
    tables = Tables(
        [node("a", 4000, 8 * GI), node("b", 4000, 8 * GI)],
        [
            pod("p", "a", 3000, GI),
            pod("fills", "b", 2000, 4 * GI, owners=(Owner("DaemonSet", "d"),)),
        ],
    )
    ran = run(profile(EVEN, "{nodeFit: false}", "{nodeFit: true}", "balance"), tables)
    assert ran.names == [] and ran.report.refused[EVEN, NO_ROOM] == 1


def test_room_that_the_evictor_finds_is_booked() -> None:
    nodes = [node(name, 4000, 8 * GI) for name in ("a", "b", "c")]
    stays = pod("stays", "a", 1500, owners=(Owner("DaemonSet", "d"),))
    tables = Tables(nodes, [stays, pod("p-a", "a", 2500, GI), pod("p-b", "b", 3000, GI)])
    ran = run(profile(EVEN, "{nodeFit: false}", "{nodeFit: true}", "balance"), tables)
    assert ran.names == ["p-a"], "c has room for one of them, and a not for the other"


def test_moves_end() -> None:
    tables, policy = uneven(), aware("{imbalanceThreshold: 0, minImprovementThreshold: 0}")
    moved = []
    for _ in range(5):
        moved.append(run(policy, tables).evictions)
        for eviction in moved[-1]:
            other = "spare" if eviction.pod.node == "busy" else "busy"
            tables.put_pod(replace(eviction.pod, node=other))
    assert moved[0] and not moved[-1]


# ScaleDownBinPack


def shrinking() -> Tables:
    """`mixed` carries other work beside a replica, `mine` two replicas alone, `tied` one that is protected."""
    other = {"owners": (Owner("DaemonSet", "d"),)}
    web = {"labels": {"app": "web"}}
    return Tables(
        [node("mixed"), node("mine"), node("tied")],
        [
            pod("web-0", "mixed", 400, **web), pod("agent", "mixed", 1200, **other),
            pod("web-1", "mine", 400, created=NOW - 100, **web), pod("web-2", "mine", 800, **web), pod("web-3", "mine", 400, **web),
            pod("web-4", "tied", 400, local_storage=True, **web), pod("web-5", "tied", 400, **web),
        ],
    )  # fmt: skip


WEB = "podSelectors: [{name: web, selector: {matchLabels: {app: web}}}]"


def costs(ran: Ran) -> dict[str, int]:
    return {pod.name: cost for pod, cost in ran.report.deletion_costs.values()}


def test_the_order_in_which_pods_are_to_go_is_written_as_their_deletion_cost() -> None:
    ran = run(packing(f"{{{WEB}}}"), shrinking())
    assert ran.names == []
    # `mine` becomes empty; `tied` keeps as much as it frees; `mixed` keeps three times that
    assert costs(ran) == {"web-2": 0, "web-1": 1, "web-3": 2, "web-5": 3, "web-0": 4, "web-4": LAST}


def test_costs_that_order_an_owners_pods_already_are_left_as_they_are() -> None:
    tables = shrinking()
    for name, cost in (
        ("web-2", 5),
        ("web-1", 7),
        ("web-3", 8),
        ("web-5", 9),
        ("web-0", 11),
        ("web-4", LAST),
    ):
        tables.put_pod(replace(tables.pods[f"default/{name}"], deletion_cost=cost))
    assert costs(run(packing(f"{{{WEB}}}"), tables)) == {}
    tables.put_pod(replace(tables.pods["default/web-0"], deletion_cost=1))
    assert costs(run(packing(f"{{{WEB}}}"), tables)) == {
        "web-2": 0,
        "web-1": 1,
        "web-3": 2,
        "web-5": 3,
        "web-0": 4,
        "web-4": LAST,
    }


def test_or_pods_go_in_that_order() -> None:
    arguments = f"{{{WEB}, strategy: EvictDirectly, maxPodsToEvict: 3}}"
    ran = run(packing(arguments), shrinking())
    assert ran.names == ["web-2", "web-1", "web-3"]
    assert ran.evictions[0].reason == "node mine becomes empty without it and its like"
    assert run(packing(arguments, "{nodeFit: true, nodeSelector: pool=a}"), shrinking()).names == []


def test_weights_say_what_is_large() -> None:
    tables = Tables(
        [node("n"), node("m")], [pod("cpu", "n", 2000, 100), pod("memory", "n", 100, 2000)]
    )
    assert list(costs(run(packing("{resourceWeights: {cpu: 2}}"), tables))) == ["cpu", "memory"]
    assert list(costs(run(packing("{resourceWeights: {memory: 2}}"), tables))) == ["memory", "cpu"]


@pytest.mark.parametrize(
    ("plugin", "arguments", "said"),
    [
        (EVEN, "{imbalanceThreshold: 1.5}", "imbalanceThreshold 1.5 is not within 0 and 1"),
        (EVEN, "{resources: []}", "resources is empty: cpu, memory or extended resources"),
        (EVEN, "{resources: [cpu, cpu]}", "resources: cpu stands twice"),
        (EVEN, "{evictableNamespaces: {include: [a], exclude: [b]}}", "only one of Include/Exclude namespaces can be set"),
        (EVEN, "{imbalance: 1}", "imbalance: there is no such key; did you mean 'imbalanceThreshold'?"),
        (PACK, "{strategy: EvictDirect}", "strategy 'EvictDirect': did you mean 'EvictDirectly'?"),
        (PACK, "{strategy: EvictDirectly}", "maxPodsToEvict is missing: with EvictDirectly, how many pods a cycle may evict"),
        (PACK, "{resourceWeights: {cpu: 0}}", "resourceWeights: cpu is 0, a weight is above 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(plugin: str, arguments: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        profile(plugin, arguments, point="balance")
    assert error.value.problems == [f"in profile p: {plugin}: {said}"]
