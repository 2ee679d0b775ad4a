"""Two hundred spoiled objects on a live server: those that it takes reach the daemon, and it goes
on placing who is well."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from hekla.api import nodeinfo, scheduling, shard, topology
from hekla.api.kubernetes import claims, core, policy, priority, resource, storage
from hekla.kube.errors import ApiError
from hekla.scheduler.daemon import make_queues
from tests.engine.malformed import OBJECTS
from tests.engine.test_malformed_objects import WORDS, places, spoiled
from tests.scheduler.test_live import Site, client, site

__all__ = ["client", "site"]

KINDS = {
    kind.kind: kind
    for kind in (
        core.POD,
        core.NODE,
        core.CONFIG_MAP,
        core.RESOURCE_QUOTA,
        claims.PERSISTENT_VOLUME,
        claims.PERSISTENT_VOLUME_CLAIM,
        scheduling.POD_GROUP,
        scheduling.QUEUE,
        topology.HYPER_NODE,
        shard.NODE_SHARD,
        nodeinfo.NUMATOPOLOGY,
        priority.PRIORITY_CLASS,
        policy.POD_DISRUPTION_BUDGET,
        resource.RESOURCE_CLAIM,
        resource.RESOURCE_SLICE,
        resource.DEVICE_CLASS,
        storage.STORAGE_CLASS,
        storage.CSI_NODE,
        storage.CSI_DRIVER,
        storage.CSI_STORAGE_CAPACITY,
    )
}
VALUES: list[Any] = [None, True, 0, -1, 2**31, 2**63 - 1, 1.5, [], {}, {"a": "b"}, *WORDS]
POLICY = """\
actions: "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: pdb
- plugins:
  - name: drf
  - name: predicates
  - name: capacity
  - name: nodeorder
  - name: numa-aware
  - name: resourcequota
  - name: network-topology-aware
  - name: task-topology
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
"""


@pytest.mark.timeout(120)
async def test_the_daemon_outlives_whatever_the_server_takes(site: Site) -> None:
    site.policy.write_text(POLICY)
    await site.node("good", cpu="64")
    await make_queues(site.client, "default")
    # No controllers run beside this server, and capacity asks for a queue that is open.
    await site.client.patch(
        scheduling.QUEUE, "default", {"status": {"state": "Open"}}, subresource="status"
    )
    site.start("--scheduler-sharding-mode=soft")
    chance = random.Random(5)
    taken = 0
    for number in range(200):
        word = chance.choice(sorted(KINDS))
        kind, tree = KINDS[word], copy.deepcopy(OBJECTS[word])
        for _ in range(chance.choice((1, 1, 2))):
            tree = spoiled(
                tree,
                chance.choice([at for at in places(tree) if at and at[0] != "metadata"]),
                chance.choice(VALUES),
            )
        meta = {**tree["metadata"], "name": f"{site.name}-odd-{number}"}
        for name in ("uid", "creationTimestamp", "ownerReferences"):
            meta.pop(name, None)
        if word == "Node":
            meta["labels"] = {**meta["labels"], "pool": site.name}
            tree.setdefault("spec", {})
            if isinstance(tree["spec"], dict):
                tree["spec"]["unschedulable"] = True
        if word == "Pod" and isinstance(tree["spec"], dict):
            tree["spec"] |= {
                "schedulerName": site.name,
                "priorityClassName": None,
                "priority": None,
            }
        namespace = "default" if kind.namespaced else None
        try:
            await site.client.create(
                kind.untyped, {**tree, "metadata": {**meta, "namespace": namespace}}, namespace
            )
            taken += 1
        except ApiError:
            continue
    assert taken > 20, "the server refused nearly all of them"
    await site.job("fine", 2)

    async def fine() -> bool:
        return {"fine-0", "fine-1"} <= set(await site.bound())

    await site.until(fine, "a gang is placed in spite of them")
    assert site.process is not None and site.process.poll() is None
    log = site.log.read_text()
    assert "Traceback" not in log and "broke off" not in log, log[-3000:]
