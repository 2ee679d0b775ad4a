"""What a cluster leaves behind: logs, process lists, the audit log and files tell no secrets."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.apiserver_process import ApiServerProcess
from tests.cluster.api import Api, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.local.home import below
from tests.security.conftest import Fort

PASSWORD = "correct-horse-battery-staple-7341"
NOBODY = 65534

JOB = {
    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "keeper"},
    "spec": {"minAvailable": 1, "schedulerName": "volcano", "tasks": [{"name": "t", "replicas": 1, "template": {"spec": {
        "restartPolicy": "Never", "serviceAccountName": "worker", "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "c", "image": "busybox",
            "command": ["sh", "-c", "test $PASSWORD = $(cat /etc/password/word) && echo same; exec sleep 600"],
            "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "word"}}}],
            "volumeMounts": [{"name": "password", "mountPath": "/etc/password"}],
        }],
        "volumes": [{"name": "password", "secret": {"secretName": "password"}}]}}}]},
}  # fmt: skip


@pytest.fixture(scope="module")
def secrets(
    fort: Fort, ns: Namespace, kubectl: Kubectl, mounts: None
) -> Iterator[dict[str, bytes]]:
    """What must not be found anywhere, by name, after a whole job has lived with it."""
    api = fort.api
    api.create(ns.path("serviceaccounts"), {"metadata": {"name": "worker"}})
    kubectl(
        "-n", ns.name, "create", "secret", "generic", "password", f"--from-literal=word={PASSWORD}"
    )
    api.create(ns.path("batch.volcano.sh/v1alpha1/jobs"), JOB)
    eventually(lambda: api.get(ns.path("pods", "keeper-t-0", "log")).text == "same\n")
    own = kubectl(
        "-n",
        ns.name,
        "exec",
        "keeper-t-0",
        "--",
        "cat",
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
    )
    made = kubectl("-n", ns.name, "create", "token", "worker").strip()
    assert (
        fort.with_token(own).get("/api").status == fort.with_token(made).get("/api").status == 200
    )
    fort.with_token(own + "x").get("/api")  # refused, and perhaps remarked upon
    # Refused too.
    api.put(
        ns.path("secrets", "password"),
        {"metadata": {"name": "other"}, "stringData": {"word": PASSWORD}},
    )
    api.post(
        ns.path("secrets"), {"metadata": {"name": "Bad Name"}, "stringData": {"word": PASSWORD}}
    )
    yield {
        "the password": PASSWORD.encode(),
        "the password in base64": base64.b64encode(PASSWORD.encode()),
        "the pod's token": own.encode(),
        "a token on request": made.encode(),
        "the signature of a token": own.rpartition(".")[2].encode(),
    }


def test_logs_hold_no_secrets(fort: Fort, secrets: dict[str, bytes]) -> None:
    logs = [path for path in fort.cluster.logs.rglob("*") if path.is_file()]
    assert logs
    for path in logs:
        text = path.read_bytes()
        for name, secret in secrets.items():
            assert secret not in text, f"{path.name} holds {name}"
        assert b"PRIVATE KEY" not in text


def test_process_lists_hold_no_secrets(fort: Fort, secrets: dict[str, bytes]) -> None:
    """Command lines of every process of the machine, which all users may read, and the environments
    of the daemons."""
    for process in psutil.process_iter():
        try:
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        for name, secret in secrets.items():
            assert secret not in line or b"kubectl" in line, (
                f"the command line of {process.pid} holds {name}"
            )
    daemons = fort.daemons()
    assert len(daemons) >= 8  # the supervisor, six daemons, the spawner
    for process in daemons:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        for name, secret in secrets.items():
            assert secret not in environment, f"the environment of {process.cmdline()} holds {name}"


def test_events_and_the_pod_hold_no_secrets(
    fort: Fort, ns: Namespace, secrets: dict[str, bytes]
) -> None:
    for path in (ns.path("events"), ns.path("pods"), ns.path("batch.volcano.sh/v1alpha1/jobs")):
        body = fort.api.get(path).body
        assert not [name for name, secret in secrets.items() if secret in body]


WALK = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = []
for where, directories, files in os.walk(sys.argv[1]):
    for name in files + directories:
        path = os.path.join(where, name)
        if os.access(path, os.R_OK) or os.access(path, os.W_OK):
            found.append(path)
print("\\n".join(found))
"""


@pytest.mark.usefixtures("secrets")
def test_other_users_find_nothing_in_the_state_directory(fort: Fort) -> None:
    for path, found in below(fort.cluster.directory):
        mode = stat.S_IMODE(found)
        inner = path.relative_to(fort.cluster.directory).parts
        if stat.S_ISLNK(found) or (inner[0] in ("pods", "volumes") and len(inner) > 1):
            # what containers use has their modes, behind a directory that is closed to all others
            continue
        assert mode == 0o700 if stat.S_ISDIR(found) else not mode & 0o177, f"{path}: {mode:o}"
    for directory in (
        fort.cluster.directory,
        fort.cluster.pods,
        fort.cluster.volumes,
        fort.cluster.socket.parent,
    ):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
    for path, found in below(fort.cluster.pods):
        if path.name in ("launch.json", "log", "claim", "exit"):
            assert not stat.S_IMODE(found) & 0o077, path
    if os.geteuid() == 0:
        walk = [sys.executable, "-I", "-S", "-c", WALK, str(fort.cluster.directory)]
        done = subprocess.run(
            walk, capture_output=True, text=True, check=False, cwd="/", timeout=30
        )
        assert (done.stdout.strip(), done.stderr) == ("", "")


POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "RequestResponse"}],
}


def test_the_audit_log_holds_no_secret_bodies(tmp_path: Path) -> None:
    """Even where a policy wants every body of everything."""
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(json.dumps(POLICY))
    with ApiServerProcess.started(
        tmp_path / "server", f"--audit-policy-file={policy}", f"--audit-log-path={log}"
    ) as server:
        api = Api(server.kubeconfig)
        root = "/api/v1/namespaces/default"
        encoded = base64.b64encode(PASSWORD.encode()).decode()
        made = api.create(
            f"{root}/secrets", {"metadata": {"name": "s"}, "stringData": {"word": PASSWORD}}
        )
        api.put(f"{root}/secrets/s", {**made, "data": {"word": encoded, "more": encoded}})
        api.patch(f"{root}/secrets/s", {"stringData": {"third": PASSWORD}})
        # Not base64: refused.
        api.post(f"{root}/secrets", {"metadata": {"name": "t"}, "data": {"word": PASSWORD}})
        api.post(
            f"{root}/secrets", {"metadata": {"name": "t"}, "type": PASSWORD, "data": {"word": 7}}
        )
        api.get(f"{root}/secrets")
        api.get(f"{root}/secrets/s")
        with api.watch(f"{root}/secrets", timeoutSeconds=1) as watched:
            watched.rest()
        api.create(f"{root}/serviceaccounts", {"metadata": {"name": "robot"}})
        token = api.post(f"{root}/serviceaccounts/robot/token", {"spec": {}}).tree["status"][
            "token"
        ]
        assert api.post(
            "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}}
        ).tree["status"]["authenticated"]
        Api(server.kubeconfig, token=token).get("/api")
        api.delete(f"{root}/secrets/s")
        api.create(f"{root}/configmaps", {"metadata": {"name": "public"}, "data": {"k": "told"}})
        text = log.read_bytes()
    assert b"told" in text  # the policy does write bodies
    for secret in (encoded, token, token.rpartition(".")[2]):
        assert secret.encode() not in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in text.splitlines()]
    assert PASSWORD not in json.dumps(
        [line for line in lines if "PASSWORD" not in line.get("requestURI", "")]
    )
