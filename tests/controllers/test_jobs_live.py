"""Jobs against a real API server: the controllers create, watch and stop pods over HTTP."""

import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from hekla.api import batch, inqueue, scheduling
from hekla.api.kubernetes import core, networking
from hekla.controllers import records
from hekla.controllers.job.pod_control import PodControl
from hekla.kube.controller import Expectations
from hekla.kube.events import Recorder
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import HOME, Cluster, a_task, on, running

__all__ = ["shared_apiserver"]


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


@pytest.mark.scenario("controllers", 3)
async def test_a_job_runs_and_completes(cluster: Cluster) -> None:
    job = await cluster.job("good", a_task("a", 3))
    await cluster.phase("good", "Running")
    await cluster.succeed("good-a-0", "good-a-1", "good-a-2")
    done = await cluster.phase("good", "Completed")
    await cluster.went("good", "Pending", "Running", "Completed")
    assert done.status.succeeded == 3
    await cluster.gone(scheduling.POD_GROUP, f"good-{job.metadata.uid}")
    assert len(cluster.names("good")) == 3, "pods stay until the job goes"


async def test_pods_wait_for_the_scheduler(cluster: Cluster) -> None:
    cluster.hold = True
    job = await cluster.job("gang", a_task("a", 2))
    await cluster.phase("gang", "Pending")
    group = await cluster.until(lambda: cluster.groups.get(f"default/gang-{job.metadata.uid}"))
    assert group.spec.min_member == 2 and group.spec.min_resources["pods"] == "2"
    assert not cluster.names("gang")
    await cluster.release()
    await cluster.phase("gang", "Running")


async def test_pods_are_made_of_the_groups_that_the_scheduler_announces(cluster: Cluster) -> None:
    """The phase of the PodGroup does not say so yet."""
    cluster.hold = True
    jobs = [await cluster.job(name, a_task("a", 1)) for name in ("in", "waits", "other")]
    groups = [f"default/{job.metadata.name}-{job.metadata.uid}" for job in jobs]
    for group in groups:
        await cluster.until(lambda group=group: cluster.groups.get(group))
    let_in, _, other = (cluster.groups.get(group) for group in groups)
    assert let_in is not None and other is not None
    lines = [(groups[0], let_in.metadata.uid), (groups[2], "of-an-earlier-group")]
    await cluster.announce(*lines)
    await cluster.phase("in", "Running")
    assert cluster.groups.get(groups[0]).status.phase == ""
    assert not cluster.names("waits") and not cluster.names("other")
    await cluster.client.delete(core.CONFIG_MAP, inqueue.NAME, HOME)
    await cluster.announce((groups[2], other.metadata.uid))  # it is there again
    await cluster.phase("other", "Running")
    assert not cluster.names("waits")
    await cluster.release()
    await cluster.phase("waits", "Running")


@pytest.mark.scenario("controllers", 4)
@pytest.mark.scenario("controllers", 5)
@pytest.mark.scenario("controllers", 7)
@pytest.mark.scenario("controllers", 22)
@pytest.mark.scenario("controllers", 23)
@pytest.mark.parametrize(
    ("action", "passing", "end"),
    [("AbortJob", "Aborting", "Aborted"), ("TerminateJob", "Terminating", "Terminated")],
)
async def test_a_failed_pod_stops_the_job(
    cluster: Cluster, action: str, passing: str, end: str
) -> None:
    name = end.lower()
    await cluster.job(name, a_task("a", 2), policies=[on("PodFailed", action)])
    await cluster.phase(name, "Running")
    await cluster.fail(f"{name}-a-0", code=3)
    stopped = await cluster.phase(name, end)
    await cluster.went(name, "Pending", "Running", passing, end)
    assert stopped.status.state.message == f"pod {name}-a-0: container main exited with code 3"
    await cluster.pods_are(f"{name}-a-0", job=name)
    told = await _told(cluster, name, "ExecuteAction")
    assert any(action in event["message"] for event in told)


async def _told(cluster: Cluster, name: str, reason: str) -> list[dict[str, object]]:
    import asyncio

    for _ in range(1200):
        if found := await cluster.events(name, reason):
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"no event {reason} on {name}")


@pytest.mark.scenario("controllers", 21)
@pytest.mark.scenario("controllers", 33)
@pytest.mark.parametrize(
    "policy", [on("PodFailed", "RestartJob"), {"exitCode": 3, "action": "RestartJob"}]
)
async def test_a_failed_pod_restarts_the_job(cluster: Cluster, policy: dict[str, object]) -> None:
    name = f"again-{'code' if 'exitCode' in policy else 'event'}"
    await cluster.job(name, a_task("a", 4), policies=[policy])
    await cluster.phase(name, "Running")
    first = dict(cluster.pods_ever)
    await cluster.fail(f"{name}-a-2", code=3)
    await cluster.went(name, "Pending", "Running", "Restarting", "Pending", "Running")
    job = await cluster.phase(name, "Running")
    assert job.status.retry_count == 1 and job.status.version == 1
    assert all(len(cluster.pods_ever[f"{name}-a-{index}"]) == 2 for index in range(4)), first
    pods = [pod for pod in cluster.pods if pod["metadata"]["name"].startswith(name)]
    assert {pod["metadata"]["annotations"]["volcano.sh/job-version"] for pod in pods} == {"1"}


@pytest.mark.scenario("controllers", 9)
async def test_the_last_retry_keeps_what_failed(cluster: Cluster) -> None:
    policies = [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}]
    await cluster.job(
        "twice", a_task("bad"), a_task("good"), maxRetry=2, minSuccess=2, policies=policies
    )
    for _ in range(2):
        await cluster.phase("twice", "Running")
        before = cluster.pods.get("default/twice-bad-0")
        assert before is not None
        await cluster.fail("twice-bad-0")
        await cluster.until(
            lambda: cluster.jobs.get("default/twice").status.state.phase != "Running"
        )  # type: ignore[union-attr]
    failed = await cluster.phase("twice", "Failed")
    assert failed.status.retry_count == 2
    await cluster.pods_are("twice-bad-0", job="twice")
    assert "exited with code 1" in failed.status.state.message


@pytest.mark.scenario("controllers", 25)
@pytest.mark.scenario("controllers", 26)
@pytest.mark.scenario("controllers", 34)
async def test_a_deleted_pod_is_an_eviction(cluster: Cluster) -> None:
    await cluster.job("evicted", a_task("a", 2), policies=[on("PodEvicted", "RestartJob")])
    await cluster.job(
        "ended",
        a_task("a", 2),
        policies=[{"events": ["PodEvicted", "PodFailed", "PodEvicted"], "action": "TerminateJob"}],
    )
    await cluster.phase("evicted", "Running")
    await cluster.phase("ended", "Running")
    await cluster.client.delete(core.POD, "evicted-a-0", "default", grace=0)
    await cluster.client.delete(core.POD, "ended-a-0", "default", grace=0)
    await cluster.went("evicted", "Running", "Restarting", "Pending", "Running")
    await cluster.went("ended", "Running", "Terminating", "Terminated")


@pytest.mark.scenario("controllers", 24)
async def test_a_pod_is_restarted_alone(cluster: Cluster) -> None:
    policies = [on("PodFailed", "RestartPod"), on("PodEvicted", "TerminateJob", timeout="5m0s")]
    await cluster.job("one", a_task("a", 2), policies=policies)
    await cluster.phase("one", "Running")
    await cluster.fail("one-a-0")
    await cluster.went("one", "Pending", "Running", "Restarting", "Running")
    assert len(cluster.pods_ever["one-a-0"]) == 2 and len(cluster.pods_ever["one-a-1"]) == 1


@pytest.mark.scenario("controllers", 31)
@pytest.mark.scenario("controllers", 10)
async def test_a_completed_task_completes_the_job(cluster: Cluster) -> None:
    await cluster.job(
        "partly", a_task("quick"), a_task("slow"), policies=[on("TaskCompleted", "CompleteJob")]
    )
    await cluster.phase("partly", "Running")
    await cluster.succeed("partly-quick-0")
    await cluster.phase("partly", "Completed")
    await cluster.pods_are("partly-quick-0", job="partly")


@pytest.mark.scenario("controllers", 32)
async def test_a_container_that_restarts_too_often(cluster: Cluster) -> None:
    await cluster.job("loop", a_task("a"), policies=[on("TaskFailed", "TerminateJob")])
    await cluster.phase("loop", "Running")
    await cluster.set_phase("loop-a-0", "Running", restarts=4)
    await cluster.went("loop", "Terminating", "Terminated")


@pytest.mark.scenario("controllers", 11)
async def test_two_successes_are_enough(cluster: Cluster) -> None:
    await cluster.job("enough", a_task("a", 3), a_task("b", 2), minSuccess=2)
    await cluster.phase("enough", "Running")
    await cluster.succeed("enough-a-0", "enough-a-1")
    await cluster.phase("enough", "Completed")
    await cluster.pods_are("enough-a-0", "enough-a-1", job="enough")


@pytest.mark.scenario("controllers", 38)
@pytest.mark.scenario("controllers", 14)
@pytest.mark.scenario("controllers", 15)
@pytest.mark.scenario("controllers", 16)
async def test_what_svc_puts_beside_the_pods_follows_the_scale(cluster: Cluster) -> None:
    await cluster.job("named", a_task("a", 2), plugins={"svc": [], "ssh": [], "env": []})
    await cluster.phase("named", "Running")
    for kind, name in (
        (core.CONFIG_MAP, "named-svc"),
        (core.SERVICE, "named"),
        (networking.NETWORK_POLICY, "named"),
        (core.SECRET, "named-ssh"),
    ):
        assert await cluster.exists(kind, name), name
    job = await cluster.client.get(batch.JOB, "named", "default")
    assert job.status.controlled_resources == {
        "plugin-svc": "svc",
        "plugin-ssh": "ssh",
        "plugin-env": "env",
    }

    for replicas in (4, 1, 0, 2):
        spec = {"minAvailable": replicas, "tasks": [a_task("a", replicas)]}
        await cluster.client.patch(batch.JOB, "named", {"spec": spec}, "default")
        await cluster.pods_are(*(f"named-a-{index}" for index in range(replicas)), job="named")
        data = (await cluster.client.get(core.CONFIG_MAP.untyped, "named-svc", "default"))["data"]
        assert data["VC_A_NUM"] == str(replicas)
        assert data["a.host"].split() == [f"named-a-{index}.named" for index in range(replicas)]
    await cluster.phase("named", "Running")
    job = await cluster.client.get(batch.JOB, "named", "default")
    assert job.status.retry_count == 0

    await cluster.succeed("named-a-0", "named-a-1")
    await cluster.phase("named", "Completed")
    for kind, name in (
        (core.CONFIG_MAP, "named-svc"),
        (core.SERVICE, "named"),
        (core.SECRET, "named-ssh"),
    ):
        await cluster.gone(kind, name)


async def test_a_task_waits_for_another(cluster: Cluster) -> None:
    await cluster.job(
        "ordered", a_task("a"), a_task("b", dependsOn={"name": ["a"]}), minAvailable=1
    )
    await cluster.phase("ordered", "Running")
    await cluster.pods_are("ordered-a-0", "ordered-b-0", job="ordered")
    first, second = (cluster.pods.get(f"default/ordered-{task}-0") for task in "ab")
    assert first and second and int(first["metadata"]["resourceVersion"]) > 0
    await cluster.succeed("ordered-a-0", "ordered-b-0")
    await cluster.phase("ordered", "Completed")


@pytest.mark.scenario("controllers", 172)
@pytest.mark.scenario("controllers", 173)
async def test_suspend_and_resume(cluster: Cluster) -> None:
    job = await cluster.job("paused", a_task("a", 2))
    await cluster.phase("paused", "Running")
    await cluster.command("AbortJob", job)
    await cluster.phase("paused", "Aborted")
    await cluster.pods_are(job="paused")
    await cluster.command("ResumeJob", job)
    await cluster.went("paused", "Aborting", "Aborted", "Restarting", "Pending", "Running")
    assert not (
        await cluster.client.list(batch.JOB.untyped, "default", fields="metadata.name=nothing")
    ).items
    assert await _told(cluster, "paused", "CommandIssued")

    cluster.hold = True
    waiting = await cluster.job("waiting", a_task("a", 2))
    await cluster.phase("waiting", "Pending")
    await cluster.command("AbortJob", waiting)
    await cluster.phase("waiting", "Aborted")
    assert "waiting-a-0" not in cluster.pods_ever


@pytest.mark.scenario("controllers", 135)
async def test_a_finished_job_goes_when_its_time_is_over(cluster: Cluster) -> None:
    await cluster.job("brief", a_task("a"), ttlSecondsAfterFinished=0)
    await cluster.phase("brief", "Running")
    await cluster.succeed("brief-a-0")
    await cluster.until(lambda: "Completed" in cluster.phases["brief"])
    # Nobody else collects garbage here.
    await cluster.gone(batch.JOB, "brief")
    await cluster.pods_are(job="brief")


async def test_a_job_waits_for_its_queue(cluster: Cluster) -> None:
    await cluster.job("early", a_task("a"), queue="later")
    await cluster.phase("early", "Pending")
    assert not cluster.names("early")
    await cluster.queue("later")
    await cluster.phase("early", "Running")


async def test_a_foreign_pod_is_in_the_way(cluster: Cluster) -> None:
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    await cluster.client.create(
        core.POD.untyped, {"metadata": {"name": "taken-a-0"}, "spec": spec}, "default"
    )
    await cluster.job("taken", a_task("a"))
    told = await _told(cluster, "taken", "FailedCreate")
    assert "belongs to something else" in str(told[0]["message"])


@pytest.mark.scenario("controllers", 13)
async def test_claims_that_exist_and_claims_that_are_made(cluster: Cluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [
        {"mountPath": "/one", "volumeClaimName": "data"},
        {"mountPath": "/two", "volumeClaim": spec},
    ]
    await cluster.job("volumes", a_task("a"), volumes=volumes)
    await _told(cluster, "volumes", "PVCError")
    waiting = await cluster.phase("volumes", "Pending")
    assert not cluster.names("volumes") and waiting.status.retry_count == 0
    await cluster.client.create(
        core.PERSISTENT_VOLUME_CLAIM.untyped,
        {"metadata": {"name": "data"}, "spec": spec},
        "default",
    )
    job = await cluster.phase("volumes", "Running")
    made = job.spec.volumes[1].volume_claim_name
    assert made.startswith("volumes-pvc-") and await cluster.exists(
        core.PERSISTENT_VOLUME_CLAIM, made
    )
    assert job.status.controlled_resources == {
        "volume-pvc-data": "data",
        f"volume-pvc-{made}": made,
    }
    pod = cluster.pods.get("default/volumes-a-0")
    assert pod is not None
    assert [
        v["persistentVolumeClaim"]["claimName"]
        for v in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in v
    ] == ["data", made]


async def test_jobs_of_a_queue_that_extends_to_other_clusters_are_marked(cluster: Cluster) -> None:
    await cluster.queue("far", extendClusters=[{"name": "other", "weight": 1}])
    await cluster.job("forwarded", a_task("a"), queue="far")
    job = await cluster.phase("forwarded", "Running")
    pod = cluster.pods.get("default/forwarded-a-0")
    assert pod is not None and job.metadata.annotations["volcano.sh/job-forwarding"] == "true"
    assert pod["metadata"]["labels"]["volcano.sh/job-forwarding"] == "true"


async def test_a_plugin_that_does_not_exist_ends_the_job_after_its_retries(
    shared_apiserver: ApiServerProcess,
) -> None:
    async with running(shared_apiserver, "--max-requeue-num=3") as cluster:
        await cluster.job("odd", a_task("a"), plugins={"pytorhc": []})
        job = await cluster.phase("odd", "Terminated")
        assert "failed to get plugin pytorhc; did you mean pytorch?" in job.status.state.message
        assert await _told(cluster, "odd", "PluginError")


@pytest.mark.scenario("controllers", 62)
@pytest.mark.scenario("controllers", 69)
async def test_a_group_of_the_old_name_is_taken_over(cluster: Cluster) -> None:
    group = {
        "metadata": {"name": "legacy"},
        "spec": {"minMember": 9, "queue": "default"},
        "status": {"phase": "Inqueue"},
    }
    await cluster.client.create(scheduling.POD_GROUP.untyped, group, "default")
    await cluster.job("before", a_task("a"))
    # So the controller has read of the group: it read of this job's later.
    await cluster.phase("before", "Running")
    job = await cluster.job("legacy", a_task("a", 2))
    await cluster.phase("legacy", "Running")
    assert not await cluster.exists(scheduling.POD_GROUP, f"legacy-{job.metadata.uid}")
    assert cluster.groups.get("default/legacy").spec.min_member == 2  # type: ignore[union-attr]
    await cluster.succeed("legacy-a-0", "legacy-a-1")
    await cluster.phase("legacy", "Completed")
    await cluster.gone(scheduling.POD_GROUP, "legacy")


async def test_what_belongs_to_somebody_else_is_left_alone(cluster: Cluster) -> None:
    service = {"metadata": {"name": "mine"}, "spec": {"ports": [{"port": 80}]}}
    await cluster.client.create(core.SERVICE.untyped, service, "default")
    await cluster.job("mine", a_task("a"), plugins={"svc": []})
    told = await _told(cluster, "mine", "PluginError")
    assert told[0]["message"] == "Service mine exists already and does not belong to this job"
    await cluster.phase("mine", "Pending")
    await cluster.client.delete(core.SERVICE, "mine", "default")
    await cluster.phase("mine", "Running")


async def test_a_job_of_the_same_name_waits_for_the_pods_of_the_first(cluster: Cluster) -> None:
    await cluster.job("twin", a_task("a"), plugins={"svc": []})
    await cluster.phase("twin", "Running")
    await cluster.client.delete(batch.JOB, "twin", "default")
    await cluster.until(lambda: cluster.jobs.get("default/twin") is None)
    await cluster.job("twin", a_task("a"))
    await cluster.phase("twin", "Pending")
    # As the garbage collector would.
    await cluster.client.delete(core.POD, "twin-a-0", "default", grace=0)
    job = await cluster.phase("twin", "Running")
    assert job.status.retry_count == 0 and len(cluster.pods_ever["twin-a-0"]) == 2


@pytest.mark.scenario("controllers", 151)
async def test_what_the_scheduler_needs_to_know_of_the_network(cluster: Cluster) -> None:
    policy = {
        "totalPartitions": 2,
        "partitionSize": 2,
        "minPartitions": 1,
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    task = {**a_task("a", 4), "minAvailable": 2, "partitionPolicy": policy}
    job = await cluster.job(
        "wide", task, networkTopology={"mode": "soft", "highestTierAllowed": 2}, minAvailable=2
    )
    await cluster.phase("wide", "Running")
    group = await cluster.until(lambda: cluster.groups.get(f"default/wide-{job.metadata.uid}"))
    assert group.spec.network_topology is not None and group.spec.network_topology.mode == "soft"
    (part,) = group.spec.sub_group_policy
    assert (part.name, part.sub_group_size, part.min_sub_groups) == ("a", 2, 1)
    await cluster.until(lambda: len(cluster.names("wide")) == 4)
    labels = {
        name: (cluster.pods.get(f"default/{name}") or {})["metadata"]["labels"]
        for name in cluster.names("wide")
    }
    assert [labels[f"wide-a-{index}"]["volcano.sh/partition-id"] for index in range(4)] == [
        "0",
        "0",
        "1",
        "1",
    ]
    await cluster.client.delete(core.POD, "wide-a-1", "default", grace=0)
    await cluster.until(lambda: len(cluster.pods_ever["wide-a-1"]) == 2)
    await cluster.pods_are(*(f"wide-a-{index}" for index in range(4)), job="wide")


async def test_a_late_kubelet_leaves_the_next_pod_of_the_name_alone(cluster: Cluster) -> None:
    """The stand-in ended pods by name, and on kube-apiserver the pod made in the place of one, too.

    That server shows each pod as leaving before it is gone.
    """
    await cluster.job("late", a_task("a"))
    await cluster.phase("late", "Running")
    there = await cluster.client.get(core.POD.untyped, "late-a-0", "default")
    meta = {**there["metadata"], "uid": "of-the-one-before"}
    cluster.hear({**there, "metadata": {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    cluster.hear({**there, "metadata": meta, "status": {"phase": "Pending"}})
    await cluster.reported()
    left = await cluster.client.get(core.POD.untyped, "late-a-0", "default")
    assert left["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]


async def test_a_late_look_leaves_the_next_pod_of_the_name_alone(cluster: Cluster) -> None:
    """A leader that was held up stops a pod in whose place the next leader has made another.

    It marked that one, which then was stopped, too.
    """
    job = await cluster.job("stale", a_task("a"))
    await cluster.phase("stale", "Running")
    there = await cluster.client.get(records.POD, "stale-a-0", "default")
    earlier = msgspec.structs.replace(there.metadata, uid="of-the-one-before")
    before = msgspec.structs.replace(there, metadata=earlier)
    recorder = Recorder(cluster.client, "late")
    late = PodControl(cluster.client, Expectations(), recorder, time.time)
    await late.delete("default/stale", job, [before])
    left = await cluster.client.get(records.POD, "stale-a-0", "default")
    assert left.metadata.uid == there.metadata.uid and left.metadata.annotations.out_of_sync is None


async def test_enough_successes_end_the_job_and_its_status_says_what_is_left(
    cluster: Cluster,
) -> None:
    """What runs beyond `minSuccess` is stopped; the counts that follow the end of a job were never
    written."""
    await cluster.job("half", a_task("a", 4, minAvailable=1), minSuccess=2)
    await cluster.phase("half", "Running")
    await cluster.until(
        lambda: (job := cluster.jobs.get("default/half")) is not None and job.status.running == 4
    )
    await cluster.succeed("half-a-0", "half-a-1")
    await cluster.phase("half", "Completed")

    def left() -> tuple[int, ...]:
        job = cluster.jobs.get("default/half")
        assert job is not None
        return job.status.running, job.status.terminating, job.status.pending, job.status.succeeded

    await cluster.until(lambda: left() == (0, 0, 0, 2), lambda: str(left()))
