"""Jobs from their manifest to their end in a whole cluster, with every part of it at work.
Reference: controllers 14.1 to 14.3."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import Tree
from tests.controllers.whole_cluster.cluster import (
    BATCH,
    EVENTS,
    GROUPS,
    PODS,
    QUEUES,
    WholeCluster,
    a_job,
    a_task,
    container,
    on,
)

pytestmark = pytest.mark.timeout(180)

WHOLE_NODE = "30"
"""Cpus of a pod that leaves no room for a second one."""


@pytest.mark.scenario("controllers", 1)
@pytest.mark.scenario("controllers", 8)
def test_a_job_that_never_fits(cluster: WholeCluster) -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": [cluster.nodes[0]]}
                        ]
                    },
                ]
            }
        }
    }
    job = cluster.run("narrow", a_task("t", 2, cpu=WHOLE_NODE, spec={"affinity": affinity}))
    group = f"narrow-{job['metadata']['uid']}"

    def reasons() -> list[str]:
        return [event["reason"] for event in cluster.events("PodGroup", group)]

    cluster.until(lambda: "Unschedulable" in reasons(), reasons)
    cluster.remove("narrow")
    cluster.run("huge", a_task("t", 2, cpu="100000"))
    cluster.phase("huge", "Pending")
    cluster.remove("huge")


@pytest.mark.scenario("controllers", 2)
def test_a_job_that_is_deleted_while_it_runs(cluster: WholeCluster) -> None:
    cluster.run("running", a_task("t", 2), plugins={"svc": [], "ssh": []})
    cluster.phase("running", "Running")
    cluster.remove("running")
    for path in ("services/running", "configmaps/running-svc", "secrets/running-ssh"):
        cluster.until(
            lambda path=path: cluster.api.get(f"/api/v1/namespaces/default/{path}").status == 404,
            lambda path=path: path,
        )


@pytest.mark.scenario("controllers", 3)
@pytest.mark.scenario("controllers", 4)
@pytest.mark.scenario("controllers", 5)
@pytest.mark.scenario("controllers", 6)
@pytest.mark.parametrize(
    ("name", "code", "policies", "end"),
    [
        ("well", 0, [], "Completed"),
        ("aborts", 3, [on("PodFailed", "AbortJob")], "Aborted"),
        ("terminates", 3, [on("PodFailed", "TerminateJob")], "Terminated"),
        ("unharmed", 0, [on("PodFailed", "TerminateJob")], "Completed"),
    ],
)
def test_how_a_job_ends(
    cluster: WholeCluster, name: str, code: int, policies: list[Tree], end: str
) -> None:
    cluster.run(name, a_task("t", 1, cpu="1"), policies=policies)
    cluster.phase(name, "Running")
    cluster.end(f"{name}-t-0", code)
    cluster.phase(name, end)
    history = cluster.history(name)
    assert history[:2] == ["Pending", "Running"] and history[-1] == end
    cluster.remove(name)


@pytest.mark.scenario("controllers", 18)
def test_what_is_filled_in(cluster: WholeCluster) -> None:
    tasks = [a_task("", 1), a_task("", 1)]
    for task in tasks:
        del task["name"]
    tree = a_job("bare", *tasks)
    del tree["spec"]["schedulerName"]
    spec = cluster.api.create(BATCH, tree)["spec"]
    assert (spec["queue"], spec["schedulerName"]) == ("default", "volcano")
    assert [task["name"] for task in spec["tasks"]] == ["default0", "default1"]
    cluster.phase("bare", "Running")
    cluster.remove("bare")


def _with(**spec: Any) -> Tree:
    return a_job("bad", a_task(), **spec)


VOLUME = {"mountPath": "/a", "volumeClaimName": "claim"}
BAD: dict[str, Tree] = {
    "cpu unit": a_job("bad", a_task(cpu="1x")),
    "memory unit": a_job(
        "bad",
        {
            **a_task(),
            "template": {
                "spec": {"containers": [container(resources={"requests": {"memory": "1Qx"}})]}
            },
        },
    ),
    "task names": a_job("bad", a_task("a"), a_task("a")),
    "policy events": _with(policies=[on("PodFailed", "AbortJob"), on("PodFailed", "RestartJob")]),
    "minAvailable too large": _with(minAvailable=2),
    "plugin": _with(plugins={"nothing": []}),
    "ttl": _with(ttlSecondsAfterFinished=-1),
    "minAvailable below 0": _with(minAvailable=-1),
    "maxRetry": _with(maxRetry=-1),
    "no tasks": a_job("bad"),
    "replicas": a_job("bad", a_task("a", -1), minAvailable=0),
    "task name": a_job("bad", a_task("A_b")),
    "event and exit code": _with(policies=[on("PodFailed", "AbortJob", exitCode=1)]),
    "neither event nor exit code": _with(policies=[{"action": "AbortJob"}]),
    "event": _with(policies=[on("Nothing", "AbortJob")]),
    "action": _with(policies=[on("PodFailed", "Nothing")]),
    "exit code 0": _with(policies=[{"exitCode": 0, "action": "AbortJob"}]),
    "star and more": _with(policies=[on("*", "AbortJob"), on("PodFailed", "RestartJob")]),
    "no mount path": _with(volumes=[{"volumeClaimName": "claim"}]),
    "mount paths": _with(volumes=[VOLUME, VOLUME]),
    "no claim": _with(volumes=[{"mountPath": "/a"}]),
    "queue": _with(queue="nowhere"),
    "root queue": _with(queue="root"),
    "queue with children": _with(queue="parent"),
}


@pytest.mark.scenario("controllers", 19)
@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(cluster: WholeCluster, what: str) -> None:
    for name, parent in (("parent", "root"), ("child", "parent")):
        if cluster.api.get(f"{QUEUES}/{name}").status == 404:
            cluster.queue(name, parent=parent)
    cluster.refused(BAD[what])
    assert cluster.api.get(f"{BATCH}/bad").status == 404


@pytest.mark.scenario("controllers", 20)
@pytest.mark.scenario("api-and-admission", 176)
def test_what_is_let_in(cluster: WholeCluster) -> None:
    privileged = {
        "containers": [container(securityContext={"privileged": True})],
        "restartPolicy": "Never",
    }
    cluster.run("privileged", {**a_task(), "template": {"spec": privileged}})
    cluster.phase("privileged", "Running")
    cluster.remove("privileged")
    cluster.queue("short")
    assert cluster.api.delete(f"{QUEUES}/short").status == 200
    cluster.pod_group("waits", minMember=3, minResources={"cpu": "100000"})
    for name, scheduler, marks in (
        ("plain", "default-scheduler", {}),
        ("batch", "volcano", {}),
        ("early", "volcano", {"scheduling.k8s.io/group-name": "waits"}),
    ):
        spec = {"schedulerName": scheduler, "containers": [container()]}
        cluster.api.create(PODS, {"metadata": {"name": name, "annotations": marks}, "spec": spec})
    for name in ("plain", "batch"):
        cluster.until(
            lambda name=name: (
                cluster.api.get(f"{PODS}/{name}").tree["status"].get("phase") == "Running"
            ),
            lambda name=name: name,
        )
    assert cluster.api.get(f"{PODS}/early").tree["status"]["phase"] == "Pending"
    for name in ("plain", "batch", "early"):
        cluster.api.delete(f"{PODS}/{name}")
    cluster.api.delete(f"{GROUPS}/waits")


def test_a_pod_by_itself_has_a_group_only_where_it_waits(cluster: WholeCluster) -> None:
    made = {}
    for name, cpu in (("fits", "100m"), ("too-large", "100000")):
        spec = {"schedulerName": "volcano", "containers": [container(cpu=cpu)]}
        made[name] = cluster.api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    path = f"{GROUPS}/podgroup-{made['too-large']['metadata']['uid']}"

    def why() -> str:
        group = cluster.api.get(path)
        conditions = group.tree["status"].get("conditions", []) if group.status == 200 else []
        return "; ".join(str(one.get("message")) for one in conditions)

    cluster.until(lambda: "cpu" in why(), why)
    fits = cluster.api.get(f"{PODS}/fits").tree
    assert fits["status"]["phase"] == "Running"
    assert "annotations" not in fits["metadata"]
    assert cluster.api.get(f"{GROUPS}/podgroup-{made['fits']['metadata']['uid']}").status == 404
    events = [
        one["reason"]
        for one in cluster.api.get(EVENTS).tree["items"]
        if one["involvedObject"].get("uid") == made["fits"]["metadata"]["uid"]
        and one.get("source", {}).get("component") == "volcano"
    ]
    assert events == ["Scheduled"]
    for name in made:
        cluster.api.delete(f"{PODS}/{name}")


@pytest.mark.scenario("controllers", 37)
def test_the_more_important_task_runs_first(cluster: WholeCluster) -> None:
    count = len(cluster.nodes)
    for name, value in (("grave", 1000), ("light", 1)):
        cluster.api.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": name}, "value": value},
        )
    tasks = [
        a_task(name, count, cpu=WHOLE_NODE, minAvailable=0, spec={"priorityClassName": name})
        for name in ("light", "grave")
    ]
    # Until all pods are there: a gang may start with those that a slow server made first.
    cluster.cordon(True)
    cluster.run("ranked", *tasks, minAvailable=count)
    cluster.until(lambda: len(cluster.pods("ranked")) == 2 * count)
    cluster.cordon(False)
    cluster.phase("ranked", "Running")
    running = sorted(
        name for name, pod in cluster.pods("ranked").items() if pod["status"]["phase"] == "Running"
    )
    assert running == [f"ranked-grave-{index}" for index in range(count)]
    cluster.remove("ranked")


@pytest.mark.scenario("controllers", 43)
@pytest.mark.parametrize(
    ("plugin", "first", "arguments"),
    [
        ("mpi", "master", []),
        ("pytorch", "master", []),
        ("tensorflow", "ps", ["--ps=ps", "--worker=worker"]),
    ],
)
def test_frameworks_by_their_plugins(
    cluster: WholeCluster, plugin: str, first: str, arguments: list[str]
) -> None:
    ends = [on("TaskCompleted", "CompleteJob")]
    serve = plugin == "mpi"  # the workers, until the master is done
    cluster.run(
        plugin,
        a_task(first, 1, policies=ends if serve else []),
        a_task("worker", 2),
        plugins={plugin: arguments},
    )
    cluster.phase(plugin, "Running")
    for pod in [f"{plugin}-{first}-0"] if serve else cluster.pods(plugin):
        cluster.end(pod)
    cluster.phase(plugin, "Completed")
    expected = (
        ["Pending", "Running", "Completing", "Completed"]
        if serve
        else ["Pending", "Running", "Completed"]
    )
    assert cluster.history(plugin) == expected
    cluster.remove(plugin)


@pytest.mark.scenario("controllers", 44)
def test_ray(cluster: WholeCluster) -> None:
    template = {"spec": {"containers": [{**container(), "name": "ray"}], "restartPolicy": "Never"}}
    tasks = [{**a_task(name), "template": template} for name in ("head", "worker")]
    arguments = [
        "--head=head",
        "--worker=worker",
        "--headContainer=ray",
        "--workerContainer=ray",
        "--port=2345",
    ]
    cluster.run("ray", *tasks, plugins={"ray": arguments, "svc": []})
    cluster.phase("ray", "Running")
    assert cluster.history("ray") == ["Pending", "Running"]
    assert cluster.api.get("/api/v1/namespaces/default/services/ray").status == 200
    assert (
        cluster.api.get("/api/v1/namespaces/default/services/ray-head-svc").tree["spec"]["ports"][
            0
        ]["port"]
        == 2345
    )
    cluster.remove("ray")


@pytest.mark.scenario("controllers", 85)
def test_two_jobs_for_which_there_is_room_for_one(cluster: WholeCluster) -> None:
    count = len(cluster.nodes)
    jobs = [cluster.run(name, a_task("t", count, cpu=WHOLE_NODE)) for name in ("fills", "waits")]

    def phases() -> list[str]:
        return [str(cluster.group(job).get("status", {}).get("phase")) for job in jobs]

    cluster.until(lambda: "Running" in phases(), phases)
    first = jobs[phases().index("Running")]["metadata"]["name"]
    for pod in cluster.pods(first):
        cluster.api.delete(f"{PODS}/{pod}")
    cluster.until(lambda: {"Pending", "Inqueue"} & set(phases()), phases)
    for job in jobs:
        cluster.remove(job["metadata"]["name"])


@pytest.mark.scenario("controllers", 86)
def test_a_gang_that_loses_a_member_is_unknown(cluster: WholeCluster) -> None:
    cluster.pod_group("pair", minMember=2)
    for name in ("one", "two"):
        spec = {"schedulerName": "volcano", "containers": [container()]}
        cluster.api.create(
            PODS,
            {
                "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": "pair"}},
                "spec": spec,
            },
        )

    def phase() -> str:
        return str(cluster.api.get(f"{GROUPS}/pair").tree.get("status", {}).get("phase"))

    cluster.until(lambda: phase() == "Running", phase)
    cluster.api.delete(f"{PODS}/one", {"gracePeriodSeconds": 0})
    cluster.until(lambda: phase() == "Unknown", phase)
    cluster.api.delete(f"{PODS}/two")
    cluster.api.delete(f"{GROUPS}/pair")
