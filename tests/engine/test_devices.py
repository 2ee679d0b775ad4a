"""Cards: pods are put on nodes whose cards have room, and carry away which cards they got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.devices import ascend, card_score, gpushare, mig, mindcluster, vgpu
from hekla.engine.model.podclass import PodClasses, TermTable
from hekla.engine.model.resources import ResourceSpace
from hekla.engine.plugins.placement.deviceshare import matching_rules
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy

CASES = Path(__file__).parents[2].parent / "shared" / "conformance" / "cases"
VGPU = {"volcano.sh/vgpu-number": 20, "volcano.sh/vgpu-memory": 60000, "volcano.sh/vgpu-cores": 200}


def world(actions: str = "allocate", **arguments: Any) -> World:
    named = {f"deviceshare.{name}": value for name, value in arguments.items()}
    return World(
        policy(
            plugins=["gang", "predicates", {"name": "deviceshare", "arguments": named}],
            actions=actions,
        )
    )


def pod(
    here: World, name: str, *containers: dict[str, Any], labels: Any = None, **annotations: str
) -> None:
    """A job of one pod whose containers have these limits."""
    made = [
        {"name": str(at), "resources": {"limits": _texts(one), "requests": _texts(one)}}
        for at, one in enumerate(containers)
    ]
    notes = {_NOTES[key]: value for key, value in annotations.items()}
    here.job(name, pods=0, min_available=1)
    here.pod(
        f"{name}-task-0", job=name, spec={"containers": made}, annotations=notes, labels=labels
    )


_NOTES = {
    "mode": vgpu.MODE,
    "use": vgpu.USE_UUID,
    "avoid": vgpu.NO_UUID,
    "group_policy": vgpu.GROUP_POLICY,
    "use_type": vgpu.USE_TYPE,
}


def _texts(of: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in of.items()}


def cards(
    *sizes: int, mode: str = "hami-core", shares: int = 10, model: str = "NVIDIA-A100"
) -> dict[str, str]:
    records = [f"GPU-{at},{shares},{size},{model},true,{mode}" for at, size in enumerate(sizes)]
    return {vgpu.REGISTER: ":".join(records) + ":"}


def chosen(here: World, name: str) -> str:
    """The cards of the first pod of a job."""
    (bind,) = [one for one in here.decisions.binds if one.pod.startswith(f"default/{name}-")]
    return bind.annotations[vgpu.IDS]


def share(memory: int = 0, number: int = 1, cores: int = 0) -> dict[str, int]:
    asked = {vgpu.NUMBER: number, vgpu.MEMORY: memory, vgpu.CORES: cores}
    return {name: value for name, value in asked.items() if value}


def test_memory_of_one_gpu_is_shared_until_it_is_used_up() -> None:
    here = world(GPUSharingEnable=True)
    here.nodes("n1", **{gpushare.MEMORY: 20, gpushare.NUMBER: 2})
    for name in ("a", "b", "c", "d"):
        pod(here, name, {gpushare.MEMORY: 6})
        here.run()
        here.settle()
    held = {
        name: here.pods[f"default/{name}-task-0"]["metadata"]["annotations"].get(gpushare.INDEX)
        for name in "abcd"
    }
    assert held == {"a": "0", "b": "1", "c": None, "d": None}, (
        "two of six do not fit on a card of ten"
    )


def test_what_is_placed_in_one_cycle_shares_as_what_was_placed_before() -> None:
    here = world(GPUSharingEnable=True)
    here.nodes("n1", **{gpushare.MEMORY: 20, gpushare.NUMBER: 2})
    here.job(
        "many",
        pods=5,
        min_available=0,
        spec={
            "containers": [
                {
                    "name": "one",
                    "resources": {
                        "limits": {gpushare.MEMORY: "5"},
                        "requests": {gpushare.MEMORY: "5"},
                    },
                }
            ]
        },
    )
    binds = here.run().binds
    assert sorted(bind.annotations[gpushare.INDEX] for bind in binds) == ["0", "0", "1", "1"]


def test_a_gpu_that_is_ill_is_left_out() -> None:
    here = world(GPUNumberEnable=True)
    here.nodes("n1", annotations={gpushare.UNHEALTHY: "0"}, **{gpushare.NUMBER: 2})
    pod(here, "a", {gpushare.NUMBER: 1})
    assert here.run().binds[0].annotations[gpushare.INDEX] == "1"
    here.settle()
    pod(here, "b", {gpushare.NUMBER: 1})
    here.run()
    assert gpushare.NO_NUMBER in here.state.jobs["default/b"].fit_errors["default/b-task-0"].text


def test_a_virtual_gpu_is_a_share_of_a_card() -> None:
    here = world(VGPUEnable=True, SchedulePolicy="binpack", ScheduleWeight=1)
    here.nodes("n1", annotations=cards(30000, 30000), **VGPU)
    pod(here, "a", share(memory=10000, cores=40))
    pod(here, "b", share(memory=10000, cores=40))
    pod(here, "c", share(memory=5000, cores=40))
    here.run()
    assert chosen(here, "a") == "GPU-0,NVIDIA-A100,10000,40:"
    assert chosen(here, "b") == "GPU-0,NVIDIA-A100,10000,40:"
    assert chosen(here, "c") == "GPU-1,NVIDIA-A100,5000,40:", "no cores are left on the first"


def test_spread_takes_the_card_with_fewest_pods() -> None:
    here = world(VGPUEnable=True, SchedulePolicy="spread")
    here.nodes("n1", annotations=cards(30000, 30000), **VGPU)
    pod(here, "a", share(memory=10000))
    pod(here, "b", share(memory=10000))
    here.run()
    assert {chosen(here, "a")[:5], chosen(here, "b")[:5]} == {"GPU-0", "GPU-1"}


def test_a_pod_that_waits_says_why_and_starts_when_cards_are_free() -> None:
    here = world(VGPUEnable=True)
    here.nodes("n1", annotations=cards(30000), **VGPU)
    pod(here, "a", share(memory=20000))
    here.run()
    here.settle()
    pod(here, "b", share(memory=20000))
    here.run()
    assert vgpu.REFUSAL in here.why("b") + str(
        here.state.jobs["default/b"].fit_errors["default/b-task-0"].text
    )
    here.end("a")
    assert set(here.run().bound()) == {"default/b-task-0"}


def test_a_gang_that_does_not_fit_leaves_no_cards_taken() -> None:
    here = world(VGPUEnable=True)
    here.nodes("n1", annotations=cards(30000), **VGPU)
    limits = _texts(share(memory=20000))
    here.job(
        "gang",
        pods=2,
        spec={"containers": [{"name": "one", "resources": {"limits": limits, "requests": limits}}]},
    )
    assert here.run().binds == []
    assert all(vgpu.IDS not in task.annotations for task in here.state.tasks.values())
    pod(here, "small", share(memory=20000))
    assert set(here.run().bound()) == {"default/small-task-0"}


@pytest.mark.scenario("plugins-placement", 37)
def test_who_names_cards_gets_these() -> None:
    here = world(VGPUEnable=True)
    here.nodes("n1", annotations=cards(30000, 30000, 30000), **VGPU)
    pod(here, "a", share(memory=100), use="GPU-1")
    pod(here, "b", share(memory=100), avoid="GPU-2, GPU-1")
    pod(here, "c", share(memory=100), use="GPU-1", avoid="GPU-1")
    here.run()
    assert chosen(here, "a")[:5] == "GPU-1"
    assert chosen(here, "b")[:5] == "GPU-0"
    assert "default/c-task-0" not in here.decisions.bound()


def test_a_mode_of_sharing_must_be_the_nodes() -> None:
    here = world(VGPUEnable=True)
    here.nodes("n1", annotations=cards(30000), **VGPU)
    here.nodes("n2", annotations=cards(30000, mode="mps"), **VGPU)
    pod(here, "a", share(memory=100), mode="mps")
    assert here.run().bound() == {"default/a-task-0": "n2"}


@pytest.mark.scenario("plugins-placement", 35)
def test_pods_of_one_group_are_spread_over_cards() -> None:
    here = world(VGPUEnable=True, SchedulePolicy="binpack")
    here.nodes("n1", annotations=cards(30000, 30000, 30000), **VGPU)
    limits = _texts(share(memory=100))
    spec = {"containers": [{"name": "one", "resources": {"limits": limits, "requests": limits}}]}
    here.job("gang", pods=0, min_available=0)
    for number in range(4):
        here.pod(
            f"gang-task-{number}", job="gang", spec=spec, annotations={vgpu.GROUP_POLICY: "spread"}
        )
    binds = here.run().binds
    assert sorted(bind.annotations[vgpu.IDS][:5] for bind in binds) == ["GPU-0", "GPU-1", "GPU-2"]
    here.settle()
    here.job("others", pods=0, min_available=0)
    here.pod("others-task-0", job="others", spec=spec, annotations={vgpu.GROUP_POLICY: "spread"})
    assert len(here.run().binds) == 1, "another group may share"


@pytest.mark.scenario("plugins-placement", 36)
def test_the_order_in_which_cards_are_tried() -> None:
    for how, first, second in (
        ("binpack", "GPU-0", "GPU-0"),
        ("spread", "GPU-0", "GPU-1"),
        ("", "GPU-2", "GPU-2"),
    ):
        here = world(VGPUEnable=True, SchedulePolicy=how)
        here.nodes("n1", annotations=cards(30000, 30000, 30000), **VGPU)
        pod(here, "a", share(memory=100))
        pod(here, "b", share(memory=100))
        here.run()
        assert (chosen(here, "a")[:5], chosen(here, "b")[:5]) == (first, second), how


@pytest.mark.scenario("plugins-placement", 39)
def test_cards_that_are_not_there_are_not_booked() -> None:
    known = vgpu.Card("GPU-0", 10, 30000, "NVIDIA")
    known.book("pod", "GPU-0", 100, 10, 1, "", frozenset())
    known.book("pod", "GPU-0", 100, 10, 1, "", frozenset())
    assert (known.used, known.used_memory, known.used_cores) == (1, 100, 10)
    here = world(VGPUEnable=True)
    here.nodes("n1", annotations=cards(30000), **VGPU)
    limits = _texts(share(memory=29000))
    spec = {"containers": [{"name": "one", "resources": {"limits": limits, "requests": limits}}]}
    here.pod("lost", node="n1", spec=spec, annotations={vgpu.IDS: "GPU-9,NVIDIA,29000,0:"})
    pod(here, "a", share(memory=30000))
    assert len(here.run().binds) == 1


@pytest.mark.scenario("plugins-placement", 40)
def test_an_overfull_card_has_nothing_to_offer() -> None:
    assert gpushare.Card(10, used=12).idle == 0


@pytest.mark.scenario("plugins-placement", 42)
def test_pods_of_one_rule_do_not_share_a_card() -> None:
    here = world(VGPUEnable=True, SchedulePolicy="binpack", GPUExclusiveRules=[{"team": "ml"}])
    here.nodes("n1", annotations=cards(30000, 30000), **VGPU)
    for name in ("a", "b", "c"):
        pod(here, name, share(memory=100), labels={"team": "ml"})
    pod(here, "free", share(memory=100))
    bound = set(here.run().bound())
    assert len(bound & {f"default/{one}-task-0" for one in "abc"}) == 2
    assert "default/free-task-0" in bound


def test_whose_card_is_taken_by_preemption_gives_room() -> None:
    named = {"deviceshare.VGPUEnable": True}
    listed = [
        "priority",
        {"name": "gang", "enableJobPipelined": False},
        "conformance",
        "predicates",
    ]
    here = World(policy(plugins=[*listed, {"name": "deviceshare", "arguments": named}]))
    here.priority_class("high", 100)
    here.priority_class("low", 1)
    here.nodes("n1", annotations=cards(30000), **(VGPU | {vgpu.MEMORY: 30000}))
    limits = _texts(share(memory=20000))
    spec = {"containers": [{"name": "one", "resources": {"limits": limits, "requests": limits}}]}
    here.job("lesser", min_available=0, priority="low", spec=spec)
    here.run("allocate")
    here.settle()
    here.job("urgent", priority="high", spec=spec)
    decisions = here.run("preempt")
    assert [one.pod for one in decisions.evictions] == ["default/lesser-task-0"]
    here.settle()
    assert set(here.run("allocate").bound()) == {"default/urgent-task-0"}


CONFIGURATION = """
nvidia:
  knownMigGeometries:
  - models: ["A100"]
    allowedGeometries:
    - group: group1
      geometries:
      - {name: 1g.10gb, memory: 10240, count: 2}
      - {name: 2g.20gb, memory: 20480, count: 1}
vnpus:
- commonWord: Ascend310P
  resourceName: huawei.com/Ascend310P
  resourceMemoryName: huawei.com/Ascend310P-memory
  memoryAllocatable: 21527
  memoryCapacity: 24576
  templates: [{name: vir01, memory: 3072}, {name: vir02, memory: 6144}, {name: vir04, memory: 12288}]
"""


def configure(here: World) -> None:
    here.state.upsert_other(
        "ConfigMap",
        {
            "metadata": {"namespace": "kube-system", "name": "volcano-vgpu-device-config"},
            "data": {"device-config.yaml": CONFIGURATION},
        },
    )


def test_mig_hands_out_instances() -> None:
    here = world(VGPUEnable=True)
    configure(here)
    here.nodes("n1", annotations=cards(40960, mode="mig"), **VGPU)
    for name in ("a", "b", "c"):
        pod(here, name, share(memory=8000))
    here.run()
    assert {chosen(here, "a"), chosen(here, "b")} == {
        "GPU-0[group1-0],NVIDIA-A100,10240,0:",
        "GPU-0[group1-1],NVIDIA-A100,10240,0:",
    }
    assert "default/c-task-0" not in here.decisions.bound()


def test_ascend_cards_are_cut_by_templates() -> None:
    here = world(AscendHAMiVNPUEnable=True)
    configure(here)
    listed = [
        {"id": "npu-0", "index": 0, "count": 7, "devmem": 21527, "devcore": 8, "type": "Ascend310P"}
    ]
    notes = {"hami.io/node-register-Ascend310P": json.dumps(listed)}
    here.nodes("n1", annotations=notes, **{"huawei.com/Ascend310P": 7})
    for name in ("a", "b"):
        pod(here, name, {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 12000})
    (bind,) = here.run().binds
    assert json.loads(bind.annotations["huawei.com/Ascend310P"]) == [
        {"UUID": "npu-0", "temp": "vir04"}
    ]
    assert bind.annotations["hami.io/Ascend310P-devices-allocated"] == "npu-0,Ascend310P,12288,0:;"


@pytest.mark.scenario("plugins-placement", 34)
def test_switches_that_exclude_each_other_are_refused() -> None:
    for pair in (("GPUSharingEnable", "GPUNumberEnable"), ("VGPUEnable", "GPUNumberEnable")):
        arguments = {f"deviceshare.{name}": True for name in pair}
        with pytest.raises(PolicyError, match="GPUNumberEnable"):
            read_policy(
                {
                    "actions": "allocate",
                    "tiers": [{"plugins": [{"name": "deviceshare", "arguments": arguments}]}],
                }
            )


# ---------------------------------------------------------------------------------- worked examples

recorded = pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")


def rows(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((CASES / path).read_text())
    return found


def groups(tree: list[dict[str, Any]]) -> tuple[mig.Group, ...]:
    return tuple(
        mig.Group(
            one["Group"],
            tuple(
                mig.Template(made["Name"], made["Memory"], made["Count"])
                for made in one["Instances"]
            ),
        )
        for one in tree
    )


def class_of(tree: dict[str, Any]) -> Any:
    return PodClasses(ResourceSpace(), TermTable()).intern(
        "default", {}, tree["metadata"].get("annotations") or {}, tree["spec"]
    )


NVIDIA = "scheduler/api/devices/nvidia"
HAMI = "scheduler/api/devices/ascend/hami"


@recorded
def test_recorded_requests() -> None:
    for case in rows(f"{NVIDIA}/gpushare/TestGetGPUMemoryOfPod.json"):
        assert (
            gpushare.asked_of(class_of(case["input"]["pod"]), gpushare.MEMORY)
            == case["expect"]["want"]
        )
    for case in rows(f"{NVIDIA}/gpushare/TestGetGPUNumberOfPod.json"):
        assert (
            gpushare.asked_of(class_of(case["input"]["pod"]), gpushare.NUMBER)
            == case["expect"]["want"]
        )
    for case in rows(f"{NVIDIA}/vgpu/TestGetGPUMemoryOfPod.json"):
        needs = vgpu.VirtualGpu().needs(class_of(case["input"]["pod"]))
        assert sum(one.number for one in needs) == case["expect"]["want"]


@recorded
def test_recorded_lists_of_cards() -> None:
    for case in rows(f"{NVIDIA}/vgpu/TestCheckGPUUUID.json"):
        assert (
            vgpu.uuid_allowed(case["input"]["annotations"] or {}, case["input"]["id"])
            == case["expect"]["want"]
        )
    for case in rows(f"{NVIDIA}/vgpu/TestCheckGPUtype.json"):
        assert (
            vgpu.type_allowed(case["input"]["annos"] or {}, case["input"]["cardtype"])
            == case["expect"]["want"]
        )
    for case in rows(f"{NVIDIA}/vgpu/TestDecodeContainerDevicesRejectsInvalidUsage.json"):
        found = [
            {"Type": one.type, "UUID": one.identity, "Usedcores": one.cores, "Usedmem": one.memory}
            for container in vgpu.decoded(case["input"]["str"])
            for one in container
        ]
        assert found == case["expect"]["want"]


@recorded
def test_recorded_scores_of_cards() -> None:
    for case in rows(f"{NVIDIA}/vgpu/TestGPUScore.json"):
        device = case["input"]["device"]
        card = vgpu.Card(
            "", 1, device["Memory"], "", device.get("UsedNum", 0), device.get("UsedMem", 0)
        )
        assert card_score(card, case["input"].get("policy", "")) == case["expect"]["want"]
    for case in rows(f"{HAMI}/TestCalScore.json"):
        usage = case["input"]["usage"]
        one = ascend.Card(
            "",
            "",
            1,
            case["input"]["info"]["Devmem"],
            0,
            None,
            usage.get("Used", 0),
            usage.get("Usedmem", 0),
        )
        assert card_score(one, case["input"].get("policy", "")) == case["expect"]["want"]


@pytest.mark.scenario("plugins-placement", 41)
@recorded
def test_recorded_instances() -> None:
    for case in rows(f"{NVIDIA}/vgpu/TestFindMatch.json"):
        given, expect = case["input"], case["expect"]
        made = groups(given["allowedGeometries"])
        known = {one.name: one for group in made for one in group.templates}
        geometry = mig.Geometry(made)
        for one in given["usage"].get("UsageList") or ():
            template = known.get(one["Name"], mig.Template(one["Name"], one["Memory"], 0))
            geometry.entries.append(mig.Entry(template, set(one.get("UsedIndex") or ())))
        found = geometry.find(given["requestMem"])
        assert (found is not None) == expect["wantFit"], case["name"]
        if found is not None:
            assert f"{given['uuid']}[{found[0].name}-{found[1]}]" == expect["wantUUID"]
            assert found[2].memory == expect["wantMem"]
    for case in rows(f"{NVIDIA}/vgpu/TestAddAndSubMigUsed.json"):
        given, expect = case["input"], case["expect"]
        geometry = mig.Geometry(groups(given["initialDevice"]["MigTemplate"]))
        assert geometry.book(given["groupName"], given["addPosition"]) == expect["wantAddMemory"]
        assert geometry.free(given["groupName"], given["addPosition"]) == expect["wantSubMemory"]
        assert len(geometry.entries) == expect["wantAfterSubLen"]


@recorded
def test_recorded_memory_of_instances_with_a_factor() -> None:
    for case in rows(f"{NVIDIA}/vgpu/TestMIGFactory_AddPod_WithMemoryFactor.json"):
        given, expect = case["input"], case["expect"]
        card = vgpu.Card(
            "gpu-1234", 7, 40960, "NVIDIA", geometry=mig.Geometry(groups(given["migTemplate"]))
        )
        card.book(
            given["podUID"],
            given["devID"],
            given["requestMem"],
            given["core"],
            given["memoryFactor"],
            "",
            frozenset(),
        )
        assert (card.used_memory, card.used_cores, card.used) == (
            expect["expectedUsedMem"],
            expect["expectedUsedCore"],
            expect["expectedUsedNum"],
        )
        assert card.leave(given["podUID"], given["devID"]) and not card.leave(
            given["podUID"], given["devID"]
        )
        assert (card.used_memory, card.used_cores, card.used) == (0, 0, 0)


@pytest.mark.scenario("plugins-placement", 43)
@recorded
def test_recorded_ascend_fitting() -> None:
    for case in rows(f"{HAMI}/Test_fit.json"):
        device, asked = case["input"]["dev"], case["input"]["req"]
        info, usage = device["DeviceInfo"], device["DeviceUsage"]
        card = ascend.Card(
            info["ID"],
            asked["Type"],
            info["Count"],
            info["Devmem"],
            info["Devcore"],
            None,
            usage.get("Used", 0),
            usage.get("Usedmem", 0),
            usage.get("Usedcores", 0),
        )
        in_core_mode, settings = case["input"].get("isHAMiCore", False), device["config"]
        right_kind = asked["Type"] == settings["CommonWord"] and (
            settings.get("hamiVnpuCore", False) or not in_core_mode
        )
        found = right_kind and ascend.fits(
            card, asked.get("Memreq", 0), asked.get("Coresreq", 0), in_core_mode
        )
        assert found == case["expect"]["result"], case["name"]
    for case in rows(f"{HAMI}/Test_trimMemory.json"):
        context = case["context"]
        templates = tuple(ascend.Template(str(one), one) for one in context["template_memory"])
        own = ascend.Settings(
            "", "", "", context["memory_allocatable"], context["memory_capacity"], templates
        )
        assert ascend.trimmed(own, case["input"]["inputMem"])[0] == case["expect"]["wantMem"], case[
            "name"
        ]


@recorded
def test_recorded_exclusivity() -> None:
    for case in rows("plugins/deviceshare/TestMatchingRules.json"):
        rules = [one["labels"] for one in case["context"]["rules"]]
        labels = case["input"]["pod"]["metadata"].get("labels") or {}
        assert len(matching_rules(rules, labels)) == case["expect"]["expectedLen"]


def test_what_is_on_cards_is_shown_every_ten_seconds() -> None:
    here = world(VGPUEnable=True)
    here.nodes(
        "n1",
        annotations={"volcano.sh/node-vgpu-register": "u0,10,1000,NVIDIA-A100,true,hami-core:"},
        **VGPU,
    )
    pod(
        here,
        "a",
        {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 300, "volcano.sh/vgpu-cores": 20},
    )
    here.run()
    here.settle()
    here.now += 10
    pod(here, "b", {"volcano.sh/vgpu-number": 9})
    found = {
        (name, *(text for _, text in labels)): value
        for name, labels, value in here.run().metrics
        if name.startswith("vgpu_")
    }
    assert found == {
        ("vgpu_device_shared_number", "u0", "n1"): 1,
        ("vgpu_device_allocated_memory", "u0", "n1"): 300,
        ("vgpu_device_allocated_cores", "u0", "n1"): 20,
        ("vgpu_device_memory_limit", "u0", "n1"): 1000,
        ("vgpu_device_memory_allocation_for_a_certain_pod", "u0", "n1", "a-task-0"): 300,
        ("vgpu_device_core_allocation_for_a_certain_pod", "u0", "n1", "a-task-0"): 20,
    }
    here.now += 9
    pod(here, "c", {"volcano.sh/vgpu-number": 9})
    assert not [name for name, _, _ in here.run().metrics if name.startswith("vgpu_")]


# ----------------------------------------------------------------------------- slices of 310P chips


def npus(here: World, *names: str, chips: int = 1) -> None:
    here.nodes(
        *names, cpu=64, labels={"servertype": "Ascend310P-8"}, **{"huawei.com/npu-core": 8 * chips}
    )


def npu(here: World, name: str, cores: int, **labels: str) -> None:
    pod(
        here,
        name,
        {"huawei.com/npu-core": cores},
        labels={f"vnpu-{key}": value for key, value in labels.items()},
    )


def given(here: World) -> dict[str, str]:
    return {
        bind.job.partition("/")[2]: bind.annotations["huawei.com/npu-core"]
        for bind in here.run().binds
    }


@pytest.mark.parametrize(
    ("cores", "labels", "template"),
    [
        (1, {}, "0-vir01"),
        (2, {}, "0-vir02_1c"),
        (2, {"level": "high"}, "0-vir02"),
        (4, {"level": "high"}, "0-vir04"),
        (4, {}, "0-vir04_3c"),
        (4, {"dvpp": "no"}, "0-vir04_3c_ndvpp"),
        (4, {"dvpp": "yes"}, "0-vir04_4c_dvpp"),
        (8, {}, "0"),
        (16, {}, "0,1"),
    ],
)
def test_chips_are_cut_by_what_a_pod_says(cores, labels, template):
    here = world(AscendMindClusterVNPUEnable=True)
    npus(here, "n1", chips=2)
    npu(here, "a", cores, **labels)
    assert given(here) == {"a": template}


def test_a_slice_is_smaller_where_ai_cpus_are_short_unless_video_needs_them():
    here = world(AscendMindClusterVNPUEnable=True)
    npus(here, "n1")
    npu(here, "a", 4, level="high")
    assert given(here) == {"a": "0-vir04"}
    here.settle()
    npu(here, "video", 4, dvpp="yes")
    assert given(here) == {} and "no ascend 310P chip" in here.why("video")
    here.state.remove_pod("default/video-task-0")
    npu(here, "b", 4, level="high")
    assert given(here) == {"b": "0-vir04_3c"}


def test_one_template_is_set_up_at_a_time_and_odd_requests_are_refused():
    here = world(AscendMindClusterVNPUEnable=True)
    npus(here, "n1")
    npu(here, "a", 1)
    npu(here, "b", 2)
    npu(here, "c", 3)
    assert given(here) == {"a": "0-vir01"}
    assert "another template of vNPU is being set up" in here.why(
        "b"
    ) and "no template of vNPU has so many cores" in here.why("c")
    here.settle()
    assert given(here) == {"b": "0-vir02_1c"}


def test_the_fuller_chip_and_the_fuller_node_go_first():
    here = world(AscendMindClusterVNPUEnable=True, ScheduleWeight=1)
    npus(here, "n1", "n2", chips=2)
    npu(here, "a", 2)
    given(here)
    here.settle()
    npu(here, "b", 2)
    (bind,) = here.run().binds
    assert bind.node == "n1" and bind.annotations["huawei.com/npu-core"] == "0-vir02_1c"
    assert mindcluster.preferred([(3, False), (1, False)]) == {3: 8.0}
    assert mindcluster.preferred([(3, True), (1, True), (2, False), (0, True)]) == {
        3: 8.0,
        1: 8.0,
        2: 16.0,
    }
