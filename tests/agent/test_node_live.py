"""What is lent of a node, who is evicted from it, and what its best-effort pods may use: stories on a
real API server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.agent.features import Feature
from hekla.agent.node_probes import NodeProbes
from hekla.agent.pods import Node
from hekla.agent.usage import Usage
from hekla.agent.watermarks import Kind
from hekla.api.kubernetes import core, policy
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.metrics import shown
from tests.agent.node_story import MIB, NodeStory, node_story
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.kubelet.live_cluster import ensure

__all__ = ["shared_apiserver"]

NUMBERS = itertools.count()
TAINT = "volcano.sh/offline-job-evicting"
CPU_PRESSURE = ("Warning", "Evict offline pod due to cpu resource pressure")
TURNED_OFF = ("Warning", "Evict offline pod due to node overSubscription is turned off")


@pytest_asyncio.fixture
async def client(shared_apiserver: ApiServerProcess) -> AsyncIterator[Client]:
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        await ensure(
            client.create(
                core.SERVICE_ACCOUNT.untyped,
                {"metadata": {"name": "default", "namespace": "default"}},
            )
        )
        yield client


@pytest_asyncio.fixture
async def story(client: Client, tmp_path: Path) -> AsyncIterator[NodeStory]:
    async with node_story(client, f"node-{next(NUMBERS)}", tmp_path) as story:
        yield story


# lending


async def test_idle_resources_are_lent(story: NodeStory) -> None:
    assert await story.lent() == (None, None)
    await story.round(cpu=1000, memory=224 * MIB)
    assert await story.lent() == ("5400", "480Mi")  # 60 percent of 9000m and of 800Mi
    assert (
        f'volcano_agent_oversubscription_resource_quantity{{node="{story.name}",resource="cpu"}} 5400.0'
        in shown(story.metrics.registry).decode()
    )


async def test_small_changes_wait_and_large_ones_are_written_at_once(story: NodeStory) -> None:
    await story.round(cpu=1000)
    await story.round(cpu=1500, times=4)
    assert (await story.lent())[0] == "5400"
    await story.round(cpu=1500)  # the sixth
    assert (await story.lent())[0] == "5104"  # the mean, in which the newest weighs half
    await story.round(cpu=6000)
    assert (await story.lent())[0] == "3741"


async def test_a_node_says_which_kinds_it_lends(story: NodeStory) -> None:
    await story.patch(
        {"metadata": {"annotations": {"volcano.sh/oversubscription-types": "memory"}}}
    )
    await story.round(cpu=1000, memory=24 * MIB)
    assert await story.lent() == ("0", "600Mi")


async def test_a_lost_sample_changes_nothing(story: NodeStory) -> None:
    await story.round(cpu=1000, memory=24 * MIB)
    (story.root / "memory.stat").unlink()
    (story.root / "cpu.stat").unlink()
    for _ in range(6):
        story.now += 10
        await story.probes.round()
    assert await story.lent() == ("5400", "600Mi")
    said = shown(story.metrics.registry).decode()
    assert 'hekla_agent_usage_samples_left_out{what="memory of pods"} 6.0' in said
    assert "hekla_agent_node_usage_percent{" not in said


async def test_turned_off_by_the_label_all_is_taken_back(story: NodeStory) -> None:
    await story.round(cpu=1000)
    await story.pod("off-borrower", lent=1000)
    await story.pod("off-second", lent=500)
    await story.pod("off-own", request=500)  # offline, on resources of its own
    await story.pod("off-online", level="LS", lent=1000)
    await story.label("false")
    assert await story.names() == {"off-own", "off-online"}
    assert await story.lent() == (None, None)
    assert (await story.node()).metadata.labels["volcano.sh/oversubscription"] == "false"
    assert await story.told("off-borrower", "Evicted") == [TURNED_OFF]
    assert 'resource="cpu"} 0.0' in shown(story.metrics.registry).decode()
    await story.pod("off-late", lent=100)  # it was bound while all was taken back
    await story.round(cpu=1000)
    assert await story.lent() == (None, None)
    assert await story.names() == {"off-own", "off-online"}


async def test_a_configuration_turns_on_again_what_it_has_turned_off(story: NodeStory) -> None:
    await story.round(cpu=1000)
    off = {"overSubscriptionConfig": {"enable": False}}
    await story.configure(off)
    assert (await story.node()).metadata.labels["volcano.sh/oversubscription"] == "false"
    assert await story.lent() == (None, None)
    await story.configure()
    assert (await story.node()).metadata.labels["volcano.sh/oversubscription"] == "true"
    await story.agent_knows()
    await story.configure()
    await story.round(cpu=1000)
    assert (await story.lent())[0] == "5400"


async def test_what_a_person_has_turned_off_stays_off(story: NodeStory) -> None:
    await story.round(cpu=1000)
    await story.label("false")
    await story.configure()  # such as a change of the ConfigMap
    assert (await story.node()).metadata.labels["volcano.sh/oversubscription"] == "false"


async def test_an_agent_that_was_away_takes_back_what_the_last_one_lent(
    client: Client, tmp_path: Path
) -> None:
    lent = {"kubernetes.io/batch-cpu": "5000", "kubernetes.io/batch-memory": "1Gi"}
    async with node_story(client, "away", tmp_path, labels={}) as story:
        await client.patch(
            core.NODE,
            "away",
            {"status": {"capacity": lent, "allocatable": lent}},
            subresource="status",
        )
        await story.agent_knows()
        await story.configure()
        assert await story.lent() == (None, None)
        assert "volcano.sh/oversubscription" not in (await story.node()).metadata.labels


async def test_without_the_feature_nothing_is_lent_and_no_label_changed(
    client: Client, tmp_path: Path
) -> None:
    supports = frozenset({Feature.EVICTION})
    async with node_story(client, "no-feature", tmp_path, supports=supports) as story:
        await story.round(cpu=1000)
        assert await story.lent() == (None, None)
        assert (await story.node()).metadata.labels["volcano.sh/oversubscription"] == "true"


# rounds


class Follower:
    """One that counts its rounds, and fails in them when it is told to."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.rounds = 0

    async def round(self, usage: Usage, node: Node) -> None:
        self.rounds += 1
        if self.error is not None:
            raise self.error


async def test_a_bug_of_one_ends_no_round(
    story: NodeStory, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = Follower("broken", KeyError("nobody thought of it")), Follower("whole")
    probes = NodeProbes(story.agent, story.collector, (broken, whole))
    await probes.round()
    await probes.round()
    assert (broken.rounds, whole.rounds) == (2, 2)
    (record,) = [one for one in caplog.records if "broken" in one.getMessage()]
    assert record.exc_info is not None, "with its traceback, and once"


# eviction


async def test_a_minute_above_the_watermark_evicts_and_usage_below_it_thaws(
    story: NodeStory,
) -> None:
    await story.pod("ev-small", request=100)
    await story.pod("ev-large", request=500)
    await story.pod("ev-online", level="", request=4000)
    await story.round(cpu=8000, times=5)
    assert await story.taints() == []
    await story.round(cpu=8000)
    assert await story.names() == {"ev-small", "ev-online"}
    assert await story.taints() == [TAINT]
    why = "cpu usage is 80% of what is allocatable, the high watermark is 80%"
    assert await story.condition() == ("True", "CpuPressure", why)
    assert await story.told("ev-large", "Evicted") == [CPU_PRESSURE]
    assert await story.told(story.name, "OfflineJobEvicting") == [
        ("Warning", f"{why}: offline pods are evicted")
    ]

    await story.round(cpu=5000)  # between the marks: the node stays as it is
    assert await story.taints() == [TAINT] and await story.names() == {"ev-small", "ev-online"}
    await story.round(cpu=3000)
    assert await story.taints() == []
    assert await story.condition() == (
        "False", "BelowWatermarks", "usage is below all low watermarks",
    )  # fmt: skip


async def test_each_round_of_pressure_evicts_one_and_none_twice(story: NodeStory) -> None:
    for number in range(3):
        await story.pod(f"each-{number}", lent=1000 - number)
    await story.round(cpu=9000, times=6)
    assert await story.names() == {"each-1", "each-2"}
    await story.late_round(cpu=9000)  # the agent still believes in each-0
    assert await story.names() == {"each-2"}
    assert await story.told("each-1", "Evicted") == [CPU_PRESSURE]  # written after each-0's
    assert await story.told("each-0", "Evicted") == [CPU_PRESSURE]


async def test_a_node_without_offline_pods_is_left_alone(story: NodeStory) -> None:
    await story.pod("alone-online", level="LS", request=100)
    await story.round(cpu=9000, times=7)
    assert await story.taints() == [] and await story.names() == {"alone-online"}


async def test_a_node_that_lends_nothing_evicts_nobody(client: Client, tmp_path: Path) -> None:
    labels = {"volcano.sh/colocation": "true"}
    async with node_story(client, "colocated", tmp_path, labels=labels) as story:
        await story.pod("colocated-offline")
        await story.round(cpu=9000, times=7)
        assert await story.names() == {"colocated-offline"}


async def test_watermarks_of_the_node_go_before_the_configured_ones(story: NodeStory) -> None:
    await story.configure({"evictingConfig": {"evictingCPUHighWatermark": 95}})
    await story.pod("marks-offline")
    await story.round(cpu=9000, times=7)
    assert await story.names() == {"marks-offline"}
    old = "volcano.sh/oversubscription-evicting-cpu-high-watermark"
    await story.patch({"metadata": {"annotations": {old: "90"}}})
    await story.round(cpu=9000, times=6)
    assert await story.names() == set()


async def test_budgets_are_kept_and_critical_pods_stay(story: NodeStory) -> None:
    await story.pod("kept-budget", request=900, labels={"app": "kept"})
    await story.pod("kept-mirror", request=800, annotations={"kubernetes.io/config.mirror": "x"})
    await story.pod("kept-not", request=10)
    kind = policy.POD_DISRUPTION_BUDGET.untyped
    body: Json = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    made = await story.client.create(kind, body)
    counts = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}  # fmt: skip
    await story.client.update_status(kind, {**made, "status": counts})
    await story.round(cpu=9000, times=6)
    assert await story.names() == {"kept-budget", "kept-mirror"}
    ((_, why),) = await story.told("kept-budget", "EvictionFailed")
    assert "disruption budget" in why
    said = shown(story.metrics.registry).decode()
    for outcome in ("evicted", "refused", "failed"):
        assert f'hekla_agent_evictions{{outcome="{outcome}"}} 1.0' in said


async def test_pressure_evicts_where_it_has_a_limit(story: NodeStory) -> None:
    await story.pod("psi-offline")
    (story.root / "burstable" / "memory.pressure").write_text("some avg10=35.00 avg60=0 total=1\n")
    await story.round(times=7)
    assert await story.names() == {"psi-offline"}
    story.limits[Kind.MEMORY] = 20.0
    await story.round(times=6)
    assert await story.names() == set()
    assert await story.condition() == (
        "True", "MemoryPressure", "online pods wait for memory 35% of the time, the limit is 20%",
    )  # fmt: skip


async def test_the_next_agent_thaws_what_a_dead_one_has_tainted(
    client: Client, tmp_path: Path
) -> None:
    async with node_story(client, "dead", tmp_path / "first") as story:
        await story.patch({"spec": {"taints": [{"key": "kept", "effect": "NoSchedule"}]}})
        await story.pod("dead-offline")
        await story.round(cpu=9000, times=6)
        assert await story.taints() == ["kept", TAINT]
    async with node_story(client, "dead", tmp_path / "second") as story:
        await story.round(cpu=5000)
        assert await story.taints() == ["kept", TAINT]
        await story.round(cpu=1000)
        assert await story.taints() == ["kept"]
        condition = await story.condition()
        assert condition is not None and condition[0] == "False"


async def test_an_agent_without_the_feature_thaws_too(client: Client, tmp_path: Path) -> None:
    taint = {"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}}
    supports = frozenset({Feature.OVERSUBSCRIPTION})
    async with node_story(client, "thaw-off", tmp_path, supports=supports) as story:
        await story.patch(taint)
        await story.round(cpu=9000)
        assert await story.taints() == []


# throttling


async def test_best_effort_pods_get_what_the_others_leave_below_the_threshold(
    story: NodeStory,
) -> None:
    assert story.quota.read_text() == "max 100000"
    throttling = {"cpuThrottlingConfig": {"enable": True, "cpuThrottlingThreshold": 80}}
    await story.configure(throttling)
    await story.round(cpu=5000, best_effort=3000)  # the others use 2000 of 8000
    assert story.quota.read_text() == "600000 100000"
    await story.round(cpu=8000, best_effort=2000)
    assert story.quota.read_text() == "200000 100000"
    await story.round(cpu=2000, best_effort=2000)  # grows by a tenth
    assert story.quota.read_text() == "220000 100000"
    await story.configure()
    assert story.quota.read_text() == "max"
