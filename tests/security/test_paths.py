"""Names that would be paths: of objects, of keys, of volumes, of logs, of files that are copied."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cluster.api import Tree, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.cluster.objects import container, run
from tests.security.conftest import Fort

TRICKS = (
    "..",
    ".",
    "../../etc",
    "/etc/passwd",
    "a/../../b",
    "..\\..\\x",
    "a\0b",
    "a\nb",
    "%2e%2e",
    "~root",
    "-rf",
)


@pytest.mark.parametrize("name", TRICKS)
def test_objects_have_no_such_names(fort: Fort, ns: Namespace, name: str) -> None:
    for resource, body in (
        ("configmaps", {}),
        ("secrets", {}),
        ("pods", run("x", fort.node, "true")),
        ("serviceaccounts", {}),
    ):
        body = {**body, "metadata": {"name": name}}
        assert fort.api.post(ns.path(resource), body).status == 422, f"{resource} {name!r}"
    assert fort.api.post("/api/v1/namespaces", {"metadata": {"name": name}}).status == 422


@pytest.mark.parametrize(
    "key", [name for name in TRICKS if name not in ("-rf", "%2e%2e")] + ["..data", "..2026_01"]
)
def test_keys_become_files_and_are_names_of_files(fort: Fort, ns: Namespace, key: str) -> None:
    for resource in ("configmaps", "secrets"):
        refused = fort.api.post(
            ns.path(resource), {"metadata": {"name": "keys"}, "data": {key: "eA=="}}
        )
        assert refused.status == 422, f"{resource} {key!r}: {refused}"


@pytest.mark.parametrize("path", ["../out", "/abs", "a/../../b", "..", "..x/../../y"])
def test_items_stay_in_their_volume(fort: Fort, ns: Namespace, path: str) -> None:
    items = [{"key": "k", "path": path}]
    field = [{"path": path, "fieldRef": {"fieldPath": "metadata.name"}}]
    for volume in (
        {"configMap": {"name": "c", "items": items}},
        {"secret": {"secretName": "s", "items": items}},
        {"downwardAPI": {"items": field}},
        {"projected": {"sources": [{"configMap": {"name": "c", "items": items}}]}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": path}}]}},
    ):
        refused = fort.api.post(
            ns.path("pods"), run("items", fort.node, "true", volumes=[{"name": "v", **volume}])
        )
        assert refused.status == 422, f"{volume}: {refused}"


@pytest.mark.parametrize(
    "mount",
    [
        {"subPath": "../x"},
        {"subPath": "/etc"},
        {"subPath": "a/../../x"},
        {"subPathExpr": "../$(POD)"},
        {"subPathExpr": "/etc"},
    ],
)
def test_sub_paths_stay_in_their_volume(fort: Fort, ns: Namespace, mount: dict[str, str]) -> None:
    inside = {**container("true"), "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    refused = fort.api.post(
        ns.path("pods"),
        run("sub", fort.node, volumes=[{"name": "v", "emptyDir": {}}], containers=[inside]),
    )
    assert refused.status == 422, refused


def test_an_expanded_sub_path_stays_in_its_volume(fort: Fort, ns: Namespace) -> None:
    """What only becomes a way out once the variables are known."""
    inside = {
        **container("cat", "/v/passwd"),
        "env": [{"name": "WHERE", "value": "../../../../../../../../etc"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(WHERE)"}],
    }
    fort.api.create(
        ns.path("pods"),
        run("expands", fort.node, volumes=[{"name": "v", "emptyDir": {}}], containers=[inside]),
    )

    def reason(pod: Tree) -> str:
        status = (pod["status"].get("containerStatuses") or [{}])[0]
        return str(status.get("state", {}).get("waiting", {}).get("reason"))

    fort.api.wait(
        ns.path("pods", "expands"), lambda pod: reason(pod) == "CreateContainerConfigError"
    )


@pytest.mark.parametrize(
    "name",
    ["..", "../../../../etc/passwd", "c/../../../x", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "c\0"],
)
def test_logs_are_of_containers(fort: Fort, ns: Namespace, name: str) -> None:
    if fort.api.get(ns.path("pods", "logged")).status == 404:
        fort.api.create(ns.path("pods"), run("logged", fort.node, "echo", "hello"))
        eventually(lambda: fort.api.get(ns.path("pods", "logged", "log")).text == "hello\n")
    answer = fort.api.get(ns.path("pods", "logged", "log"), container=name)
    assert answer.status == 400 and b"root:" not in answer.body
    for path in (
        f"{ns.path('pods')}/{quote(name, safe='')}/log",
        f"{ns.path('pods')}/{name.replace(chr(0), '')}/log",
    ):
        assert fort.api.get(path).status in (400, 403, 404, 405)


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/api/v1/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/api/v1//nodes",
        "/api/v1/namespaces/default/../kube-system/secrets",
        "/apis/..%2f..%2fetc",
    ],
)
def test_the_server_serves_no_files(fort: Fort, path: str) -> None:
    connection = fort.api.connect(5)
    connection.putrequest("GET", path, skip_host=False)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status in (301, 400, 403, 404) and b"root:" not in body


def test_a_path_is_judged_as_it_is_served(fort: Fort, ns: Namespace) -> None:
    """Who may read one namespace gets no other by a path that two readers would read differently."""
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": "narrow"}})
    fort.allow(
        ns,
        "narrow",
        {"kind": "ServiceAccount", "name": "narrow", "namespace": ns.name},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},
    )
    user = fort.with_token(fort.token(ns, "narrow"))
    assert user.get(ns.path("secrets")).status == 200
    base = f"/api/v1/namespaces/{ns.name}"
    for way in (
        "/../kube-system/secrets",
        "%2f..%2fkube-system/secrets",
        "/secrets/../../kube-system/secrets",
        ";/../kube-system/secrets",
        "/secrets%2f..%2f..%2fkube-system",
        "/secrets/..%2f..%2fkube-system%2fsecrets",
    ):
        answer = user.get(base + way)
        assert answer.status in (400, 403, 404) and answer.tree.get("kind", "Status") == "Status", (
            way
        )


def escaping_tar() -> bytes:
    """An archive of which every member wants to be somewhere else."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in (
            "src/ok",
            "../escaped",
            "/tmp/hekla-escaped-absolute",
            "src/../../escaped-too",
        ):
            member = tarfile.TarInfo(name)
            member.size = 5
            archive.addfile(member, io.BytesIO(b"evil\n"))
        link = tarfile.TarInfo("src/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../.."
        archive.addfile(link)
        member = tarfile.TarInfo("src/link/escaped-by-link")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"evil\n"))
    return made.getvalue()


@pytest.mark.usefixtures("mounts")
def test_copies_stay_where_they_are_copied_to(
    fort: Fort, ns: Namespace, kubectl: Kubectl, tmp_path: Path
) -> None:
    """A pod whose `tar` lies: what it sends must not be written outside of the directory that the
    user named."""
    lying = "mkdir bin; printf '#!/bin/sh\\ncat %s/evil.tar\\n' \"$PWD\" > bin/tar; chmod 755 bin/tar; echo lies; exec sleep 600"
    path = {"name": "PATH", "value": "/hekla-lying/bin:/usr/bin:/bin"}
    inside = {**container("sh", "-c", lying), "env": [path], "workingDir": "/hekla-lying"}
    fort.start(ns, "liar", "", containers=[inside])
    assert eventually(lambda: fort.api.get(ns.path("pods", "liar", "log")).text) == "lies\n"
    into = [
        kubectl.program,
        *kubectl.common,
        "-n",
        ns.name,
        "exec",
        "-i",
        "liar",
        "--",
        "sh",
        "-c",
        "cat > /hekla-lying/evil.tar",
    ]
    subprocess.run(into, input=escaping_tar(), check=True, timeout=90)
    target = tmp_path / "a" / "b" / "target"
    target.mkdir(parents=True)
    kubectl.run("-n", ns.name, "cp", "liar:src", str(target / "src"))
    assert (
        target / "src" / "ok"
    ).read_bytes() == b"evil\n"  # the archive came, or this shows nothing
    assert not Path("/tmp/hekla-escaped-absolute").exists()
    assert [path for path in tmp_path.rglob("escaped*") if target not in path.parents] == []
