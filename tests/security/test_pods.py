"""What a pod can do to the cluster that it runs on: nothing that its account was not given."""

from __future__ import annotations

import json
import os
import shlex
import stat

import pytest

from tests.cluster.api import Api, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.local.home import below
from tests.security.conftest import Fort

HERE = "/var/run/secrets/kubernetes.io/serviceaccount"
ASK = f"""
import json, ssl, sys, urllib.request, os
token = open({HERE!r} + "/token").read()
root = "https://" + os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
tls = ssl.create_default_context(cafile={HERE!r} + "/ca.crt")
for method, path in json.loads(sys.argv[1]):
    request = urllib.request.Request(root + path, method=method, headers={{"Authorization": "Bearer " + token}})
    try:
        print(urllib.request.urlopen(request, timeout=60, context=tls).status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def asked(
    fort: Fort, ns: Namespace, name: str, *requests: tuple[str, str], **spec: object
) -> list[int]:
    """What the API server answers to a pod with its own token."""
    script = f"python3 -c {shlex.quote(ASK)} {shlex.quote(json.dumps(requests))}"
    return [int(line) for line in fort.said(ns, name, script, **spec).split()]


def test_a_pod_reads_no_secrets_of_others(fort: Fort, ns: Namespace, other: Namespace) -> None:
    treasure = other.path("secrets", "treasure")
    wishes = [
        ("GET", treasure),
        ("GET", other.path("secrets")),
        ("GET", "/api/v1/secrets"),
        ("DELETE", treasure),
        ("GET", ns.path("secrets")),
        ("GET", other.path("secrets") + "?watch=true"),
        ("GET", "/api"),
        ("POST", other.path("serviceaccounts", "default", "token")),
    ]
    assert asked(fort, ns, "curious", *wishes) == [403, 403, 403, 403, 403, 403, 200, 403]


def test_a_role_ends_at_its_namespace(fort: Fort, ns: Namespace, other: Namespace) -> None:
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": "reader"}})
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": ns.name}
    fort.allow(
        ns,
        "reader",
        subject,
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
    )
    theirs = other.path("secrets")
    wishes = [
        ("GET", path)
        for path in (ns.path("secrets"), theirs, f"{theirs}/treasure", "/api/v1/secrets")
    ]
    assert asked(fort, ns, "reader", *wishes, serviceAccountName="reader") == [200, 403, 403, 403]


@pytest.mark.usefixtures("mounts")
def test_the_keys_of_the_cluster_are_not_in_a_pods_view(fort: Fort, ns: Namespace) -> None:
    """Pods are root where the cluster is: what keeps them away is that the directory is covered,
    and that they cannot lift the cover."""
    state, socket = fort.cluster.directory, fort.cluster.socket
    files = [
        fort.kubeconfig,
        fort.cluster.internal_kubeconfig,
        socket,
        fort.cluster.pki / "ca.key",
        fort.cluster.pki / "sa.key",
        fort.cluster.data / "state.db",
    ]
    assert all(path.exists() for path in files)
    tries = [f"test -e {path} && echo sees {path}" for path in files]
    around = "../" * 12
    tries += [
        f"test -e {around}{fort.kubeconfig} && echo walks around",
        f"cd .. && test -e {'../' * 4}pki && echo climbs",
        f"umount {state} 2>/dev/null && echo lifts",
        f"unshare -U -r -m sh -c 'umount {state}; umount {state.parent}; cat {fort.kubeconfig}' 2>/dev/null && echo lifts as another",
        f"nsenter -t 1 -m cat {fort.kubeconfig} 2>/dev/null && echo enters",
        f"cat /proc/1/root{fort.kubeconfig} 2>/dev/null && echo looks through a root",
        "for disk in /dev/[vsh]d[a-z] /dev/nvme* /dev/mapper/*; do test -r $disk && echo reads $disk; done",
        "mknod disk b 254 0 2>/dev/null && echo makes a device",
        "echo done",
    ]
    assert fort.said(ns, "thief", "\n".join(tries)) == "done\n"


@pytest.mark.usefixtures("mounts")
def test_a_pod_does_not_see_its_neighbours(fort: Fort, ns: Namespace, other: Namespace) -> None:
    spec = {"volumes": [{"name": "v", "secret": {"secretName": "treasure"}}]}
    there = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "600"],
        "volumeMounts": [{"name": "v", "mountPath": "/treasure"}],
        "env": [
            {"name": "GOLD", "valueFrom": {"secretKeyRef": {"name": "treasure", "key": "gold"}}}
        ],
    }
    fort.start(other, "owner", "", containers=[there], **spec)
    root = fort.cluster.pods
    environments = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep GOLD"
    looks = [f"find {root} -name gold", f"find {root} -name launch.json", environments, "echo done"]
    assert fort.said(ns, "neighbour", "\n".join(looks)) == "done\n"


@pytest.mark.usefixtures("mounts")
def test_commands_in_a_pod_have_its_rights_and_no_more(
    fort: Fort, ns: Namespace, kubectl: Kubectl
) -> None:
    """exec too, which joins the container from outside."""
    fort.start(ns, "room", "sleep 600")
    done = kubectl.run(
        "-n",
        ns.name,
        "exec",
        "room",
        "--",
        "sh",
        "-c",
        f"cat {fort.kubeconfig}; umount {fort.cluster.directory}; echo $?",
    )
    assert "client-key-data" not in done.stdout and done.stdout.strip() != "0"
    bounds = kubectl(
        "-n", ns.name, "exec", "room", "--", "grep", "CapBnd", "/proc/self/status"
    ).split()[1]
    assert not int(bounds, 16) >> 21 & 1 or int(bounds, 16) == 0  # SYS_ADMIN


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize(("name", "security", "has", "has_not"), [
    ("usual", {}, [0, 5, 10], [12, 16, 19, 21, 27]),
    ("none", {"capabilities": {"drop": ["ALL"]}}, [], [0, 1, 5, 10, 21]),
    ("one", {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}, [10], [0, 1, 5, 21]),
    ("more", {"capabilities": {"add": ["CAP_NET_ADMIN"]}}, [0, 12], [21]),
    ("privileged", {"privileged": True}, [0, 12, 21], []),
])  # fmt: skip
def test_rights_are_those_that_a_container_asks_for(
    fort: Fort,
    ns: Namespace,
    name: str,
    security: dict[str, object],
    has: list[int],
    has_not: list[int],
) -> None:
    if os.geteuid():
        pytest.skip("an ordinary user has none of root's rights to give")
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["grep", "-E", "CapEff|NoNewPrivs", "/proc/self/status"],
        "securityContext": {**security, "allowPrivilegeEscalation": name == "privileged"},
    }
    said = fort.said(ns, f"rights-{name}", "", containers=[container]).split()
    effective = int(said[1], 16)
    assert [number for number in has if not effective >> number & 1] == []
    assert [number for number in has_not if effective >> number & 1] == []
    assert said[3] == ("0" if name == "privileged" else "1")


@pytest.mark.usefixtures("mounts")
def test_a_mounted_token_is_for_its_pod_alone(fort: Fort, ns: Namespace) -> None:
    fort.start(
        ns,
        "private",
        f"stat -c %a $(readlink -f {HERE}/token); sleep 600",
        containers=[
            {
                "name": "c",
                "image": "busybox",
                "securityContext": {"runAsUser": 1000},
                "command": ["sh", "-c", f"head -c 3 {HERE}/token; sleep 600"],
            }
        ],
    )
    assert eventually(lambda: fort.api.get(ns.path("pods", "private", "log")).text) == "eyJ"
    found = [
        mode
        for path, mode in below(fort.cluster.pods)
        if path.name == "token" and not stat.S_ISLNK(mode)
    ]
    assert found and not any(mode & 0o007 for mode in found)


def test_a_pod_without_a_token_is_nobody(fort: Fort, ns: Namespace) -> None:
    said = fort.said(
        ns, "mute", f"ls {HERE} 2>/dev/null; echo done", automountServiceAccountToken=False
    )
    assert said == "done\n"
    assert Api(fort.kubeconfig, anonymous=True).get(ns.path("pods")).status == 403
