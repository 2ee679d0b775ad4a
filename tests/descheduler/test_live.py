"""A descheduler on a cluster of fake nodes, whose pods use what their annotations say."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.api import scheduling
from hekla.api.kubernetes import core, policy
from hekla.api.trees import Json
from hekla.kube.errors import ApiError, NotFound
from hekla.podrules.profiles import DELETION_COST
from tests.admission.process import install_kinds
from tests.deploy import accounts
from tests.kubelet.live_cluster import PATIENCE, POD, Cluster, cluster
from tests.metrics_server.process import MetricsServerProcess
from tests.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")
METRICS = "/apis/metrics.k8s.io/v1beta1"
KEPT, KEPT_AT = "vc-descheduler-memory", "volcano-system"
HOT, MILD, COOL = "fake-0", "fake-1", "fake-2"

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: hot
  pluginConfig:
  - name: LoadAware
    args:
      metrics: {type: metrics_server, expiration: EXPIRATION}
      thresholds: {cpu: 30}
      targetThresholds: {cpu: 80}
      evictableNamespaces: {exclude: [kube-system]}
  plugins:
    balance: {enabled: [LoadAware]}
"""

OLD = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: old
  pluginConfig: [{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 1}}]
  plugins: {deschedule: {enabled: [PodLifeTime]}}
"""


class Live:
    def __init__(self, cluster: Cluster, directory: Path, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.kubeconfig = kubeconfig
        """Of the account that the chart gives to a descheduler."""

    async def pod(self, name: str, node: str, cpu: str) -> None:
        """A pod of a ReplicaSet that uses so much."""
        owner = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": "web",
            "controller": True,
        }
        await self.cluster.create(
            name,
            nodeName=node,
            metadata={
                "labels": {"app": "web"},
                "annotations": {"kwok.x-k8s.io/usage-cpu": cpu},
                "ownerReferences": [owner],
            },
        )

    async def used(self, node: str, cores: float) -> None:
        """Until the metrics server says so."""
        deadline = time.monotonic() + PATIENCE
        wanted = f"{cores * 1e9:.0f}n"
        found: Json = {}
        while time.monotonic() < deadline:
            try:
                answer = await self.cluster.client.request("GET", f"{METRICS}/nodes/{node}")
                found = json.loads(answer.body)
            except ApiError as error:
                found = {"usage": {"cpu": str(error)}}
            if found["usage"]["cpu"] == wanted:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{node} never used {wanted}: {found}")

    async def skew(self, prefix: str) -> None:
        """9 of 10 cores of the first node are used, 5 of the second, and 1 of the third."""
        for name, cpu in (("a", "3"), ("b", "2500m"), ("c", "2"), ("d", "1500m")):
            await self.pod(f"{prefix}-{name}", HOT, cpu)
        await self.pod(f"{prefix}-mild", MILD, "5")
        await self.pod(f"{prefix}-cool", COOL, "1")
        for node, cores in ((HOT, 9), (MILD, 5), (COOL, 1)):
            await self.used(node, cores)

    async def clear(self) -> None:
        for pod in (await self.cluster.client.list(POD, "default")).items:
            await self.cluster.client.delete(POD, pod["metadata"]["name"], "default", grace=0)
        await self.kept(None)
        await self.used(HOT, 0)

    async def kept(self, memory: Json | None) -> None:
        """What a descheduler before has left; None for nothing."""
        client, kind = self.cluster.client, core.CONFIG_MAP.untyped
        if memory is None:
            with suppress(NotFound):
                await client.delete(kind, KEPT, KEPT_AT)
            return
        body = {"metadata": {"name": KEPT}, "data": {"memory": json.dumps(memory)}}
        await client.create(kind, body, KEPT_AT)

    async def memory(self) -> Json:
        """What a descheduler leaves, once it has left something."""
        deadline = time.monotonic() + PATIENCE / 2
        while True:
            with suppress(NotFound):
                found = await self.cluster.client.get(core.CONFIG_MAP.untyped, KEPT, KEPT_AT)
                memory: Json = json.loads(found["data"]["memory"])
                return memory
            assert time.monotonic() < deadline, "it leaves no word"
            await asyncio.sleep(0.05)

    async def about_itself(self, reason: str) -> core.Event:
        """An event about the descheduler, which is no pod here: it is on its lease."""
        deadline = time.monotonic() + PATIENCE / 2
        while True:
            listing = await self.cluster.client.list(core.EVENT, "volcano-system")
            for event in listing.items:
                if event.reason == reason and event.involved_object.name == "vc-descheduler":
                    return event
            assert time.monotonic() < deadline, [event.reason for event in listing.items]
            await asyncio.sleep(0.05)

    async def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in (await self.cluster.client.list(POD, "default")).items
                if not pod["metadata"].get("deletionTimestamp")}  # fmt: skip

    @contextmanager
    def descheduler(self, text: str, *flags: str) -> Iterator[Process]:
        process = Process(self.directory, self.kubeconfig, text, *flags)
        try:
            yield process
        finally:
            process.stop()


class Process:
    """One `hekla descheduler`."""

    def __init__(self, directory: Path, kubeconfig: Path, text: str, *flags: str) -> None:
        directory.mkdir(exist_ok=True)
        self.policy = directory / "policy.yaml"
        self.policy.write_text(text)
        self.log = directory / "descheduler.log"
        self.log.write_text("")
        self.port = free_port()
        command = [
            sys.executable, "-m", "hekla", "descheduler", f"--client-connection-kubeconfig={kubeconfig}",
            f"--policy-config-file={self.policy}", f"--secure-port={self.port}", "--bind-address=127.0.0.1", *flags,
        ]  # fmt: skip
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE)

    async def says(self, text: str) -> None:
        await self.counts(text, 1)

    async def counts(self, text: str, times: int) -> None:
        """Until the log has it so often."""
        deadline = time.monotonic() + PATIENCE
        while self.log.read_text().count(text) < times:
            assert time.monotonic() < deadline and self.process.poll() is None, (
                self.log.read_text()[-3000:]
            )
            await asyncio.sleep(0.05)

    async def shows(self, line: str) -> None:
        """The beginning of a line of /metrics, by HTTPS."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

        def read() -> str:
            with urllib.request.urlopen(
                f"https://127.0.0.1:{self.port}/metrics", context=context
            ) as answer:
                return str(answer.read(), "utf-8")

        deadline = time.monotonic() + PATIENCE / 2
        while True:
            found = await asyncio.to_thread(read)
            if any(one.startswith(line) for one in found.splitlines()):
                return
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            self.process.wait(PATIENCE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    directory = tmp_path_factory.mktemp("descheduler")
    flags = ("--nodes=0", "--fake-nodes=3", "--fake-node-name=fake", "--fake-node-cpu=10")
    async with cluster(directory, *flags, nodes=3) as made:
        metrics = MetricsServerProcess(directory, made.server)
        metrics.start()
        try:
            account = await asyncio.to_thread(
                accounts.grant, made.server.kubeconfig, "descheduler", accounts.DESCHEDULER
            )
            yield Live(made, directory, account)
        finally:
            metrics.kill()


def written(expiration: str = "3m") -> str:
    return POLICY.replace("EXPIRATION", expiration)


@pytest.mark.scenario("descheduler", "E")
async def test_an_overloaded_node_is_relieved(live: Live) -> None:
    await live.skew("r")
    with live.descheduler(written(), "--descheduling-interval=200ms", "--v=2") as descheduler:
        await live.cluster.gone("r-a")
        event = await live.cluster.event("r-a", "LoadAware")
        assert event.message == (
            f"pod evicted from {HOT} node by the descheduler: node {HOT} is over its target: cpu 90% > 80%"
        )
        await live.used(HOT, 6)
        await descheduler.shows(
            f'descheduler_node_class{{class="appropriate",node="{HOT}",strategy="LoadAware"}} 1.0'
        )
        await descheduler.shows(
            f'descheduler_pods_evicted{{namespace="default",node="{HOT}",result="success",strategy="LoadAware"}} 1.0'
        )
        # its scheduler likes the hot node
        await live.pod("r-back", HOT, "3")
        event = await live.cluster.event("r-back", "CameBack")
        assert event.message.startswith(
            f"pods of ReplicaSet default/web on node {HOT} come back: one has been evicted and made there again once, so"
        )
    assert descheduler.process.returncode == 0
    assert await live.names() == {"r-b", "r-c", "r-d", "r-back", "r-mild", "r-cool"}
    await live.clear()


async def test_a_dry_run_says_what_it_would_do(live: Live) -> None:
    await live.skew("d")
    with live.descheduler(written(), "--once", "--dry-run") as descheduler:
        assert await descheduler.ended() == 0
    said = descheduler.log.read_text()
    assert (
        f"Evicted pod in dry run mode: pod=default/d-a node={HOT} strategy=LoadAware profile=hot"
        in said
    )
    assert len(await live.names()) == 6
    await live.clear()


async def test_a_budget_is_kept_and_the_next_pod_is_tried(live: Live) -> None:
    await live.skew("b")
    client = live.cluster.client
    await client.patch(POD, "b-a", {"metadata": {"labels": {"kept": "yes"}}}, "default")
    body: Json = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"kept": "yes"}}},
    }
    kind = policy.POD_DISRUPTION_BUDGET.untyped
    made = await client.create(kind, body)
    counts = {
        "observedGeneration": 1,
        "disruptionsAllowed": 0,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    await client.update_status(kind, {**made, "status": counts})
    text = written().replace("profiles:", "evictionFailureEventNotification: true\nprofiles:", 1)
    with live.descheduler(text, "--once") as descheduler:
        assert await descheduler.ended() == 0
    event = await live.cluster.event("b-a", "EvictionFailed")
    assert "The disruption budget keep needs 1 healthy pods" in event.message
    said = descheduler.log.read_text()
    assert 'error when evicting pod (ignoring) "default/b-a"' in said
    assert "The disruption budget keep needs 1 healthy pods and has 1 currently" in said
    await live.cluster.gone("b-b")
    assert "b-a" in await live.names()
    await client.delete(kind, "keep", "default")
    await live.clear()


async def test_nothing_is_evicted_on_old_measurements(live: Live) -> None:
    await live.skew("o")
    with live.descheduler(written("1ms"), "--descheduling-interval=200ms") as descheduler:
        await descheduler.says(
            "LoadAware of profile hot evicts nothing: the newest measurement of a node is"
        )
        await descheduler.shows('descheduler_usage_failures{profile="hot",strategy="LoadAware"} ')
    lines = descheduler.log.read_text().splitlines()
    told = [line for line in lines if "evicts nothing" in line]
    assert len(told) <= sum("Number of evicted pods" in line for line in lines) + 1  # once a cycle
    assert len(await live.names()) == 6
    found = await live.cluster.client.list(core.EVENT, "default")
    assert not [
        event
        for event in found.items
        if event.reason == "LoadAware" and event.involved_object.name.startswith("o-")
    ]
    await live.clear()


@pytest.mark.scenario("descheduler", "V")
async def test_a_policy_that_becomes_wrong_is_said_and_the_mended_one_works(live: Live) -> None:
    await live.skew("p")
    with live.descheduler(written("1ms"), "--descheduling-interval=200ms") as descheduler:
        await descheduler.says("evicts nothing")
        descheduler.policy.write_text(written().replace("cpu: 30", "cpu: 130"))
        await descheduler.says(
            "thresholds config is not valid: cpu threshold not in [0, 100] range, it is 130"
        )
        event = await live.about_itself("Load Config Error")
        assert event.type == "Warning"
        assert event.message.startswith("descheduler run err due to parameter error: ")
        descheduler.policy.write_text(written())
        await live.cluster.gone("p-a")
    await live.clear()


async def test_a_gang_is_left_whole_as_soon_as_the_cluster_knows_gangs(live: Live) -> None:
    client = live.cluster.client
    await live.skew("g")
    for name in ("a", "b", "c", "d"):
        marks = {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "train"}}}
        await client.patch(POD, f"g-{name}", marks, "default")
    # the kinds come while it runs; before there are PodGroups it would evict, so it may not yet
    text = written().replace("profiles:", "maxNoOfPodsToEvictTotal: 0\nprofiles:", 1)
    with live.descheduler(text, "--descheduling-interval=200ms") as descheduler:
        await descheduler.says("totalEvicted=0 heldByLimits=1")
        await asyncio.to_thread(install_kinds, live.cluster.server)
        group: Json = {
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"minMember": 4, "queue": "default"},
        }
        await client.create(scheduling.POD_GROUP.untyped, group)
        await descheduler.says("LoadAware left 4 pods: its gang would fall below minMember")
        descheduler.policy.write_text(written())
        seen = descheduler.log.read_text().count("left 4 pods")
        await descheduler.counts("left 4 pods", seen + 3)
    assert len(await live.names()) == 6
    await live.clear()


async def test_who_was_killed_in_a_cycle_leaves_word(live: Live) -> None:
    await live.skew("w")
    await live.kept({"evicting": time.time()})
    with live.descheduler(written(), "--once") as descheduler:
        assert await descheduler.ended() == 0
    said = descheduler.log.read_text()
    assert "a descheduler before this one has not ended its cycle" in said
    assert f"node {HOT} is not drained further before its next measurement" in said
    assert "totalEvicted=0" in said, "what is measured may be from before"
    await live.clear()


async def test_word_that_could_not_be_left_is_left_once_it_can_be(live: Live) -> None:
    """Of a pod that went for its age nothing is known but that, and it does not change any more."""
    await live.pod("f-a", HOT, "1")
    kubeconfig = live.cluster.server.kubeconfig
    may = accounts.DESCHEDULER._replace(at_home=accounts.DESCHEDULER.at_home[:1])
    own = await asyncio.to_thread(accounts.grant, kubeconfig, "silent", may)
    process = Process(live.directory, own, OLD, "--descheduling-interval=200ms")
    try:
        await process.says("so what is known of evictions ends with this process")
        await live.cluster.gone("f-a")
        quiet = process.log.read_text().count("totalEvicted=0")
        await process.counts("totalEvicted=0", quiet + 2)
        found = await live.cluster.client.list(core.CONFIG_MAP.untyped, KEPT_AT)
        assert KEPT not in [one["metadata"]["name"] for one in found.items]
        await asyncio.to_thread(accounts.extend, kubeconfig, "silent", accounts.DESCHEDULER)
        kept = await live.memory()
    finally:
        process.stop()
    assert kept.get("evicting", 0.0) == 0.0 and list(kept["settling"]) == [HOT]
    await live.clear()


@pytest.mark.slow(seconds=60)
async def test_a_killed_one_is_taken_over_and_nothing_is_evicted_twice(live: Live) -> None:
    for number in range(100):
        await live.pod(f"k-{number}", HOT, "100m")
    await live.pod("k-mild", MILD, "5")
    await live.used(HOT, 10)
    await live.used(MILD, 5)

    def evicted(process: Process) -> list[str]:
        return re.findall(r"Evicted pod: pod=default/(\S+)", process.log.read_text())

    with live.descheduler(written(), "--descheduling-interval=200ms") as first:
        deadline = time.monotonic() + PATIENCE
        while not evicted(first) and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        first.process.kill()
        first.process.wait(PATIENCE)
        gone = evicted(first)  # the last one may not have been said any more
    assert 0 < len(gone) < 19, "it was killed in its cycle"
    with live.descheduler(written(), "--descheduling-interval=200ms") as second:
        await live.used(HOT, 8)
        quiet = second.log.read_text().count("totalEvicted=0")
        await second.counts("totalEvicted=0", quiet + 3)
        again = evicted(second)
    assert again and not set(again) & set(gone)
    assert len(await live.names()) == 81, "as many went as it takes from 100% to 80%"
    await live.clear()


async def test_a_return_is_known_to_the_next_run(live: Live) -> None:
    await live.skew("n")
    with live.descheduler(written(), "--once") as first:
        assert await first.ended() == 0
    await live.pod("n-back", HOT, "3")
    await live.used(HOT, 9)
    with live.descheduler(written(), "--once") as second:
        assert await second.ended() == 0
    assert "pods of ReplicaSet default/web on node fake-0 come back" in second.log.read_text()
    kept = await live.memory()
    ((*where, _, returns, _, seen),) = kept["returns"]
    assert (where, returns, seen) == (["default", "ReplicaSet", "web", HOT], 1, True)
    await live.clear()


PACKING = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: pack
  pluginConfig: [{name: ScaleDownBinPack}]
  plugins: {balance: {enabled: [ScaleDownBinPack]}}
"""


async def test_deletion_costs_are_written_once(live: Live) -> None:
    for name, node in (("c-1", HOT), ("c-2", HOT), ("c-3", MILD)):
        await live.pod(name, node, "1")
    with live.descheduler(PACKING, "--once") as without:
        assert await without.ended() == 0
    assert "deletion costs cannot be written" in without.log.read_text(), "its account may not"
    may = accounts.account("descheduler", "deletion_costs")
    kubeconfig = await asyncio.to_thread(
        accounts.grant, live.cluster.server.kubeconfig, "packer", may
    )
    process = Process(live.directory, kubeconfig, PACKING, "--descheduling-interval=200ms")
    try:
        await process.says("Deletion costs of 3 pods were written")
        await process.counts("Number of evicted pods", 4)
    finally:
        process.stop()
    assert process.log.read_text().count("Deletion costs of") == 1
    found = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"][DELETION_COST]
        for pod in (await live.cluster.client.list(POD, "default")).items
    }
    assert sorted(found.values()) == ["0", "1", "2"] and found["c-3"] == "2"
    await live.clear()


async def test_a_wrong_policy_ends_the_start(live: Live) -> None:
    with live.descheduler(written().replace("cpu: 80", "cpu: 180"), "--once") as descheduler:
        assert await descheduler.ended() == 1
    assert (
        "targetThresholds config is not valid: cpu threshold not in [0, 100] range, it is 180"
        in (descheduler.log.read_text())
    )


@pytest.mark.slow(seconds=10)
async def test_of_two_copies_one_works_and_the_other_takes_over(live: Live) -> None:
    flags = ("--descheduling-interval=200ms", "--leader-elect", "--leader-elect-lease-duration=3s",
             "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=200ms")  # fmt: skip
    with live.descheduler(written(), *flags) as first:
        await first.says("Number of evicted pods")
        second = Process(live.directory / "second", live.kubeconfig, written(), *flags)
        try:
            await second.says("waiting for the lease volcano-system/vc-descheduler")
            first.process.kill()
            await live.skew("l")
            await second.says("Evicted pod: pod=default/l-a")
            await live.cluster.gone("l-a")
            assert len(await live.names()) == 5
        finally:
            second.stop()
    await live.clear()
