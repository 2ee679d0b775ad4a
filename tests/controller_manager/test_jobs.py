"""Jobs on a real API server, whose pods end as the test says."""

from __future__ import annotations

import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.batch import JOB
from hekla.kube.errors import NotFound
from tests.controller_manager.cluster import (
    client,
    controllers,
    eventually,
    kubelet,
    namespace,
    server,
)

__all__ = ["client", "controllers", "kubelet", "namespace", "server"]

JOBS = JOB.untyped
TRACKING = "batch.kubernetes.io/job-tracking"


def job(name, restart="Never", **spec):
    template = {
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "pause"}],
        }
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def pods_of(kubelet, name, count, *, index=None):
    """Once so many pods of the job are active, these; by index when asked for."""

    async def look():
        pods = {
            n: p
            for n, p in (await kubelet.pods()).items()
            if p["metadata"]["labels"].get("job-name") == name
            and p["status"]["phase"] not in ("Succeeded", "Failed")
        }
        return len(pods) == count and (pods or True)

    pods = await eventually(look)
    if index is None:
        return pods
    return {
        int(p["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]): p
        for p in pods.values()
    }


async def ended(client, namespace, name, kind):
    """Once the job has this condition, its conditions by type and its status."""

    async def look():
        status = (await client.get(JOBS, name, namespace)).get("status", {})
        conditions = {c["type"]: c for c in status.get("conditions", ()) if c["status"] == "True"}
        return kind in conditions and (conditions, status)

    return await eventually(look)


async def test_three_completions_two_at_a_time(client, namespace, kubelet):
    await client.create(JOBS, job("three", completions=3, parallelism=2), namespace)
    for pod in (first := await pods_of(kubelet, "three", 2)):
        assert first[pod]["metadata"]["finalizers"] == [TRACKING]
        await kubelet.report(pod, "Succeeded", code=0)
    for pod in await pods_of(kubelet, "three", 1):
        await kubelet.report(pod, "Succeeded", code=0)

    conditions, status = await ended(client, namespace, "three", "Complete")

    assert (
        conditions["SuccessCriteriaMet"]["reason"]
        == conditions["Complete"]["reason"]
        == "CompletionsReached"
    )
    assert (
        status["succeeded"] == 3
        and "active" not in status
        and status["completionTime"]
        and status["uncountedTerminatedPods"] == {}
    )
    assert not any(pod["metadata"].get("finalizers") for pod in (await kubelet.pods()).values())


async def test_too_many_failures_end_the_job(client, namespace, kubelet):
    await client.create(JOBS, job("never", backoffLimit=0, parallelism=2, completions=2), namespace)
    failing, other = await pods_of(kubelet, "never", 2)
    await kubelet.report(failing, "Failed", code=1)

    conditions, status = await ended(client, namespace, "never", "Failed")

    assert (
        conditions["FailureTarget"]["reason"]
        == conditions["Failed"]["reason"]
        == "BackoffLimitExceeded"
    )
    assert conditions["Failed"]["message"] == "Job has reached the specified backoff limit"
    assert status["failed"] == 2 and other not in await kubelet.pods(leaving=True)


async def test_indexes(client, namespace, kubelet):
    await client.create(
        JOBS, job("rank", completions=3, parallelism=3, completionMode="Indexed"), namespace
    )
    pods = await pods_of(kubelet, "rank", 3, index=True)
    assert sorted(pods) == [0, 1, 2]
    spec = pods[1]["spec"]
    assert spec["hostname"] == "rank-1" and pods[1]["metadata"]["name"].startswith("rank-1-")
    env = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in spec["containers"][0]["env"]
    }
    assert env == {
        "JOB_COMPLETION_INDEX": "metadata.labels['batch.kubernetes.io/job-completion-index']"
    }
    for index in (0, 2):
        await kubelet.report(pods[index]["metadata"]["name"], "Succeeded", code=0)

    async def counted():
        return (await client.get(JOBS, "rank", namespace))["status"].get(
            "completedIndexes"
        ) == "0,2"

    await eventually(counted)
    await client.patch(JOBS, "rank", {"spec": {"completions": 1, "parallelism": 1}}, namespace)
    _, status = await ended(client, namespace, "rank", "Complete")
    assert status["completedIndexes"] == "0"


async def test_an_index_fails_alone_and_the_job_at_its_end(client, namespace, kubelet):
    await client.create(
        JOBS,
        job(
            "alone", completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=0
        ),
        namespace,
    )
    pods = await pods_of(kubelet, "alone", 2, index=True)
    await kubelet.report(pods[0]["metadata"]["name"], "Failed", code=1)

    async def lost():
        return (await client.get(JOBS, "alone", namespace))["status"].get("failedIndexes") == "0"

    await eventually(lost)
    await kubelet.report(pods[1]["metadata"]["name"], "Succeeded", code=0)

    conditions, status = await ended(client, namespace, "alone", "Failed")
    assert (
        conditions["Failed"]["reason"] == "FailedIndexes"
        and status["completedIndexes"] == "1"
        and status["failed"] == 1
    )


async def test_one_failed_index_too_many(client, namespace, kubelet):
    spec = {
        "completions": 3,
        "parallelism": 3,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 0,
    }
    await client.create(JOBS, job("most", **spec), namespace)
    pods = await pods_of(kubelet, "most", 3, index=True)
    await kubelet.report(pods[1]["metadata"]["name"], "Failed", code=1)

    conditions, _ = await ended(client, namespace, "most", "Failed")
    assert conditions["Failed"]["reason"] == "MaxFailedIndexesExceeded"


@pytest.mark.parametrize(("action", "reason"), [("FailJob", "PodFailurePolicy"), ("Ignore", None)])
async def test_exit_codes_mean_what_the_policy_says(client, namespace, kubelet, action, reason):
    rules = [{"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]
    await client.create(
        JOBS, job("rules", backoffLimit=0, podFailurePolicy={"rules": rules}), namespace
    )
    (pod,) = await pods_of(kubelet, "rules", 1)
    await kubelet.report(pod, "Failed", code=42)
    if reason:
        conditions, _ = await ended(client, namespace, "rules", "Failed")
        assert conditions["Failed"]["reason"] == reason
        why = f"Container main for pod {namespace}/{pod} failed with exit code 42 matching FailJob rule at index 0"
        assert conditions["Failed"]["message"] == why
        return

    async def release_orphan():
        return not (await kubelet.pods())[pod]["metadata"].get("finalizers")

    await eventually(release_orphan)
    tree = await client.get(JOBS, "rules", namespace)
    assert "failed" not in tree["status"] and not tree["status"].get("conditions")


async def test_a_disrupted_pod_is_not_held_against_the_job(client, namespace, kubelet):
    rules = [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    await client.create(JOBS, job("torn", podFailurePolicy={"rules": rules}), namespace)
    (pod,) = await pods_of(kubelet, "torn", 1)
    await kubelet.report(pod, "Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}])

    conditions, _ = await ended(client, namespace, "torn", "Failed")
    assert (
        conditions["Failed"]["message"]
        == f"Pod {namespace}/{pod} has condition DisruptionTarget matching FailJob rule at index 0"
    )


async def test_enough_indexes_are_a_success(client, namespace, kubelet):
    policy = {"rules": [{"succeededIndexes": "0"}]}
    await client.create(
        JOBS,
        job("leader", completions=2, parallelism=2, completionMode="Indexed", successPolicy=policy),
        namespace,
    )
    pods = await pods_of(kubelet, "leader", 2, index=True)
    await kubelet.report(pods[0]["metadata"]["name"], "Succeeded", code=0)

    conditions, status = await ended(client, namespace, "leader", "Complete")
    assert (
        conditions["Complete"]["reason"] == "SuccessPolicy"
        and conditions["Complete"]["message"] == "Matched rules at index 0"
    )
    assert status["completedIndexes"] == "0"


async def test_suspended_jobs_have_no_pods(client, namespace, kubelet):
    await client.create(JOBS, job("later", suspend=True), namespace)
    await ended(client, namespace, "later", "Suspended")
    assert not await kubelet.pods()
    await client.patch(JOBS, "later", {"spec": {"suspend": False}}, namespace)
    await pods_of(kubelet, "later", 1)
    await client.patch(JOBS, "later", {"spec": {"suspend": True}}, namespace)
    await pods_of(kubelet, "later", 0)
    await ended(client, namespace, "later", "Suspended")


async def test_a_deadline(client, namespace, kubelet):
    await client.create(JOBS, job("short", activeDeadlineSeconds=1), namespace)

    conditions, _ = await ended(client, namespace, "short", "Failed")
    assert conditions["Failed"]["reason"] == "DeadlineExceeded"


async def test_a_finished_job_goes_after_its_time_and_its_pods_with_it(client, namespace, kubelet):
    await client.create(JOBS, job("brief", ttlSecondsAfterFinished=0), namespace)
    (pod,) = await pods_of(kubelet, "brief", 1)
    await kubelet.report(pod, "Succeeded", code=0)

    async def gone():
        try:
            await client.get(JOBS, "brief", namespace)
        except NotFound:
            return not await kubelet.pods(leaving=True)
        return False

    await eventually(gone)


async def test_pods_of_a_deleted_job_are_not_held(client, namespace, kubelet):
    await client.create(JOBS, job("gone", parallelism=2), namespace)
    await pods_of(kubelet, "gone", 2)

    await client.delete(JOBS, "gone", namespace, propagation="Background")

    async def gone():
        return not await kubelet.pods(leaving=True)

    await eventually(gone)


async def test_orphans_are_adopted_and_strangers_released(client, namespace, kubelet):
    await client.create(JOBS, job("home", parallelism=2, completions=2), namespace)
    name, _ = await pods_of(kubelet, "home", 2)
    pod = await client.get(core.POD.untyped, name, namespace)
    uid = (await client.get(JOBS, "home", namespace))["metadata"]["uid"]
    await client.patch(core.POD, name, {"metadata": {"ownerReferences": None}}, namespace)

    async def adopted():
        owners = (await client.get(core.POD.untyped, name, namespace))["metadata"].get(
            "ownerReferences"
        )
        return owners and owners[0]["uid"] == uid

    await eventually(adopted)
    labels = dict.fromkeys(pod["metadata"]["labels"])
    await client.patch(core.POD, name, {"metadata": {"labels": labels}}, namespace)

    async def released():
        meta = (await client.get(core.POD.untyped, name, namespace))["metadata"]
        return not meta.get("ownerReferences") and not meta.get("finalizers")

    await eventually(released)
