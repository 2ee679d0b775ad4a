"""kubectl as it is: what its users type, and what they read."""

from __future__ import annotations

import json
import select
from pathlib import Path

import pytest

from tests.cluster import objects
from tests.cluster.api import PATIENCE, Api, eventually
from tests.cluster.conftest import Kubectl, Namespace

JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: greeter}
spec:
  schedulerName: volcano
  minAvailable: 1
  tasks:
  - name: t
    replicas: 1
    template:
      spec:
        nodeName: NODE
        restartPolicy: Never
        containers:
        - {name: c, image: busybox, command: [sh, -c, "echo hello; until [ -e /tmp/SAID ]; do sleep 0.1; done; echo bye"]}
"""


class User:
    """Somebody at a shell, in one namespace."""

    def __init__(self, kubectl: Kubectl, ns: Namespace) -> None:
        self.kubectl, self.ns = kubectl, ns

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self.kubectl("-n", self.ns.name, *arguments, stdin=stdin)

    def columns(self, *arguments: str) -> list[str]:
        """The headings of what `get` prints; two blanks or more part them."""
        head = self("get", *arguments).splitlines()[0]
        return [part.strip() for part in head.split("  ") if part.strip()]


@pytest.fixture
def user(kubectl: Kubectl, ns: Namespace) -> User:
    return User(kubectl, ns)


@pytest.fixture(scope="module")
def batch(api: Api) -> None:
    if api.get("/apis/batch.volcano.sh/v1alpha1").status == 404:
        pytest.skip("this cluster has no batch jobs")


COLUMNS = [
    ("pods", ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]),
    ("deployments", ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]),
    ("replicasets", ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]),
    ("configmaps", ["NAME", "DATA", "AGE"]),
    ("secrets", ["NAME", "TYPE", "DATA", "AGE"]),
    ("services", ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]),
    ("nodes", ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]),
    ("namespaces", ["NAME", "STATUS", "AGE"]),
    ("priorityclasses", ["NAME", "VALUE", "GLOBAL-DEFAULT", "AGE", "PREEMPTIONPOLICY"]),
    ("crds", ["NAME", "CREATED AT"]),
]


@pytest.fixture(scope="module")
def shown(api: Api, ns: Namespace) -> None:
    """One object of each kind whose columns are looked at."""
    api.create(ns.path("secrets"), {"metadata": {"name": "shown"}})
    api.create(
        ns.path("services"), {"metadata": {"name": "shown"}, "spec": {"ports": [{"port": 80}]}}
    )
    api.create(
        ns.path("apps/v1/deployments"), objects.deployment("shown", 1, schedulerName="nobody")
    )
    eventually(lambda: api.get(ns.path("pods")).names)


@pytest.mark.parametrize(("resource", "columns"), COLUMNS, ids=[entry[0] for entry in COLUMNS])
@pytest.mark.usefixtures("shown")
def test_get_has_the_right_columns(user: User, resource: str, columns: list[str]) -> None:
    assert user.columns(resource) == columns


@pytest.mark.usefixtures("shown")
def test_get_wide(user: User) -> None:
    assert user.columns("pods", "-o", "wide") == [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "NODE",
        "NOMINATED NODE",
        "READINESS GATES",
    ]


@pytest.mark.usefixtures("batch")
def test_the_life_of_a_job(user: User, api: Api, ns: Namespace, real_node: str) -> None:
    job = JOB.replace("NODE", real_node).replace("SAID", ns.name)
    assert user("apply", "-f", "-", stdin=job) == "job.batch.volcano.sh/greeter created\n"
    pod = eventually(
        lambda: api.get(ns.path("pods", "greeter-t-0")).status == 200 and "greeter-t-0"
    )
    user("wait", "--for=jsonpath={.status.phase}=Running", f"pod/{pod}", "--timeout=60s")
    following = user.kubectl.start("-n", ns.name, "logs", "-f", pod)
    user("exec", pod, "--", "touch", f"/tmp/{ns.name}")
    assert following.communicate(timeout=PATIENCE)[0] == "hello\nbye\n"
    user("wait", "--for=jsonpath={.status.state.phase}=Completed", "vcjob/greeter", "--timeout=60s")
    assert user.columns("vcjob") == ["NAME", "STATUS", "MINAVAILABLE", "RUNNINGS", "AGE"]
    assert user("get", "vcjob", "greeter").splitlines()[1].split()[:3] == [
        "greeter",
        "Completed",
        "1",
    ]
    told = user("describe", "vcjob", "greeter")
    assert "Name:         greeter" in told and "Phase:" in told and "Completed" in told
    told = user("describe", "pod", pod)
    assert "Exit Code:    0" in told and "Started" in told
    assert "completed" in user("get", "pod", pod).lower()
    assert user("delete", "vcjob", "greeter").startswith('job.batch.volcano.sh "greeter" deleted')
    eventually(lambda: api.get(ns.path("pods", pod)).status == 404)


def test_patch_and_label(user: User, api: Api, ns: Namespace) -> None:
    user("create", "configmap", "c", "--from-literal=a=1")
    assert "configmap/c patched" in user("patch", "configmap", "c", "-p", '{"data":{"b":"2"}}')
    user("patch", "configmap", "c", "--type=json", "-p", '[{"op":"remove","path":"/data/a"}]')
    user("patch", "configmap", "c", "--type=merge", "-p", '{"data":{"d":"4"}}')
    user("label", "configmap", "c", "color=red")
    assert json.loads(user("get", "configmap", "c", "-o", "json"))["data"] == {"b": "2", "d": "4"}
    assert user("get", "configmaps", "-l", "color=red", "-o", "name") == "configmap/c\n"
    assert user("get", "configmap", "c", "-o", "jsonpath={.metadata.labels.color}") == "red"
    assert "c" in user("get", "cm", "--sort-by=.metadata.name")


def test_edits_by_apply(user: User, api: Api, ns: Namespace, tmp_path: Path) -> None:
    """What a manifest no longer says is taken back; what others said stays."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kept"},
        "data": {"a": "1", "b": "2"},
    }
    user("apply", "-f", "-", stdin=json.dumps(manifest))
    api.patch(ns.path("configmaps", "kept"), {"data": {"foreign": "x"}})
    manifest["data"] = {"a": "9"}
    assert user("apply", "-f", "-", stdin=json.dumps(manifest)) == "configmap/kept configured\n"
    assert api.get(ns.path("configmaps", "kept")).tree["data"] == {"a": "9", "foreign": "x"}
    user("delete", "configmap", "kept")
    assert api.get(ns.path("configmaps", "kept")).status == 404


def test_wait_for_deletion(user: User, api: Api, ns: Namespace) -> None:
    api.create(
        ns.path("configmaps"), objects.config_map("leaving", finalizers=["example.com/hold"])
    )
    user("delete", "configmap", "leaving", "--wait=false")
    waiting = user.kubectl.start(
        "-n", ns.name, "wait", "--for=delete", "configmap/leaving", "--timeout=60s"
    )
    api.patch(ns.path("configmaps", "leaving"), {"metadata": {"finalizers": None}})
    assert waiting.wait(PATIENCE) == 0


def test_api_resources(kubectl: Kubectl) -> None:
    lines = [line.split() for line in kubectl("api-resources").splitlines()]
    assert lines[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
    assert ["pods", "po", "v1", "true", "Pod"] in lines
    assert ["deployments", "deploy", "apps/v1", "true", "Deployment"] in lines
    assert "create" in kubectl("api-resources", "-o", "wide")
    assert "apps/v1" in kubectl("api-versions").splitlines()


@pytest.mark.usefixtures("batch")
def test_api_resources_of_batch(kubectl: Kubectl) -> None:
    lines = [
        line.split()
        for line in kubectl("api-resources", "--api-group=batch.volcano.sh").splitlines()
    ]
    assert ["jobs", "vcjob,vj", "batch.volcano.sh/v1alpha1", "true", "Job"] in lines


@pytest.mark.parametrize(
    ("what", "texts"),
    [
        ("pod", ["KIND:", "Pod", "FIELDS:", "spec"]),
        ("pod.spec.containers", ["FIELDS:", "image", "command"]),
        ("deployment.spec.replicas", ["replicas", "integer"]),
    ],
)
def test_explain(kubectl: Kubectl, what: str, texts: list[str]) -> None:
    told = kubectl("explain", what)
    assert all(text in told for text in texts), told


@pytest.mark.usefixtures("batch")
def test_explain_a_job(kubectl: Kubectl) -> None:
    told = kubectl("explain", "jobs.spec.minAvailable", "--api-version=batch.volcano.sh/v1alpha1")
    assert "minAvailable" in told and "integer" in told
    assert "tasks" in kubectl("explain", "vcjob.spec")


def test_a_wrong_manifest_is_told(kubectl: Kubectl, ns: Namespace) -> None:
    wrong = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "wrong"},
        "dat": {"a": "1"},
    }
    done = kubectl.run("-n", ns.name, "apply", "-f", "-", stdin=json.dumps(wrong))
    assert done.returncode == 1
    assert 'unknown field "dat"' in done.stderr


def test_get_watches(kubectl: Kubectl, api: Api, ns: Namespace) -> None:
    watching = kubectl.start("-n", ns.name, "get", "configmaps", "--watch-only", "-o", "name")
    try:
        assert watching.stdout is not None

        for _ in range(50):
            api.post(ns.path("configmaps"), {"metadata": {"generateName": "watched-"}})
            if select.select([watching.stdout], [], [], 0.2)[0]:
                break
        assert watching.stdout.readline().startswith("configmap/watched-")
    finally:
        watching.kill()
        watching.communicate()
