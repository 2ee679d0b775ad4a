"""In-process webhooks: they follow their configurations and give the same responses as the daemon."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.admission import daemon as admission
from hekla.admission.in_process import WORKLOADS, in_process_settings, reviewers
from hekla.admission.registration import Where, kind_of, webhook
from hekla.admission.registry import ADMISSIONS
from hekla.admission.review import StaticLookup
from hekla.admission.reviews import answer
from hekla.api import crds
from hekla.api.trees import Json
from hekla.kube.flags import parse
from hekla.local.apiserver.request.health import KUBERNETES_MINOR
from hekla.local.cluster.cluster import Cluster, Settings
from tests.apiserver.http import Http, until
from tests.apiserver_process import ApiServerProcess

URL = "https://127.0.0.1:1"
"""Where nobody listens."""
ENTRY = "hekla.admission.in_process:reviewers"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
HOOKS = "/apis/admissionregistration.k8s.io/v1"


def job(name: str, **spec: Any) -> Json:
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    tasks = [{"name": "work", "replicas": 2, "template": template}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": tasks, **spec},
    }


def queue(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def opened(http: Http, name: str, **spec: Any) -> None:
    assert http.post(QUEUES, queue(name, **spec)).status == 201
    assert http.patch(f"{QUEUES}/{name}/status", {"status": {"state": "Open"}}).status == 200


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """A server with our kinds and the webhooks of workloads, whose URL leads nowhere."""
    server = ApiServerProcess(tmp_path_factory.mktemp("inside"), f"--inside-webhooks={URL}={ENTRY}")
    server.start()
    try:
        http = Http(server)
        for definition in crds.all():
            assert (
                http.post(
                    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
                ).status
                == 201
            )
        until(
            lambda: (
                http.get(JOBS).status == 200
                and http.get(GROUPS).status == 200
                and http.get(QUEUES).status == 200
            )
        )
        opened(http, "default")
        for path in ("/jobs/mutate", "/jobs/validate", "/podgroups/mutate", "/podgroups/validate"):
            configure(http, path)
        yield server
    finally:
        server.kill()


def configure(http: Http, path: str, **more: Any) -> None:
    rule = ADMISSIONS[path]
    kind = kind_of(rule)
    hook = webhook(rule, Where(url=URL), b"", in_process_settings(int(KUBERNETES_MINOR))) | more
    tree = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": rule.configuration},
        "webhooks": [hook],
    }
    http.delete(f"{HOOKS}/{kind.plural}/{rule.configuration}")
    assert http.post(f"{HOOKS}/{kind.plural}", tree).status == 201


@pytest.fixture
def http(api_server: ApiServerProcess) -> Http:
    return Http(api_server)


def test_a_job_is_filled_in_without_anybody_listening(http: Http) -> None:
    answer = http.post(JOBS, job("filled"))
    assert answer.status == 201, answer
    spec = answer.tree["spec"]
    assert (spec["queue"], spec["schedulerName"], spec["minAvailable"], spec["maxRetry"]) == (
        "default",
        "volcano",
        2,
        3,
    )
    assert (spec["tasks"][0]["minAvailable"], spec["tasks"][0]["maxRetry"]) == (2, 3)


def test_a_refusal_reads_as_that_of_a_webhook(http: Http) -> None:
    answer = http.post(JOBS, job("lost", queue="nowhere"))
    assert answer.status == 400
    assert answer.message == (
        'admission webhook "validatejob.volcano.sh" denied the request: unable to find job queue: '
        'queue.scheduling.volcano.sh "nowhere" not found;'
    )
    metrics = http.get("/metrics").body.decode()
    labels = 'error_type="no_error",name="validatejob.volcano.sh",operation="CREATE",rejection_code="400",type="validating"'
    assert f"apiserver_admission_webhook_rejection_count{{{labels}}} 1" in metrics
    assert 'admission_webhook_request_total{code="200",name="mutatejob.volcano.sh"' in metrics


def test_rules_see_queues_as_they_are_at_that_moment(http: Http) -> None:
    opened(http, "above")
    assert http.post(JOBS, job("leaf", queue="above")).status == 201
    opened(http, "below", parent="above")
    assert (
        "queue `above` has 1 child queues;" in http.post(JOBS, job("inner", queue="above")).message
    )
    assert http.delete(f"{QUEUES}/below").status == 200
    assert http.post(JOBS, job("leaf-again", queue="above")).status == 201
    assert http.patch(f"{QUEUES}/above/status", {"status": {"state": "Closed"}}).status == 200
    assert "queue `above` status is `Closed`" in http.post(JOBS, job("late", queue="above")).message


def test_a_group_goes_to_the_queue_of_its_namespace(http: Http) -> None:
    opened(http, "ours")
    annotated = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "ours"}}}
    assert http.patch("/api/v1/namespaces/default", annotated).status == 200
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"queue": "default"},
    }
    assert http.post(GROUPS, group).tree["spec"]["queue"] == "ours"
    assert (
        http.patch("/api/v1/namespaces/default", {"metadata": {"annotations": None}}).status == 200
    )


def test_an_update_is_judged_against_what_is_stored(http: Http) -> None:
    assert http.post(JOBS, job("stored")).status == 201
    answer = http.patch(f"{JOBS}/stored", {"spec": {"queue": "default", "maxRetry": 9}})
    assert (answer.status, "job updates may not change fields other than" in answer.message) == (
        400,
        True,
    ), answer


def test_configurations_say_whether_and_where(http: Http) -> None:
    configure(http, "/jobs/validate", matchConditions=[{"name": "never", "expression": "false"}])
    assert http.post(JOBS, job("unasked", queue="nowhere")).status == 201
    elsewhere = webhook(
        ADMISSIONS["/jobs/validate"], Where(url="https://127.0.0.1:2"), b"", in_process_settings(36)
    )["clientConfig"]
    configure(http, "/jobs/validate", clientConfig=elsewhere)
    answer = http.post(JOBS, job("asked-elsewhere"))
    assert (answer.status, "connection refused" in answer.message) == (500, True), answer
    configure(http, "/jobs/validate")
    assert http.post(JOBS, job("asked-again", queue="nowhere")).status == 400


def test_a_rule_for_another_kind_is_answered_as_the_daemon_would(http: Http) -> None:
    everything = [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "scope": "*",
        }
    ]
    configure(http, "/jobs/validate", rules=everything)
    answer = http.post(
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
    )
    configure(http, "/jobs/validate")
    assert answer.message.endswith("expect resource to be batch.volcano.sh/v1alpha1, Resource=jobs")


@pytest.mark.parametrize(
    "spec", [{}, {"tasks": []}, {"queue": "closed"}, {"plugins": {"mpi": []}}, {"minAvailable": 9}]
)
@pytest.mark.parametrize("path", ["/jobs/mutate", "/jobs/validate"])
def test_the_daemon_answers_the_same(path: str, spec: Json) -> None:
    lookup = StaticLookup(
        [
            queue("default") | {"status": {"state": "Open"}},
            queue("closed") | {"status": {"state": "Closed"}},
        ]
    )
    tree = job("one", **({"queue": "default"} | spec))
    request = {
        "uid": "1",
        "name": "one",
        "namespace": "default",
        "operation": "CREATE",
        "object": tree,
        "resource": {"group": "batch.volcano.sh", "version": "v1alpha1", "resource": "jobs"},
    }
    body, _, _ = answer(
        ADMISSIONS[path], json.dumps({"request": request}).encode(), lookup, in_process_settings(36)
    )
    said = json.loads(body)["response"]
    patch = json.loads(base64.b64decode(said["patch"])) if "patch" in said else None
    found = reviewers(lookup, 36)[path](
        ("batch.volcano.sh", "v1alpha1", "jobs"), "CREATE", tree, None, "one", "default"
    )
    assert found == (said["allowed"], said.get("status", {}).get("message", ""), patch)


def test_the_cluster_starts_both_with_the_same_rules(tmp_path: Path) -> None:
    programs = {
        program.name: program.arguments
        for program in Cluster(tmp_path).programs(Settings(admission_port=8765))
    }
    options = parse(admission.FLAGS, programs["admission"][1:])
    settings = admission.settings_of(options, pod_level_resources=int(KUBERNETES_MINOR) >= 34)
    assert settings == in_process_settings(int(KUBERNETES_MINOR))
    assert f"--inside-webhooks={options.webhook_url}={ENTRY}" in programs["apiserver"]
    served = set(options.enabled_admission.split(","))
    assert {path for path, rule in ADMISSIONS.items() if rule.resource in WORKLOADS} <= served


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("hekla.admission.in_process", "is not of the form"),
        (f"{URL}=hekla.nowhere:reviewers", "hekla.nowhere:reviewers is not there"),
        (
            f"{URL}=hekla.admission.in_process:nothing",
            "hekla.admission.in_process:nothing is not there",
        ),
    ],
)
def test_missing_files_are_reported_at_the_start(tmp_path: Path, flag: str, why: str) -> None:
    server = ApiServerProcess(tmp_path / "server", f"--inside-webhooks={flag}")
    with pytest.raises(RuntimeError, match=f"--inside-webhooks: .*{why}"):
        server.start()
