"""Admission where it counts: manifests sent to a real API server that asks the webhook server.
Reference: api-and-admission 7."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.objects import Tree, job, task
from tests.admission.process import (
    BATCH,
    SCHEDULING,
    admission,
    call,
    install_kinds,
    make_queue,
    wait_for,
)
from tests.apiserver_process import ApiServerProcess, Kubernetes
from tests.kubernetes import programs

JOBS = f"{BATCH}/namespaces/default/jobs"
QUEUES = f"{SCHEDULING}/queues"


@pytest.fixture(
    scope="module", params=["hekla", pytest.param("kubernetes", marks=programs.slow(60))]
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServerProcess]:
    directory = tmp_path_factory.mktemp("admission")
    if request.param == "kubernetes":
        programs.wanted(*programs.SERVER)
    with (
        Kubernetes.alone(directory)
        if request.param == "kubernetes"
        else ApiServerProcess.started(directory) as server
    ):
        install_kinds(server)
        for name in ("root", "default"):
            make_queue(server, name)
        with admission(server, directory, "--enable-queue-allocated-pods-check"):
            make_queue(server, "parent", parent="root")
            make_queue(server, "child", parent="parent")
            make_queue(server, "shut", state="Closed", parent="root")
            wait_for(
                "the queues are known",
                lambda: (
                    "leaf queue" in said(server, "parent") and "`Closed`" in said(server, "shut")
                ),
            )
            yield server


def said(server: ApiServerProcess, queue: str) -> str:
    """What a job is told that would go to a queue."""
    return str(
        call(server, "POST", f"{JOBS}?dryRun=All", job(name="probe", queue=queue))[1].get(
            "message", ""
        )
    )


def refused(cluster: ApiServerProcess, path: str, tree: Tree) -> tuple[int, str]:
    status, answer = call(cluster, "POST", path, tree)
    assert status >= 400, answer
    stored, _ = call(cluster, "GET", f"{path}/{tree['metadata']['name']}")
    assert stored == 404, "what is refused is not stored"
    return status, answer["message"]


@pytest.mark.scenario("api-and-admission", 1)
@pytest.mark.scenario("api-and-admission", 2)
@pytest.mark.scenario("api-and-admission", 3)
@pytest.mark.scenario("api-and-admission", 4)
@pytest.mark.scenario("api-and-admission", 12)
def test_a_bare_job_is_stored_with_its_defaults(cluster: ApiServerProcess):
    unnamed = {"replicas": 2, "template": task()["template"]}
    tree = {**job(name="bare"), "spec": {"tasks": [unnamed, {**unnamed, "replicas": 3}]}}

    status, stored = call(cluster, "POST", JOBS, tree)

    assert status == 201, stored
    spec = stored["spec"]
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"], spec["minAvailable"]) == (
        "default",
        "volcano",
        3,
        5,
    )
    assert [each["name"] for each in spec["tasks"]] == ["default0", "default1"]


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        pytest.param(job(name="no-queue", queue="nowhere"),
                     'unable to find job queue: queue.scheduling.volcano.sh "nowhere" not found;',
                     marks=pytest.mark.scenario("api-and-admission", 60)),
        pytest.param(job(name="at-root", queue="root"), "can not submit job to root queue;",
                     marks=pytest.mark.scenario("api-and-admission", 61)),
        pytest.param(job(name="at-parent", queue="parent"),
                     "can only submit job to leaf queue, queue `parent` has 1 child queues;",
                     marks=pytest.mark.scenario("api-and-admission", 62)),
        (job(name="at-shut", queue="shut"), "can only submit job to queue with state `Open`, queue `shut` status is `Closed`;"),
        pytest.param(job(name="too-much", minAvailable=5),
                     "job 'minAvailable' should not be greater than total replicas in tasks;",
                     marks=pytest.mark.scenario("api-and-admission", 38)),
        pytest.param(job(task("a"), task("a"), name="twice", minAvailable=2), "duplicated task name a;",
                     marks=pytest.mark.scenario("api-and-admission", 36)),
        pytest.param(job(name="plug", plugins={"big_plugin": []}), "unable to find job plugin: big_plugin;",
                     marks=pytest.mark.scenario("api-and-admission", 39)),
        pytest.param({**job(name="taskless"), "spec": {}}, "No task specified in job spec",
                     marks=pytest.mark.scenario("api-and-admission", 40)),
    ],
)  # fmt: skip
def test_a_bad_job_is_refused_by_the_webhook(cluster: ApiServerProcess, tree: Tree, text: str):
    status, message = refused(cluster, JOBS, tree)

    assert (status, message) == (
        400,
        f'admission webhook "validatejob.volcano.sh" denied the request: {text}',
    )


@pytest.mark.parametrize(
    ("tree", "path", "text"),
    [
        pytest.param(job(task(replicas=-1), name="s42"), "spec.tasks[0].replicas", "should be greater than or equal to 0",
                     marks=pytest.mark.scenario("api-and-admission", 42)),
        pytest.param(job(name="s43", minAvailable=-1), "spec.minAvailable", "should be greater than or equal to 0",
                     marks=pytest.mark.scenario("api-and-admission", 43)),
        pytest.param(job(name="s44", maxRetry=-1), "spec.maxRetry", "should be greater than or equal to 0",
                     marks=pytest.mark.scenario("api-and-admission", 44)),
        pytest.param(job(name="s45", ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished",
                     "should be greater than or equal to 0", marks=pytest.mark.scenario("api-and-admission", 45)),
        pytest.param(job(task(minAvailable=-1), name="s46"), "spec.tasks[0].minAvailable",
                     "should be greater than or equal to 0", marks=pytest.mark.scenario("api-and-admission", 46)),
        pytest.param(job(task("Task-1"), name="s48"), "spec.tasks[0].name", "should match",
                     marks=pytest.mark.scenario("api-and-admission", 48)),
        pytest.param(job(name="s51", policies=[{"event": "someFakeEvent", "action": "AbortJob"}]), "spec.policies[0].event",
                     "Unsupported value", marks=pytest.mark.scenario("api-and-admission", 51)),
        pytest.param(job(name="s57", volumes=[{"mountPath": "", "volumeClaimName": "a"}]), "spec.volumes[0].mountPath",
                     "should be at least 1 chars long", marks=pytest.mark.scenario("api-and-admission", 57)),
    ],
)  # fmt: skip
def test_what_the_schema_refuses_never_reaches_the_webhook(
    cluster: ApiServerProcess, tree: Tree, path: str, text: str
):
    status, message = refused(cluster, JOBS, tree)

    assert status == 422
    assert path in message and text in message


@pytest.mark.scenario("api-and-admission", 77)
@pytest.mark.scenario("api-and-admission", 79)
@pytest.mark.scenario("api-and-admission", 80)
@pytest.mark.scenario("api-and-admission", 82)
def test_a_stored_job_may_change_its_size_only(cluster: ApiServerProcess):
    _, stored = call(cluster, "POST", JOBS, job(name="grows"))
    tasks = stored["spec"]["tasks"]

    def put(**changes: object) -> tuple[int, Tree]:
        _, now = call(cluster, "GET", f"{JOBS}/grows")
        return call(cluster, "PUT", f"{JOBS}/grows", {**now, "spec": {**now["spec"], **changes}})

    assert put(tasks=[{**tasks[0], "replicas": 5}], minAvailable=3)[0] == 200
    assert "must not be greater than total replicas" in put(minAvailable=10)[1]["message"]
    assert (
        "job updates may not add or remove tasks"
        in put(tasks=[{**tasks[0], "replicas": 5}, task("more")])[1]["message"]
    )
    assert "job updates may not change fields other than" in put(queue="child")[1]["message"]


def queue(name: str, **spec: object) -> Tree:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.scenario("api-and-admission", 91)
@pytest.mark.scenario("api-and-admission", 92)
@pytest.mark.scenario("api-and-admission", 93)
@pytest.mark.scenario("api-and-admission", 94)
@pytest.mark.scenario("api-and-admission", 115)
def test_queues_are_stored_with_their_defaults(cluster: ApiServerProcess):
    _, bare = call(cluster, "POST", QUEUES, queue("bare"))
    _, said = call(cluster, "POST", QUEUES, queue("said", weight=5, reclaimable=False))

    assert (bare["spec"]["weight"], bare["spec"]["reclaimable"]) == (1, True)
    assert (said["spec"]["weight"], said["spec"]["reclaimable"]) == (5, False)


@pytest.mark.scenario("api-and-admission", 114)
def test_a_queues_weight_is_the_schemas_business(cluster: ApiServerProcess):
    status, message = refused(cluster, QUEUES, queue("light", weight=-1))

    assert status == 422
    assert "spec.weight" in message and "should be greater than or equal to 1" in message


@pytest.mark.scenario("api-and-admission", 104)
@pytest.mark.scenario("api-and-admission", 105)
def test_a_queue_with_impossible_shares_is_refused(cluster: ApiServerProcess):
    shares = {"capability": {"cpu": "1"}, "deserved": {"cpu": "2"}}

    assert refused(cluster, QUEUES, queue("greedy", **shares)) == (
        400,
        'admission webhook "validatequeue.volcano.sh" denied the request: requestBody.spec.deserved.cpu: '
        'Invalid value: "2": deserved[cpu]=2 must be <= capability[cpu]=1',
    )


@pytest.mark.scenario("api-and-admission", 100)
@pytest.mark.scenario("api-and-admission", 127)
@pytest.mark.scenario("api-and-admission", 130)
def test_queues_are_deleted_from_below(cluster: ApiServerProcess):
    make_queue(cluster, "upper", parent="root")
    make_queue(cluster, "lower", parent="upper")

    def delete(name: str, query: str = "") -> tuple[int, str]:
        status, answer = call(cluster, "DELETE", f"{QUEUES}/{name}{query}")
        return status, answer.get("message", "")

    denial = 'admission webhook "validatequeue.volcano.sh" denied the request: '
    wait_for("the family is known", lambda: delete("upper", "?dryRun=All")[0] == 400)
    assert delete("upper") == (
        400,
        denial + "queue upper can not be deleted because it has 1 child queues: lower",
    )
    assert delete("default") == (400, denial + "`default` queue can not be deleted")
    assert delete("lower")[0] == 200
    wait_for("the child is gone", lambda: delete("upper")[0] == 200)


@pytest.mark.scenario("api-and-admission", 152)
@pytest.mark.scenario("api-and-admission", 155)
@pytest.mark.scenario("api-and-admission", 149)
def test_groups_stand_in_open_queues_only(cluster: ApiServerProcess):
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 1},
    }
    team = {
        "metadata": {"name": "team", "annotations": {"scheduling.volcano.sh/queue-name": "child"}}
    }
    assert call(cluster, "POST", "/api/v1/namespaces", team)[0] == 201

    def create(namespace: str, query: str = "") -> Tree:
        return call(
            cluster, "POST", f"{SCHEDULING}/namespaces/{namespace}/podgroups{query}", group
        )[1]

    assert create("default")["spec"]["queue"] == "default"
    wait_for(
        "the namespace is known", lambda: create("team", "?dryRun=All")["spec"]["queue"] == "child"
    )
    assert create("team")["spec"]["queue"] == "child"
    lost = {**group, "metadata": {"name": "lost"}, "spec": {"queue": "nowhere"}}
    assert refused(cluster, f"{SCHEDULING}/namespaces/default/podgroups", lost) == (
        400,
        'admission webhook "validatepodgroup.volcano.sh" denied the request: '
        'unable to find queue: queue.scheduling.volcano.sh "nowhere" not found',
    )


def pod(name: str, scheduler: str, **annotations: str) -> Tree:
    marks = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": marks},
        "spec": spec,
    }


PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.scenario("api-and-admission", 168)
@pytest.mark.scenario("api-and-admission", 169)
@pytest.mark.scenario("api-and-admission", 171)
@pytest.mark.scenario("api-and-admission", 165)
def test_sound_pods_are_let_in(cluster: ApiServerProcess):
    for tree in (
        pod("other", "default-scheduler", jdb_min_available="-1"),
        pod("ours", "volcano", jdb_min_available="2"),
        pod("plain", "volcano"),
    ):
        status, stored = call(cluster, "POST", PODS, tree)
        assert status == 201, stored
        assert "nodeSelector" not in stored["spec"]


@pytest.mark.scenario("api-and-admission", 172)
def test_a_pod_with_an_impossible_budget_is_refused(cluster: ApiServerProcess):
    assert refused(cluster, PODS, pod("zero", "volcano", jdb_min_available="0")) == (
        400,
        'admission webhook "validatepod.volcano.sh" denied the request: '
        'invalid value <"0"> for volcano.sh/jdb-min-available, it must be a positive integer',
    )


TOPOLOGY, FLOW = "/apis/topology.volcano.sh/v1alpha1", "/apis/flow.volcano.sh/v1alpha1"


def hypernode(name: str, *selectors: Tree) -> Tree:
    members = [{"type": "Node", "selector": selector} for selector in selectors]
    kind = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
    }
    return {**kind, "spec": {"tier": 1, **({"members": members} if members else {})}}


@pytest.mark.parametrize(
    ("name", "selector", "text"),
    [
        pytest.param("s183", {"exactMatch": {"name": ""}}, "should be at least 1 chars long",
                     marks=pytest.mark.scenario("api-and-admission", 183)),
        pytest.param("s184", {"regexMatch": {"pattern": ""}}, "should be at least 1 chars long",
                     marks=pytest.mark.scenario("api-and-admission", 184)),
        pytest.param("s187", {"exactMatch": {"name": "Node_with_invalid@characters"}}, "should match",
                     marks=pytest.mark.scenario("api-and-admission", 187)),
        pytest.param("s228", {"exactMatch": {"name": "a"}, "regexMatch": {"pattern": "a"}},
                     "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
                     marks=pytest.mark.scenario("api-and-admission", 228)),
        pytest.param("s228b", {}, "Either ExactMatch or RegexMatch or LabelMatch must be specified",
                     marks=pytest.mark.scenario("api-and-admission", 228)),
        pytest.param("s185", {"regexMatch": {"pattern": "a(b"}}, "member regexMatch pattern is invalid",
                     marks=pytest.mark.scenario("api-and-admission", 185)),
    ],
)  # fmt: skip
def test_a_bad_hypernode_is_refused(
    cluster: ApiServerProcess, name: str, selector: Tree, text: str
):
    assert text in refused(cluster, f"{TOPOLOGY}/hypernodes", hypernode(name, selector))[1]


@pytest.mark.scenario("api-and-admission", 192)
@pytest.mark.scenario("api-and-admission", 194)
def test_a_flow_must_be_able_to_run(cluster: ApiServerProcess):
    def flow(target: str) -> Tree:
        step = {"name": "a", "dependsOn": {"targets": [target]}}
        return {
            "apiVersion": "flow.volcano.sh/v1alpha1",
            "kind": "JobFlow",
            "metadata": {"name": "f"},
            "spec": {"flows": [step]},
        }

    path = f"{FLOW}/namespaces/default/jobflows"
    assert (
        "jobflow Flow is not DAG: vertex is not defined: b" in refused(cluster, path, flow("b"))[1]
    )
    assert refused(cluster, path, flow("a"))[1].endswith("jobflow Flow is not DAG")


@pytest.mark.scenario("api-and-admission", 201)
def test_a_cron_job_needs_a_schedule(cluster: ApiServerProcess):
    tree = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": "error schedule", "jobTemplate": {}},
    }

    assert refused(cluster, f"{BATCH}/namespaces/default/cronjobs", tree) == (
        400,
        'admission webhook "validatecronjob.volcano.sh" denied the request: schedule is not a valid cron expression',
    )


def test_kube_system_is_left_alone(cluster: ApiServerProcess):
    status, stored = call(
        cluster,
        "POST",
        f"{BATCH}/namespaces/kube-system/jobs",
        job(name="free", queue="nowhere")
        | {"metadata": {"name": "free", "namespace": "kube-system"}},
    )

    assert status == 201, stored
