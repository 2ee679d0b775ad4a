"""What the scheduler writes into claims before it binds their pod, and what it takes back; and the
locks of nodes with cards."""

from __future__ import annotations

import asyncio
import copy
import time
from datetime import timedelta
from typing import Any

import pytest

from hekla.api.text.times import stamp
from hekla.engine.framework.policy import Policy
from hekla.engine.policies import default_policy, read_policy
from hekla.kube.errors import Conflict, NotFound
from hekla.scheduler.claims import FINALIZER, ClaimBinder, ClaimError
from hekla.scheduler.devices import LockError, device_map, lock_node, lock_of, locks_of, unlock_node

GIVEN = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}]}}


class Server:
    """Keeps objects by name and their versions, in place of an API server.  `collide`: so many
    writes find that others were faster."""

    def __init__(self, *objects: dict[str, Any], collide: int = 0) -> None:
        self.objects = {one["metadata"]["name"]: one for one in objects}
        self.collide = collide

    async def get(self, kind: Any, name: str, namespace: str | None = None) -> Any:
        await asyncio.sleep(0)
        if name not in self.objects:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(self.objects[name])

    def check(self, name: str, version: str | None) -> dict[str, Any]:
        there = self.objects[name]
        if self.collide:
            self.collide -= 1
            there["metadata"]["resourceVersion"] = str(
                int(there["metadata"]["resourceVersion"]) + 1
            )
        if version is not None and version != there["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        there["metadata"]["resourceVersion"] = str(int(there["metadata"]["resourceVersion"]) + 1)
        return there

    async def patch(
        self, kind: Any, name: str, patch: Any, namespace: str | None = None, **_: Any
    ) -> Any:
        await asyncio.sleep(0)
        there = self.check(name, patch["metadata"].get("resourceVersion"))
        for key, value in patch["metadata"].items():
            if key == "annotations":
                merged = {**there["metadata"].get("annotations", {}), **value}
                there["metadata"]["annotations"] = {
                    key: text for key, text in merged.items() if text is not None
                }
            elif key != "resourceVersion":
                there["metadata"][key] = value
        return copy.deepcopy(there)

    async def update_status(self, kind: Any, body: Any) -> Any:
        await asyncio.sleep(0)
        there = self.check(body["metadata"]["name"], body["metadata"]["resourceVersion"])
        there["status"] = copy.deepcopy(body["status"])
        return copy.deepcopy(there)


def claim(name: str = "mine", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": {},
        "status": status,
    }


def users(server: Server, name: str = "mine") -> list[str]:
    return [one["name"] for one in server.objects[name]["status"].get("reservedFor", ())]


async def test_a_claim_is_protected_allocated_and_reserved():
    server = Server(claim(), collide=2)
    await ClaimBinder(server).bind({"ns/mine": GIVEN}, "ns/pod", "u1")
    there = server.objects["mine"]
    assert there["metadata"]["finalizers"] == [FINALIZER]
    assert there["status"] == {
        "allocation": GIVEN,
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "u1"}],
    }
    await ClaimBinder(server).bind({"ns/mine": GIVEN}, "ns/pod", "u1")  # once more changes nothing
    assert users(server) == ["pod"]


async def test_pods_that_share_a_claim_are_all_written_down():
    server = Server(claim())
    binder = ClaimBinder(server)
    await asyncio.gather(
        *(binder.bind({"ns/mine": GIVEN}, f"ns/pod-{number}", f"u{number}") for number in range(5))
    )
    assert sorted(users(server)) == [f"pod-{number}" for number in range(5)]


async def test_a_claim_that_others_allocated_otherwise_undoes_what_was_written():
    other = {
        "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "gpu-9"}]}
    }
    server = Server(claim("first"), claim("second", allocation=other))
    with pytest.raises(ClaimError, match="was allocated otherwise meanwhile"):
        await ClaimBinder(server).bind({"ns/first": GIVEN, "ns/second": GIVEN}, "ns/pod", "u1")
    assert server.objects["first"]["status"] == {} and server.objects["second"]["status"] == {
        "allocation": other
    }
    with pytest.raises(ClaimError, match="is gone"):
        await ClaimBinder(server).bind({"ns/first": GIVEN, "ns/third": GIVEN}, "ns/pod", "u1")
    assert server.objects["first"]["status"] == {}


async def test_what_others_rely_on_stays_when_a_pod_gives_its_claim_back():
    server = Server(claim())
    binder = ClaimBinder(server)
    for number in range(2):
        await binder.bind({"ns/mine": GIVEN}, f"ns/pod-{number}", f"u{number}")
    await binder.give_back({"ns/mine": GIVEN}, "u0")
    assert users(server) == ["pod-1"] and server.objects["mine"]["status"]["allocation"] == GIVEN
    await binder.give_back({"ns/mine": GIVEN}, "u1")
    assert server.objects["mine"]["status"] == {}


@pytest.mark.parametrize("condition", ["Ready", "Broken"])
async def test_a_device_that_must_be_made_ready_is_waited_for(condition):
    result = {
        **GIVEN["devices"]["results"][0],
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Broken"],
    }
    given = {"devices": {"results": [result]}}
    server = Server(claim())
    binder = ClaimBinder(server)
    task = asyncio.create_task(binder.bind({"ns/mine": given}, "ns/pod", "u1"))
    while not server.objects["mine"]["status"]:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    told = {
        "driver": "d",
        "pool": "p",
        "device": "gpu-0",
        "conditions": [{"type": condition, "status": "True"}],
    }
    server.objects["mine"]["status"]["devices"] = [told]
    binder.claim_changed(None, server.objects["mine"])
    if condition == "Ready":
        await task
        assert users(server) == ["pod"] and not binder.waiting
    else:
        with pytest.raises(ClaimError, match="device gpu-0 of d reports Broken"):
            await task
        assert server.objects["mine"]["status"] == {}


def node(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "resourceVersion": "1", "annotations": annotations}}


def ago(**length: float) -> str:
    return stamp(time.time() - timedelta(**length).total_seconds())


async def test_a_node_is_locked_once_in_five_minutes():
    server = Server(node(), collide=1)
    await lock_node(server, "n1", "hamivgpu")
    assert server.objects["n1"]["metadata"]["annotations"]["hamivgpu"] >= ago(seconds=5)
    with pytest.raises(LockError, match="node n1 has been locked since"):
        await lock_node(server, "n1", "hamivgpu")
    await lock_node(server, "n1", "gpu")  # another kind of card
    await unlock_node(server, "n1", "hamivgpu")
    await lock_node(server, "n1", "hamivgpu")
    old = Server(node(hamivgpu=ago(minutes=6)))
    await lock_node(old, "n1", "hamivgpu")
    assert old.objects["n1"]["metadata"]["annotations"]["hamivgpu"] >= ago(seconds=5)


def deviceshare(**arguments: Any) -> Policy:
    named = {f"deviceshare.{key}": value for key, value in arguments.items()}
    return read_policy(
        {
            "actions": "allocate",
            "tiers": [{"plugins": [{"name": "deviceshare", "arguments": named}]}],
        }
    )


def test_who_locks_what():
    assert locks_of(default_policy()) == locks_of(deviceshare(VGPUEnable=True)) == frozenset()
    virtual = locks_of(deviceshare(NodeLockEnable=True, VGPUEnable=True))
    assert lock_of({"volcano.sh/vgpu-ids-new": "x"}, virtual) == "hamivgpu"
    assert (
        lock_of({"hami.io/vgpu-node": "n"}, virtual) == "hami.io/mutex.lock"
        and lock_of({"other": "x"}, virtual) == ""
    )
    for switch, lock in (("GPUSharingEnable", "gpu"), ("GPUNumberEnable", "")):
        assert (
            lock_of(
                {"volcano.sh/gpu-index": "0"},
                locks_of(deviceshare(NodeLockEnable=True, **{switch: True})),
            )
            == lock
        )


def test_where_the_map_of_cards_is():
    assert device_map(default_policy()) == ("kube-system", "volcano-vgpu-device-config")
    assert device_map(
        deviceshare(KnownGeometriesCMName="cards", KnownGeometriesCMNamespace="ns")
    ) == ("ns", "cards")
