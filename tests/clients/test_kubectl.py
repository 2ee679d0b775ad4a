"""kubectl's whole table of contents, with the one of this machine and with the newest; with
WebSockets, and as older ones with SPDY."""

from __future__ import annotations

import base64
import json
import os
import pty
import select
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.api import PATIENCE, Api, Tree, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.kubernetes import programs
from tests.ports import free_port

NEWEST = pytest.param("newest", marks=pytest.mark.timeout(programs.PATIENCE + 100))
pytestmark = pytest.mark.slow  # what everybody does daily is in tests/cluster, in the default lane
PROTOCOLS = pytest.mark.parametrize("websockets", ["true", "false"], ids=["WebSocket", "SPDY"])

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: c, image: "busybox:1", command: [sh, -c, "echo started; exec sleep 600"]}
"""


class Walker:
    """A user with one kubectl in a namespace of its own."""

    def __init__(self, kubectl: Kubectl, api: Api, ns: Namespace) -> None:
        self.kubectl, self.api, self.ns = kubectl, api, ns

    def run(
        self, *words: str, stdin: str | None = None, timeout: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.kubectl.program, *self.kubectl.common, "-n", self.ns.name, *words],
            input=stdin,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL if stdin is None else None,
            timeout=timeout,
            check=False,
            env={**os.environ, **environment},
        )

    def __call__(
        self, *words: str, stdin: str | None = None, timeout: float = 60, **environment: str
    ) -> str:
        done = self.run(*words, stdin=stdin, timeout=timeout, **environment)
        assert done.returncode == 0, (
            f"kubectl {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def get(self, what: str, path: str = "") -> str:
        return self("get", what, "-o", f"jsonpath={path}" if path else "name")

    @contextmanager
    def started(self, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [self.kubectl.program, *self.kubectl.common, "-n", self.ns.name, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module", params=["of this machine", NEWEST])
def user(
    request: pytest.FixtureRequest,
    kubeconfig: Path,
    kubectl: Kubectl,
    api: Api,
    tmp_path_factory: pytest.TempPathFactory,
    ns: Namespace,
) -> Walker:
    if request.param == "of this machine":
        return Walker(kubectl, api, ns)
    try:
        program = programs.need("kubectl")["kubectl"]
    except programs.CannotBuild as error:
        pytest.skip(str(error))
    return Walker(
        Kubectl(str(program), kubeconfig, tmp_path_factory.mktemp("newest-cache")), api, ns
    )


@pytest.fixture
def web(user: Walker) -> Iterator[Walker]:
    """The user, with a deployment that is there."""
    user("apply", "-f", "-", stdin=WEB)
    user("rollout", "status", "deployment/web", "--timeout=60s")
    yield user
    # With its pods, or the next test would meet them.
    user("delete", "deployment", "web", "--cascade=foreground")


def screen_of(walker: Walker, *words: str, typed: bytes, **environment: str) -> tuple[int, bytes]:
    """What a terminal shows on which kubectl runs: types once it is attached, gives the exit code
    and all that was shown.

    What a container says before kubectl has attached is in its log alone, hence kubectl's remark
    about pressing enter.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [walker.kubectl.program, *walker.kubectl.common, "-n", walker.ns.name, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    os.close(theirs)
    seen, sent = b"", False
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            if not sent and (b"ready" in seen or b"pressing enter" in seen):
                os.write(ours, typed)
                sent = True
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    piece = os.read(ours, 4096)
                except OSError:
                    break
                if not piece:
                    break
                seen += piece
            elif process.poll() is not None:
                break
        return process.wait(max(1.0, deadline - time.monotonic())), seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)


# --- changing objects -----------------------------------------------------------------------------


def test_apply_diff_and_replace(user: Walker) -> None:
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: '1'}\n"
    assert user("apply", "-f", "-", stdin=one) == "configmap/one created\n"
    assert user("apply", "-f", "-", stdin=one) == "configmap/one unchanged\n"
    two = one.replace("'1'", "'2'")
    differs = user.run("diff", "-f", "-", stdin=two)
    assert (
        differs.returncode == 1 and '-  a: "1"' in differs.stdout and '+  a: "2"' in differs.stdout
    )
    assert user.run("diff", "-f", "-", stdin=one).returncode == 0
    assert (
        user("apply", "--dry-run=server", "-f", "-", stdin=two)
        == "configmap/one configured (server dry run)\n"
    )
    assert user.get("cm/one", "{.data.a}") == "1"
    assert user("replace", "-f", "-", stdin=two) == "configmap/one replaced\n"
    assert (
        user("replace", "--force", "-f", "-", stdin=one).splitlines()[-1]
        == "configmap/one replaced"
    )
    assert user("delete", "cm", "one").startswith('configmap "one" deleted')


def test_server_side_apply(user: Walker) -> None:
    mine = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: '1'}\n"
    assert (
        user("apply", "--server-side", "-f", "-", stdin=mine)
        == "configmap/shared serverside-applied\n"
    )
    theirs = mine.replace("a: '1'", "a: '2', b: '3'")
    refused = user.run("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=theirs)
    assert refused.returncode == 1 and 'conflict with "kubectl": .data.a' in refused.stderr
    user(
        "apply",
        "--server-side",
        "--field-manager=other",
        "--force-conflicts",
        "-f",
        "-",
        stdin=theirs,
    )
    assert json.loads(user.get("cm/shared", "{.data}")) == {"a": "2", "b": "3"}
    differs = user.run(
        "diff",
        "--server-side",
        "--field-manager=other",
        "-f",
        "-",
        stdin=theirs.replace("'3'", "'4'"),
    )
    assert differs.returncode == 1 and '+  b: "4"' in differs.stdout
    managers = user(
        "get",
        "cm/shared",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    ).split()
    assert "other" in managers
    user("delete", "cm", "shared")


def test_prune(user: Walker) -> None:
    both = "".join(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: p}}}}\n---\n"
        for name in ("p1", "p2")
    )
    user(
        "apply",
        "-l",
        "set=p",
        "--prune",
        "--prune-allowlist=core/v1/ConfigMap",
        "-f",
        "-",
        stdin=both,
    )
    said = user(
        "apply",
        "-l",
        "set=p",
        "--prune",
        "--prune-allowlist=core/v1/ConfigMap",
        "-f",
        "-",
        stdin=both.split("---")[0],
    )
    assert "configmap/p2 pruned" in said
    assert user("get", "cm", "-l", "set=p", "-o", "name") == "configmap/p1\n"
    user("delete", "cm", "-l", "set=p")


def test_edit_patch_label_annotate(user: Walker, tmp_path: Path) -> None:
    user("create", "configmap", "e", "--from-literal=a=1")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i \'s/a: "1"/a: "9"/\' "$1"\n')
    editor.chmod(0o755)
    assert user("edit", "cm", "e", KUBE_EDITOR=str(editor)) == "configmap/e edited\n"
    assert user.get("cm/e", "{.data.a}") == "9"
    user("patch", "cm", "e", "-p", '{"data":{"b":"2"}}')
    user("patch", "cm", "e", "--type=json", "-p", '[{"op":"remove","path":"/data/a"}]')
    assert json.loads(user.get("cm/e", "{.data}")) == {"b": "2"}
    assert user("label", "cm", "e", "color=red") == "configmap/e labeled\n"
    assert user.run("label", "cm", "e", "color=blue").returncode == 1
    user("label", "cm", "e", "color=blue", "--overwrite")
    user("label", "cm", "e", "color-")
    assert user("annotate", "cm", "e", "note=x y") == "configmap/e annotated\n"
    assert user.get("cm/e", "{.metadata.annotations.note}{.metadata.labels}") == "x y"
    user("delete", "cm", "e")


def test_rollout_scale_and_set(web: Walker) -> None:
    assert web("scale", "deployment", "web", "--replicas=2") == "deployment.apps/web scaled\n"
    web("rollout", "status", "deployment/web", "--timeout=60s")
    assert (
        web.run("scale", "deployment", "web", "--current-replicas=5", "--replicas=1").returncode
        == 1
    )
    web("set", "image", "deployment/web", "c=busybox:2")
    web("set", "env", "deployment/web", "COLOR=red")
    web("set", "resources", "deployment/web", "-c", "c", "--requests=cpu=10m")
    assert "successfully rolled out" in web("rollout", "status", "deployment/web", "--timeout=60s")
    assert web("rollout", "history", "deployment/web").count("<none>") >= 2
    assert "busybox:2" in web("rollout", "history", "deployment/web", "--revision=2")
    assert "rolled back" in web("rollout", "undo", "deployment/web", "--to-revision=1")
    web("rollout", "status", "deployment/web", "--timeout=60s")
    assert web.get("deployment/web", "{.spec.template.spec.containers[0].image}") == "busybox:1"
    assert "paused" in web("rollout", "pause", "deployment/web")
    assert "resumed" in web("rollout", "resume", "deployment/web")
    assert "restarted" in web("rollout", "restart", "deployment/web")
    web("rollout", "status", "deployment/web", "--timeout=60s")
    assert web(
        "autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu-percent=80"
    ).startswith("horizontalpodautoscaler")
    assert "1         3" in web("get", "hpa", "web")
    web("delete", "hpa", "web")
    assert web("expose", "deployment", "web", "--port=80").startswith("service/web")
    assert web.get("service/web", "{.spec.selector.app}") == "web"
    web("delete", "service", "web")


def test_wait(web: Walker) -> None:
    assert "condition met" in web(
        "wait", "--for=condition=Available", "deployment/web", "--timeout=60s"
    )
    assert "condition met" in web(
        "wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=60s"
    )
    assert "condition met" in web(
        "wait", "--for=jsonpath={.status.readyReplicas}=1", "deployment/web", "--timeout=60s"
    )
    late = web.run("wait", "--for=condition=Progressing=False", "deployment/web", "--timeout=1s")
    assert late.returncode == 1 and "timed out" in late.stderr
    with web.started("wait", "--for=create", "configmap/expected", "--timeout=60s") as waiting:
        web("create", "configmap", "expected")
        assert waiting.wait(PATIENCE) == 0
    with web.started("wait", "--for=delete", "configmap/expected", "--timeout=60s") as waiting:
        web("delete", "configmap", "expected")
        assert waiting.wait(PATIENCE) == 0


CREATED = (
    ("namespace", "made-by-{}"), ("quota", "made", "--hard=pods=3"), ("role", "made", "--verb=get", "--resource=pods"),
    ("secret", "docker-registry", "made", "--docker-username=u", "--docker-password=p", "--docker-server=s"),
    ("rolebinding", "made", "--clusterrole=view", "--user=jane"), ("clusterrole", "made-by-{}", "--verb=get", "--resource=nodes"),
    ("job", "made", "--image=busybox", "--", "true"), ("cronjob", "made", "--image=busybox", "--schedule=0 0 1 1 *", "--", "true"),
    ("poddisruptionbudget", "made", "--selector=app=x", "--min-available=1"), ("priorityclass", "made-by-{}", "--value=7"),
    ("ingress", "made", "--rule=a.example.com/*=svc:80"), ("service", "nodeport", "made", "--tcp=80"), ("serviceaccount", "made"),
    ("deployment", "made", "--image=busybox", "--replicas=0"),
)  # fmt: skip


@pytest.mark.parametrize("words", CREATED, ids=lambda words: words[0])
def test_create(user: Walker, words: tuple[str, ...]) -> None:
    said = user("create", *(word.format(user.ns.name) for word in words))
    assert said.endswith(" created\n")
    user("delete", said.split()[0], "--wait=false")


# --- nodes ----------------------------------------------------------------------------------------


@pytest.fixture
def spare(user: Walker, api: Api) -> Iterator[str]:
    """A node that may be emptied: nobody else's pods are on it."""
    name = f"spare-{user.ns.name}"
    size = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    api.create(
        "/api/v1/nodes",
        {
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"capacity": size, "allocatable": size},
        },
    )
    yield name
    api.delete(f"/api/v1/nodes/{name}")


def test_taint_cordon_and_drain(user: Walker, api: Api, spare: str) -> None:
    assert "tainted" in user("taint", "node", spare, "dedicated=x:NoSchedule")
    assert user.run("taint", "node", spare, "dedicated=y:NoSchedule").returncode == 1
    assert "untainted" in user("taint", "node", spare, "dedicated-")
    spec = {
        "nodeName": spare,
        "containers": [{"name": "c", "image": "busybox"}],
        "terminationGracePeriodSeconds": 0,
    }
    api.create(user.ns.path("pods"), {"metadata": {"name": "alone"}, "spec": spec})
    assert "cordoned" in user("cordon", spare)
    assert "SchedulingDisabled" in user("get", "node", spare)
    lonely = user.run("drain", spare, "--timeout=10s")
    # Nobody would make the pod again.
    assert lonely.returncode == 1 and "cannot delete" in lonely.stderr
    assert "drained" in user(
        "drain",
        spare,
        "--force",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=60s",
        timeout=90,
    )
    assert api.get(user.ns.path("pods", "alone")).status == 404
    assert "uncordoned" in user("uncordon", spare)


# --- pods -----------------------------------------------------------------------------------------


def variables(websockets: str) -> dict[str, str]:
    return {
        "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": websockets,
        "KUBECTL_PORT_FORWARD_WEBSOCKETS": websockets,
    }


@PROTOCOLS
def test_exec_and_copy(user: Walker, sleeper: str, websockets: str, tmp_path: Path) -> None:
    how = variables(websockets)
    done = user.run(
        "exec", sleeper, "-c", "c", "--", "sh", "-c", "echo out; echo err >&2; exit 3", **how
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "out\n",
        "err\ncommand terminated with exit code 3\n",
    )
    assert user("exec", "-i", sleeper, "-c", "c", "--", "cat", stdin="typed", **how) == "typed"
    data = os.urandom(300_000)
    (tmp_path / "up").write_bytes(data)
    user("cp", str(tmp_path / "up"), f"{sleeper}:there-{websockets}", **how)
    user("cp", f"{sleeper}:there-{websockets}", str(tmp_path / "down"), **how)
    assert (tmp_path / "down").read_bytes() == data


@PROTOCOLS
def test_port_forward(user: Walker, sleeper: str, websockets: str) -> None:
    with user.started(
        "port-forward", f"pod/{sleeper}", ":8124", **variables(websockets)
    ) as forward:
        assert forward.stdout is not None
        line = forward.stdout.readline()
        port = int(line.partition(":")[2].split(" ")[0])
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                assert answer.read() == b"hello"
        forward.send_signal(signal.SIGINT)
        forward.wait(10)


def test_port_forward_to_a_service(user: Walker, api: Api, sleeper: str) -> None:
    spec = {"selector": {"app": "sleeper"}, "ports": [{"port": 80, "targetPort": 8124}]}
    name = f"door-{int(time.monotonic() * 1000)}"
    api.create(user.ns.path("services"), {"metadata": {"name": name}, "spec": spec})
    with user.started("port-forward", f"service/{name}", ":80") as forward:
        assert forward.stdout is not None
        port = int(forward.stdout.readline().partition(":")[2].split(" ")[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert answer.read() == b"hello"


def test_proxy(user: Walker, sleeper: str) -> None:
    port = free_port()
    with user.started("proxy", f"--port={port}") as proxy:
        assert proxy.stdout is not None
        assert "Starting to serve" in proxy.stdout.readline()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{user.ns.path('pods', sleeper + ':8124', 'proxy')}/",
            timeout=10,
        ) as answer:
            assert answer.read() == b"hello"


def test_logs(user: Walker, web: Walker, sleeper: str) -> None:
    assert user("logs", sleeper, "-c", "c") == "up\n"
    # It runs, and may not have spoken yet.
    eventually(lambda: user("logs", "deployment/web") == "started\n")
    assert user("logs", "-l", "app=web", "--prefix", "--timestamps").endswith("started\n")
    assert user("logs", sleeper, "-c", "c", "--tail=1", "--since=1h", "--limit-bytes=2") == "up"
    # Kubectl asks for them in any order.
    assert "up" in user("logs", sleeper, "--all-containers").splitlines()


@PROTOCOLS
def test_run_with_a_terminal(user: Walker, websockets: str) -> None:
    code, shown = screen_of(
        user,
        "run",
        f"visit-{websockets}",
        "-it",
        "--rm",
        "--restart=Never",
        "--image=busybox",
        "--",
        "sh",
        "-c",
        "echo re''ady; read line; echo heard $line; exit 4",
        typed=b"words\n",
        **variables(websockets),
    )
    assert b"heard words" in shown and code == 4, shown
    assert user.api.get(user.ns.path("pods", f"visit-{websockets}")).status == 404


def test_debug(user: Walker, sleeper: str) -> None:
    name = f"looker-{int(time.monotonic() * 1000)}"
    code, shown = screen_of(
        user,
        "debug",
        "-it",
        sleeper,
        "--image=busybox",
        "--target=c",
        "--profile=general",
        f"--container={name}",
        "--",
        "sh",
        "-c",
        "echo re''ady; read line; echo heard $line",
        typed=b"words\n",
    )
    assert b"heard words" in shown and code == 0, shown
    user(
        "debug",
        sleeper,
        "--copy-to",
        f"copy-{name}",
        "--image=busybox",
        "--profile=general",
        "--",
        "sleep",
        "60",
    )
    user("wait", "--for=condition=Ready", f"pod/copy-{name}", "--timeout=60s")
    user("delete", "pod", f"copy-{name}", "--grace-period=0", "--force")


def test_attach_and_describe_and_events(user: Walker, sleeper: str) -> None:
    told = user("describe", "pod", sleeper)
    for words in (
        "Status:           Running",
        "Ready             True",
        "Container started",
        "up; exec python3",
    ):
        assert words in told, f"{words!r} is not in\n{told}"
    assert "Started" in user("events", "--for", f"pod/{sleeper}")
    assert "Container started" in user(
        "get", "events", "--field-selector", f"involvedObject.name={sleeper}"
    )
    with user.started("attach", sleeper) as attached:
        time.sleep(0.5)
        assert attached.poll() is None
    assert "Namespace" in user("describe", "node") or "Non-terminated Pods" in user(
        "describe", "node"
    )


# --- asking ---------------------------------------------------------------------------------------


def test_get_in_every_form(user: Walker, sleeper: str) -> None:
    assert user(
        "get", "pods", sleeper, "-o", "custom-columns=N:.metadata.name,P:.status.phase"
    ).split() == ["N", "P", sleeper, "Running"]
    assert user("get", "pod", sleeper, "-o", "go-template={{.metadata.name}}") == sleeper
    assert "app=sleeper" in user("get", "pods", "--show-labels", "-l", "app=sleeper")
    assert user("get", "pods", "-L", "app", "-l", "app in (sleeper)").split()[5] == "APP"
    assert "pod/sleeper" in user("get", "all")
    assert (
        user("get", "pods", "--field-selector=status.phase=Running", "-o", "name").count(
            "pod/sleeper"
        )
        == 1
    )
    assert "sleeper" in user("get", "pods", "-A")
    assert json.loads(user("get", "--raw", user.ns.path("pods", sleeper)))["kind"] == "Pod"
    assert "apiVersion: v1" in user("get", "pod", sleeper, "-o", "yaml")
    assert (
        user.run("get", "pod", "nobody").stderr
        == 'Error from server (NotFound): pods "nobody" not found\n'
    )
    assert user("get", "pod", "nobody", "--ignore-not-found") == ""
    assert (
        user("get", "pod", sleeper, "--subresource=status", "-o", "jsonpath={.status.phase}")
        == "Running"
    )


def test_get_watches(user: Walker, api: Api) -> None:
    with user.started(
        "get", "configmaps", "-w", "--field-selector=metadata.name=seen", "--output-watch-events"
    ) as watching:
        assert watching.stdout is not None
        time.sleep(0.7)  # kubectl says nothing of an empty list
        user("create", "configmap", "seen")
        assert watching.stdout.readline().split()[:2] == ["EVENT", "NAME"]
        assert watching.stdout.readline().split()[:2] == ["ADDED", "seen"]
        user("delete", "configmap", "seen")
        assert watching.stdout.readline().split()[:2] == ["DELETED", "seen"]


def test_explain_and_resources(user: Walker) -> None:
    assert "image" in user("explain", "pod.spec.containers")
    assert "FIELDS" in user("explain", "deployments", "--recursive")
    assert "minReplicas" in user("explain", "hpa.spec", "--api-version=autoscaling/v2")
    names = user("api-resources", "--verbs=list", "-o", "name").split()
    assert {"pods", "jobs.batch", "jobs.batch.volcano.sh", "resourceclaims.resource.k8s.io"} <= set(
        names
    )
    assert "apps/v1" in user("api-versions").split()
    assert "is running at" in user("cluster-info")
    version = json.loads(user("version", "-o", "json"))
    assert version["serverVersion"]["minor"] == "36"
    for plural in names:
        if not plural.startswith(("events", "componentstatuses")):
            user("get", plural, "-A", "--chunk-size=5")


def test_rights(user: Walker) -> None:
    assert user("auth", "can-i", "create", "pods") == "yes\n"
    asked = user.run("auth", "can-i", "create", "pods", "--as=jane")
    assert (asked.returncode, asked.stdout) == (1, "no\n")
    assert "*.*" in user("auth", "can-i", "--list")
    assert "selfsubjectreviews" in user(
        "auth", "can-i", "--list", "--as=jane", "--as-group=system:authenticated"
    )
    assert "Username" in user("auth", "whoami")
    assert "jane" in user("auth", "whoami", "--as=jane")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reconciled", "namespace": user.ns.name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    assert "reconciled" in user("auth", "reconcile", "-f", "-", stdin=json.dumps(role))
    forbidden = user.run("get", "pods", "--as=jane")
    assert (
        forbidden.returncode == 1 and 'User "jane" cannot list resource "pods"' in forbidden.stderr
    )


def test_tokens(user: Walker, kubeconfig: Path) -> None:
    name = f"robot-{int(time.monotonic() * 1000)}"
    user("create", "serviceaccount", name)
    token = user("create", "token", name, "--duration=20m").strip()
    assert Api(kubeconfig, token=token).get("/api").status == 200
    claims: Tree = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (
        claims["sub"] == f"system:serviceaccount:{user.ns.name}:{name}"
        and claims["exp"] - claims["iat"] == 1200
    )


def test_certificates(user: Walker, api: Api) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "jane"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "ops"),
        ]
    )
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    name = f"jane-{int(time.monotonic() * 1000)}"
    request = base64.b64encode(asked.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {
        "request": request,
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    manifest = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
    user("apply", "-f", "-", stdin=json.dumps(manifest))
    assert "Pending" in user("get", "csr", name)
    assert "approved" in user("certificate", "approve", name)
    assert "Approved" in user("get", "csr", name)
    user("delete", "csr", name)
    manifest["metadata"] = {"name": f"{name}-2"}
    user("apply", "-f", "-", stdin=json.dumps(manifest))
    assert "denied" in user("certificate", "deny", f"{name}-2")
    assert "Denied" in user("get", "csr", f"{name}-2")
    user("delete", "csr", f"{name}-2")


def test_top(user: Walker, api: Api, sleeper: str) -> None:
    if api.get("/apis/metrics.k8s.io/v1beta1").status == 404:
        pytest.skip("this cluster serves no metrics.k8s.io")
    # Each pod in its turn.
    lines = eventually(
        lambda: sleeper in (said := user.run("top", "pods").stdout) and said.splitlines()
    )
    assert lines[0].split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert eventually(lambda: user.run("top", "nodes").stdout).splitlines()[0].split()[0] == "NAME"
