"""Flows against a real API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hekla.api import batch, flow
from hekla.api.kubernetes import core
from hekla.kube.cache import Cache
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, a_task, running

__all__ = ["shared_apiserver"]


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        for name in ("a", "b", "c", "d"):
            spec = {
                "schedulerName": "volcano",
                "queue": "default",
                "minAvailable": 1,
                "maxRetry": 3,
                "tasks": [a_task("t")],
            }
            if not await made.exists(flow.JOB_TEMPLATE, name):
                await made.client.create(
                    flow.JOB_TEMPLATE.untyped, {"metadata": {"name": name}, "spec": spec}, "default"
                )
        yield made


async def start(
    cluster: Cluster, name: str, steps: list[dict[str, Any]], **spec: Any
) -> Cache[flow.JobFlow]:
    body = {"metadata": {"name": name}, "spec": {"flows": steps, **spec}}
    await cluster.client.create(flow.JOB_FLOW.untyped, body, "default")
    flows = Cache(cluster.client, flow.JOB_FLOW)
    await flows.start()
    await flows.synced()
    return flows


async def phase(cluster: Cluster, flows: Cache[flow.JobFlow], name: str, wanted: str) -> None:
    def now() -> flow.JobFlow:
        found = flows.get(f"default/{name}")
        assert found is not None
        return found

    await cluster.until(
        lambda: now().status.state.phase == wanted, lambda: f"{name} {wanted}: {now().status}"
    )


def after(name: str, *targets: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "dependsOn": {"targets": list(targets), **more}}


@pytest.mark.scenario("controllers", 109)
@pytest.mark.scenario("controllers", 108)
async def test_a_diamond(cluster: Cluster) -> None:
    flows = await start(
        cluster, "diamond", [{"name": "a"}, after("b", "a"), after("c", "a"), after("d", "b", "c")]
    )
    await cluster.phase("diamond-a", "Running")
    assert cluster.jobs.get("default/diamond-b") is None
    await cluster.succeed("diamond-a-t-0")
    await cluster.phase("diamond-b", "Running")
    await cluster.phase("diamond-c", "Running")
    await cluster.succeed("diamond-b-t-0")
    await cluster.phase("diamond-b", "Completed")
    await asyncio.sleep(0.1)
    assert cluster.jobs.get("default/diamond-d") is None
    await cluster.succeed("diamond-c-t-0")
    await cluster.phase("diamond-d", "Running")
    await cluster.succeed("diamond-d-t-0")
    await phase(cluster, flows, "diamond", "Succeed")
    template = await cluster.client.get(flow.JOB_TEMPLATE, "a", "default")
    assert "diamond-a" in template.status.job_depends_on_list
    await flows.stop()


@pytest.mark.scenario("controllers", 109)
async def test_a_failed_job_ends_the_flow(cluster: Cluster) -> None:
    flows = await start(cluster, "broken", [{"name": "a"}, after("b", "a")])
    await cluster.phase("broken-a", "Running")
    await cluster.fail("broken-a-t-0")
    await phase(cluster, flows, "broken", "Failed")
    assert cluster.jobs.get("default/broken-b") is None
    await flows.stop()


@pytest.mark.scenario("controllers", 110)
@pytest.mark.parametrize("policy", ["delete", "retain"])
async def test_what_is_left_of_a_flow(cluster: Cluster, policy: str) -> None:
    flows = await start(cluster, policy, [{"name": "a"}], jobRetainPolicy=policy)
    await cluster.phase(f"{policy}-a", "Running")
    await cluster.succeed(f"{policy}-a-t-0")
    await phase(cluster, flows, policy, "Succeed")
    if policy == "delete":
        await cluster.gone(batch.JOB, "delete-a")
    else:
        assert await cluster.exists(batch.JOB, "retain-a")
    await flows.stop()


async def test_a_probe_lets_the_next_job_start_while_the_first_runs(cluster: Cluster) -> None:
    answering = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        status = b"200 OK" if answering.is_set() else b"503 Not Yet"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    probe = {
        "httpGetList": [{"taskName": "t", "path": "/ready", "port": port}],
        "tcpSocketList": [{"taskName": "t", "port": port}],
        "taskStatusList": [{"taskName": "t", "phase": "Running"}],
    }
    flows = await start(cluster, "probed", [{"name": "a"}, after("b", "a", probe=probe)])
    await cluster.phase("probed-a", "Running")
    status = {"status": {"podIP": "127.0.0.1"}}
    await cluster.client.patch(
        core.POD.untyped, "probed-a-t-0", status, "default", subresource="status"
    )
    await asyncio.sleep(0.3)
    assert cluster.jobs.get("default/probed-b") is None
    answering.set()
    await cluster.phase("probed-b", "Running")
    server.close()
    await flows.stop()


async def test_a_job_of_somebody_else_does_not_hold_up_the_other_steps(cluster: Cluster) -> None:
    cluster.running = False
    await cluster.job("mixed-a", a_task("t"))
    flows = await start(cluster, "mixed", [{"name": "a"}, {"name": "b"}])
    await cluster.phase("mixed-b", "Pending")
    await phase(cluster, flows, "mixed", "Pending")
    await cluster.until(lambda: "mixed-b-t-0" in cluster.names("mixed-b"))
    await cluster.set_phase("mixed-b-t-0", "Running")
    await phase(cluster, flows, "mixed", "Running")
    await flows.stop()


async def sweep(cluster: Cluster, pod: str) -> None:
    """What the garbage collector of a cluster does with a pod whose job is gone."""
    await cluster.client.delete(core.POD, pod, "default", grace=0)


async def test_a_diamond_with_a_retry_and_a_failed_probe(cluster: Cluster) -> None:
    probe = {"tcpSocketList": [{"taskName": "t", "port": 1}]}
    steps = [
        {"name": "a"},
        {**after("b", "a"), "retries": 1},
        after("c", "a"),
        after("d", "b", "c"),
        after("probing", "a", probe=probe),
        {**after("rescue", "probing"), "when": "Failed"},
    ]
    flows = await start(cluster, "again", steps[:4])
    await cluster.phase("again-a", "Running")
    await cluster.succeed("again-a-t-0")
    await cluster.phase("again-b", "Running")
    first = cluster.jobs.get("default/again-b")
    assert first is not None
    await cluster.fail("again-b-t-0")
    await cluster.until(
        lambda: (
            (job := cluster.jobs.get("default/again-b")) is not None
            and job.metadata.uid != first.metadata.uid
        )
    )
    await sweep(cluster, "again-b-t-0")
    second = await cluster.phase("again-b", "Running")
    assert second.metadata.annotations["hekla.io/jobflow-attempt"] == "2"
    await cluster.phase("again-c", "Running")
    await cluster.succeed("again-b-t-0", "again-c-t-0")
    await cluster.phase("again-d", "Running")
    await cluster.succeed("again-d-t-0")
    await phase(cluster, flows, "again", "Succeed")
    entries = {
        entry.name: entry
        for entry in flows.all()[0].status.job_status_list
        if entry.name.startswith("again")
    }
    assert entries["again-b"].attempt == 2 and entries["again-a"].attempt == 0

    probed = await start(cluster, "closed", [steps[0], steps[4]])
    await cluster.phase("closed-a", "Running")
    await asyncio.sleep(1.3)  # more than one look at the probe, which nobody answers
    assert cluster.jobs.get("default/closed-probing") is None
    await cluster.fail("closed-a-t-0")
    await phase(cluster, probed, "closed", "Failed")
    await flows.stop()
    await probed.stop()


async def test_a_second_failure_ends_the_flow_and_a_step_may_answer_failures(
    cluster: Cluster,
) -> None:
    flows = await start(cluster, "twice", [{"name": "a", "retries": 1}])
    await cluster.phase("twice-a", "Running")
    await cluster.fail("twice-a-t-0")
    await cluster.went("twice-a", "Failed", "Pending")
    await sweep(cluster, "twice-a-t-0")
    await cluster.phase("twice-a", "Running")
    await cluster.fail("twice-a-t-0")
    await phase(cluster, flows, "twice", "Failed")
    await flows.stop()

    flows = await start(
        cluster, "saved", [{"name": "a"}, {**after("b", "a"), "when": "Failed"}, after("c", "a")]
    )
    await cluster.phase("saved-a", "Running")
    await cluster.fail("saved-a-t-0")
    await cluster.phase("saved-b", "Running")
    await cluster.succeed("saved-b-t-0")
    await phase(cluster, flows, "saved", "Succeed")
    assert cluster.jobs.get("default/saved-c") is None
    await flows.stop()


async def test_the_status_of_a_failed_flow_goes_on(cluster: Cluster) -> None:
    """A step that ran beside the one that failed ends later, and the flow says so; no further step
    starts."""
    flows = await start(cluster, "torn", [{"name": "a"}, {"name": "b"}, after("c", "b")])
    await cluster.phase("torn-a", "Running")
    await cluster.phase("torn-b", "Running")
    await cluster.fail("torn-a-t-0")
    await phase(cluster, flows, "torn", "Failed")
    await cluster.succeed("torn-b-t-0")

    def status() -> flow.JobFlowStatus:
        found = flows.get("default/torn")
        assert found is not None
        return found.status

    await cluster.until(
        lambda: (status().completed_jobs, status().running_jobs) == (["torn-b"], []),
        lambda: str(status()),
    )
    assert status().state.phase == "Failed" and cluster.jobs.get("default/torn-c") is None
    assert status().conditions["torn-b"].phase == "Completed"
    await flows.stop()
