"""An agent beside a real kubelet: its settings are on real processes, and a pod is sane when the
agent is killed and never comes back, and when it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hekla.agent.cgroups import (
    CPU_IDLE,
    CPU_QUOTA,
    CPU_SHARE,
    MEMORY_SOFT,
    Cgroups,
    Driver,
    File,
    Version,
)
from hekla.agent.pods import POD as READ
from hekla.agent.pods import Pod
from hekla.agent.reload import KEY, NAME
from hekla.api.kubernetes import core
from hekla.local.kubelet.runtime.cgroups import find
from tests.agent.process import PATIENCE, AgentProcess
from tests.kubelet.live_cluster import Cluster, cluster

pytestmark = [pytest.mark.slow(seconds=60), pytest.mark.asyncio(loop_scope="module")]
NAMESPACE = "volcano-system"
CONFIG = (
    '{"globalConfig": {"cpuQosConfig": {"enable": true}, "memoryQosConfig": {"enable": true}, '
    '"cpuThrottlingConfig": {"enable": true}}}'
)
BURNS = ("sh", "-c", "i=0; while :; do i=$((i+1)); [ $((i % 20000)) = 0 ] && echo round; done")


class Story:
    def __init__(self, here: Cluster, agent: AgentProcess, cgroups: Cgroups) -> None:
        self.here = here
        self.agent = agent
        self.cgroups = cgroups

    async def create(self, name: str, level: str, **resources: object) -> Pod:
        metadata = {"annotations": {"volcano.sh/qos-level": level}}
        await self.here.create(name, *BURNS, metadata=metadata, c={"resources": resources})
        await self.here.until(
            name,
            lambda pod: any(
                (one["type"], one["status"]) == ("Ready", "True")
                for one in pod.get("status", {}).get("conditions", ())
            ),
        )
        return await self.here.client.get(READ, name, "default")

    async def label(self, value: str) -> None:
        body = {"metadata": {"labels": {"volcano.sh/oversubscription": value}}}
        await self.here.client.patch(core.NODE.untyped, "n1", body)

    async def says(self, pod: Pod, **files: tuple[File, str]) -> None:
        deadline = time.monotonic() + PATIENCE
        directory = self.cgroups.pod(pod)
        while True:
            found = {name: self.cgroups.read(directory, file) for name, (file, _) in files.items()}
            if found == {name: value for name, (_, value) in files.items()}:
                return
            assert time.monotonic() < deadline, (found, self.agent.log.read_text()[-2000:])
            await asyncio.sleep(0.02)

    async def works(self, name: str) -> None:
        """Until the pod has come further than it is now."""
        before = len(await self.here.log(name))
        deadline = time.monotonic() + PATIENCE
        while len(await self.here.log(name)) <= before:
            assert time.monotonic() < deadline, f"{name} has stopped"
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(loop_scope="module")
async def story(tmp_path: Path) -> AsyncIterator[Story]:
    base, why = find()
    if base is None or base.version != 1:
        pytest.skip(f"no cgroups of version 1 for pods here: {why or 'version 2'}")
    root = base.cgroup_root(tmp_path / "kubelet")
    async with cluster(tmp_path, "--cgroups-per-qos") as here:
        await here.client.create(core.NAMESPACE.untyped, {"metadata": {"name": NAMESPACE}})
        body = {"metadata": {"name": NAME}, "data": {KEY: CONFIG}}
        await here.client.create(core.CONFIG_MAP.untyped, body, NAMESPACE)
        agent = AgentProcess(
            tmp_path,
            here.server,
            *(f"--kube-cgroup-root={root}", "--sampling-interval=100ms"),
            environment={"SYS_FS_PATH": "/sys/fs"},
        )
        names = tuple(root.strip("/").split("/"))
        yield Story(
            here, agent, Cgroups(Version.V1, Driver.CGROUPFS, Path("/sys/fs/cgroup"), names)
        )
        agent.close()


async def test_a_killed_agent_leaves_no_pod_frozen(story: Story) -> None:
    await story.label("true")
    offline = await story.create("offline", "BE")
    online = await story.create("online", "LS", requests={"cpu": "100m"}, limits={"cpu": "200m"})
    story.agent.start()
    await story.says(
        offline, idle=(CPU_IDLE, "1"), soft=(MEMORY_SOFT, "0"), quota=(CPU_QUOTA, "-1")
    )
    await story.says(online, idle=(CPU_IDLE, "0"), share=(CPU_SHARE, "204"))
    root = story.cgroups.qos_root("BestEffort")
    deadline = time.monotonic() + PATIENCE
    while story.cgroups.quota(root) < 0:  # CPUThrottle follows what online pods use
        assert time.monotonic() < deadline, story.agent.log.read_text()[-2000:]
        await asyncio.sleep(0.05)

    story.agent.kill()
    assert story.cgroups.quota(root) > 0
    await story.works("offline")
    await story.works("online")

    await story.label("false")
    story.agent.start()
    await story.says(
        offline,
        idle=(CPU_IDLE, "0"),
        share=(CPU_SHARE, "2"),
        soft=(MEMORY_SOFT, "9223372036854771712"),
    )
    await story.says(online, share=(CPU_SHARE, "102"))
    assert story.cgroups.quota(root) == -1
    await story.works("offline")
