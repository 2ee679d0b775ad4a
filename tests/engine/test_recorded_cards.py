"""Recorded rows of tables over cards that `test_devices` does not read: what pods hold, and which
card they are offered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hekla.engine.model.devices import Asker, Holder, ascend, mig, vgpu
from hekla.engine.model.nodes import NodeFacts
from hekla.engine.model.podclass import PodClass, PodClasses, TermTable
from hekla.engine.model.resources import ResourceSpace
from hekla.engine.plugins.placement.deviceshare import matching_rules
from tests.recorded import rows, where_recorded

VGPU = "scheduler/api/devices/nvidia/vgpu"
HAMI = "scheduler/api/devices/ascend/hami"
pytestmark = where_recorded


def class_of(containers: list[dict[str, Any]], annotations: Mapping[str, str]) -> PodClass:
    return PodClasses(ResourceSpace(), TermTable()).intern(
        "default", {}, annotations, {"containers": containers}
    )


def facts(allocatable: Mapping[str, float], annotations: Mapping[str, str]) -> NodeFacts:
    return NodeFacts(
        name="n1",
        labels={},
        taints=(),
        unschedulable=False,
        allocatable=dict(allocatable),
        capacity=dict(allocatable),
        images={},
        annotations=dict(annotations),
    )


def gpus(*cards: tuple[str, int, int]) -> NodeFacts:
    """A node with cards, given as (name, shares, memory)."""
    text = (
        ":".join(
            f"{name},{shares},{memory},NVIDIA,true,hami-core" for name, shares, memory in cards
        )
        + ":"
    )
    return facts(dict.fromkeys((vgpu.NUMBER, vgpu.MEMORY, vgpu.CORES), 1e6), {vgpu.REGISTER: text})


def offered(
    node: NodeFacts, containers: list[dict[str, Any]], annotations: Mapping[str, str]
) -> list[list[vgpu.Record]] | None:
    kind = vgpu.VirtualGpu()
    cards = kind.cards(node, [])
    assert cards is not None
    fit = kind.fit(cards, Asker(class_of(containers, annotations), annotations), "")
    return None if fit.refusal else fit.assignment


def test_recorded_rules_of_pods() -> None:
    for case in rows("plugins/deviceshare/TestPodMatchesRule"):
        rules = [one["labels"] for one in case["context"]["rules"]]
        found = matching_rules(rules, case["input"]["pod"]["metadata"].get("labels") or {})
        assert (case["input"]["ruleIdx"] in found) == case["expect"]["expected"], case["name"]


def test_recorded_nodes_with_room() -> None:
    for case in rows("plugins/deviceshare/Test_FilterNode"):
        cards = case["input"]["Devices"]["Device"]
        node = gpus(*((f"GPU-{at}", one["Number"], one["Memory"]) for at, one in cards.items()))
        made = offered(node, case["input"]["Pod"]["spec"]["containers"], {})
        assert (made is None) == case["expect"]["HasError"], case["name"]
        if made is not None:
            assert sorted((one.identity, one.memory) for one in made[0]) == [
                (f"GPU-{at}", one["Memory"]) for at, one in cards.items()
            ]


def test_recorded_cards_by_name() -> None:
    node = gpus(("GPU-0000B", 10, 1000), ("GPU-0000A", 10, 1000))
    for case in rows(f"{VGPU}/TestGPUUUIDConstraints"):
        made = offered(
            node,
            [{"name": "c", "resources": {"limits": {vgpu.NUMBER: "1"}}}],
            case["input"]["annotations"] or {},
        )
        assert (made is not None) == case["expect"]["wantFit"], case["name"]
        if case["expect"]["wantUUID"] and made is not None:
            assert made[0][0].identity == case["expect"]["wantUUID"], case["name"]


def test_recorded_pods_of_a_group_on_a_card() -> None:
    for case in rows(f"{VGPU}/TestDeviceHasPodFromSameGroup"):
        users = {
            uid: vgpu.Use(
                one.get("UsedMem", 0),
                one.get("UsedCore", 0),
                one.get("PodGroupKey", ""),
                frozenset(),
            )
            for uid, one in (case["input"]["gd"].get("PodMap") or {}).items()
        }
        assert (
            vgpu.Card("u", 1, 1, "NVIDIA", users=users).has_group(case["input"]["currentKey"])
            == case["expect"]["want"]
        ), case["name"]


def test_recorded_pods_on_cards() -> None:
    for case in rows(f"{VGPU}/TestAddResource"):
        notes = case["input"]["annotations"] or {}
        names = [one["UUID"] for one in case["input"]["devices"].values()]
        holder = Holder("default/p", class_of([], notes), notes)
        cards = vgpu.VirtualGpu().cards(gpus(*((name, 10, 20000) for name in names)), [holder])
        assert (
            cards is not None
            and any(card.users for card in cards.cards) == case["expect"]["wantAdded"]
        ), case["name"]


def card_of(case: dict[str, Any]) -> vgpu.Card:
    groups = tuple(
        mig.Group(
            one["Group"],
            tuple(
                mig.Template(made["Name"], made["Memory"], made["Count"])
                for made in one["Instances"]
            ),
        )
        for one in case["input"]["migTemplate"]
    )
    return vgpu.Card("gpu-1234", 7, 40960, "NVIDIA", geometry=mig.Geometry(groups))


def test_recorded_instances_that_are_tried() -> None:
    for case in rows(f"{VGPU}/TestMIGFactory_TryAddPod_WithMemoryFactor"):
        given, expect, card = case["input"], case["expect"], card_of(case)
        assert card.geometry is not None
        found = card.geometry.find(given["requestMem"] * max(given["memoryFactor"], 1))
        assert (found is not None) == expect["expectedFound"], case["name"]
        if found is not None:
            group, position, template = found
            assert (group.name, template.memory) == (
                expect["expectedGroup"],
                expect["expectedMemReturned"],
            ), case["name"]
            card.book(
                "p",
                f"gpu-1234[{group.name}-{position}]",
                given["requestMem"],
                given["core"],
                given["memoryFactor"],
                "",
                frozenset(),
            )
            assert card.used_memory == expect["expectedDeviceMem"], case["name"]


def test_recorded_instances_that_are_given_back() -> None:
    for case in rows(f"{VGPU}/TestMIGFactory_SubPod_WithMemoryFactor"):
        given, expect, card = case["input"], case["expect"], card_of(case)
        card.book(
            given["podUID"],
            given["devID"],
            given["requestMem"],
            given["core"],
            given["memoryFactor"],
            "",
            frozenset(),
        )
        assert card.leave(given["podUID"], given["devID"]) != expect["expectedError"], case["name"]
        found = card.used_memory, card.used_cores, card.used
        assert found == (
            expect["expectedUsedMem"],
            expect["expectedUsedCore"],
            expect["expectedUsedNum"],
        ), case["name"]


def test_recorded_pods_on_ascend_cards() -> None:
    for case in rows(f"{HAMI}/TestAscendDevices_AddResource"):
        given = case["input"]["ascendDevices"]
        if given is None:
            continue  # There is no kind of card without its settings here.
        word = given["Type"]
        listed, held = [], []
        for identity, one in given["Devices"].items():
            info, used = one["DeviceInfo"], one.get("DeviceUsage") or {}
            listed.append(
                {
                    "id": identity,
                    "type": word,
                    "count": info["Count"],
                    "devmem": info["Devmem"],
                    "devcore": info["Devcore"],
                }
            )
            if used.get("Used"):
                held.append(
                    f"{identity},{word},{used.get('Usedmem', 0)},{used.get('Usedcores', 0)}:"
                )
        kind = ascend.Ascend(
            ascend.Settings(word, f"huawei.com/{word}", f"huawei.com/{word}-memory", 32000, 32000)
        )
        texts = [*held, (case["input"]["pod"]["metadata"].get("annotations") or {}).get("", "")]
        holders = [
            Holder(f"ns/{at}", class_of([], {}), {kind.allocated: text})
            for at, text in enumerate(texts)
        ]
        node = facts(
            {f"huawei.com/{word}": 1000.0}, {f"hami.io/node-register-{word}": json.dumps(listed)}
        )
        cards = kind.cards(node, holders)
        assert cards is not None
        found = {
            card.id: {"Used": card.used, "Usedcores": card.used_cores, "Usedmem": card.used_memory}
            for card in cards.cards
        }
        for identity, expected in (case["expect"]["expectedUsage"] or {}).items():
            assert found[identity] == {"Used": 0, "Usedcores": 0, "Usedmem": 0, **expected}, case[
                "name"
            ]


def test_recorded_nodes_of_core_mode() -> None:
    for case in rows(f"{HAMI}/TestAscendDevice_GetNodeDevices_HAMiVnpuCore"):
        kind = ascend.Ascend(
            ascend.Settings(
                "Ascend910A", "huawei.com/Ascend910A", "huawei.com/Ascend910A-memory", 32768, 32768
            )
        )
        cards = kind.cards(
            facts({"huawei.com/Ascend910A": 1000.0}, case["input"]["annotations"]), []
        )
        assert cards is not None and cards.core_mode == case["expect"]["expectSupport"], case[
            "name"
        ]
