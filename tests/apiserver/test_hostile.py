"""Malformed and excessive bodies, headers and paths: a clear refusal each time, never a 5xx, never
a hang."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import string
from typing import Any

import pytest

from tests.apiserver.http import (
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    PODS,
    STRATEGIC,
    Http,
    config_map,
    pod,
)
from tests.apiserver_process import ApiServerProcess

PROTOBUF = "application/vnd.kubernetes.protobuf"
PATHS = (
    PODS, CONFIG_MAPS, "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/events", "/apis/apps/v1/namespaces/default/deployments", "/apis/batch/v1/namespaces/default/jobs",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews", f"{PODS}/victim/binding",
    f"{PODS}/victim/eviction", "/api/v1/namespaces/default/serviceaccounts/robot/token", "/api/v1/namespaces/default/resourcequotas",
)  # fmt: skip
KEYS = (
    "metadata", "name", "namespace", "labels", "annotations", "spec", "containers", "image", "resources", "requests", "limits", "cpu",
    "memory", "replicas", "selector", "matchLabels", "template", "status", "kind", "apiVersion", "data", "ports", "port", "finalizers",
    "ownerReferences", "uid", "generateName", "resourceVersion", "target", "deleteOptions", "versions", "names", "group", "scope",
    "schema", "openAPIV3Schema", "properties", "type", "rules", "subjects", "webhooks", "clientConfig", "volumes", "tolerations",
)  # fmt: skip


def junk(random: random.Random, depth: int = 0) -> Any:
    """A random JSON value in which real field names occur."""
    choice = random.randrange(14 if depth < 5 else 9)
    if choice < 9:
        return random.choice(
            [
                None,
                True,
                False,
                0,
                -1,
                2**70,
                1.5,
                "",
                "a",
                "x" * 300,
                "1.5.5",
                "1Gi",
                "é\u0000",
                "Pod",
                [],
                {},
                "default",
                -(2**63),
                1e308,
                "\ud83d\ude00",
                "2026-01-01T00:00:00Z",
            ]
        )
    if choice < 11:
        return [junk(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(KEYS): junk(random, depth + 1) for _ in range(random.randrange(6))}


def shaped(random: random.Random) -> Any:
    """Junk with a good head, so that it gets further in."""
    tree = junk(random)
    if not isinstance(tree, dict):
        tree = {"spec": tree}
    if random.random() < 0.8:
        name = (
            "".join(random.choices(string.ascii_lowercase, k=8))
            if random.random() < 0.8
            else junk(random)
        )
        tree["metadata"] = {"name": name, random.choice(KEYS): junk(random)}
    return tree


def broken_bytes(random: random.Random) -> bytes:
    whole = json.dumps(shaped(random)).encode()
    match random.randrange(5):
        case 0:
            return whole[: random.randrange(len(whole) + 1)]
        case 1:
            return bytes(random.randrange(256) for _ in range(random.randrange(200)))
        case 2:
            at = random.randrange(len(whole) + 1)
            return whole[:at] + bytes([random.randrange(256)]) + whole[at:]
        case 3:
            return b"k8s\x00" + bytes(random.randrange(256) for _ in range(random.randrange(100)))
    return whole


def one(http: Http, random: random.Random) -> tuple[int, str, bytes]:
    """Sends one hostile request; gives the status and what was sent."""
    path = random.choice(PATHS)
    method = random.choice(["POST", "POST", "POST", "PUT", "PATCH", "DELETE"])
    content_type = random.choice(
        ["application/json", "application/json", "application/yaml", PROTOBUF]
    )
    if (
        method in ("PUT", "PATCH", "DELETE")
        and "/victim/" not in path
        and not path.endswith("token")
    ):
        path = f"{PODS}/victim" if random.random() < 0.5 else f"{CONFIG_MAPS}/victim"
    if method == "PATCH":
        content_type = random.choice([JSON_PATCH, MERGE, STRATEGIC])
    if method == "DELETE":
        path += random.choice(["?dryRun=All", "?dryRun=All&gracePeriodSeconds=x"])
    body = json.dumps(shaped(random)).encode() if random.random() < 0.6 else broken_bytes(random)
    if method == "PATCH" and content_type == JSON_PATCH and random.random() < 0.7:
        operation = {
            "op": random.choice(["add", "remove", "replace", "move", "copy", "test", "zz"]),
            "path": f"/{random.choice(KEYS)}/0",
        }
        body = json.dumps([{**operation, "value": junk(random), "from": "/metadata"}]).encode()
    mode = random.choice(["", "Strict", "Warn", "Ignore"])
    if mode and method != "DELETE":
        path += f"?fieldValidation={mode}"
    answer = http.request(method, path, body, Content_Type=content_type)
    return answer.status, f"{method} {path} {content_type}", body + b" -> " + answer.body[:300]


def bombard(server: ApiServerProcess, seed: int, count: int) -> list[str]:
    http = Http(server)
    http.post(PODS, pod("victim"))
    http.post(CONFIG_MAPS, config_map("victim"))
    source = random.Random(seed)
    found = []
    for number in range(count):
        status, what, body = one(http, source)
        # "resourceVersion should not be set", an empty binding target: refusals that Kubernetes
        # itself words as 500
        if (
            status >= 500
            and b"resourceVersion should not be set" not in body
            and b"target.name: Required value" not in body
        ):
            found.append(f"#{number} {what} {body!r} -> {status}")
    return found


def test_random_bodies_never_break_the_server(apiserver: ApiServerProcess) -> None:
    assert bombard(apiserver, 1, 1500) == []
    assert "Traceback" not in apiserver.log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 7))
def test_ten_thousand_random_bodies(apiserver: ApiServerProcess, seed: int) -> None:
    assert bombard(apiserver, seed, 2000) == []


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_deep_nesting(http: Http, method: str) -> None:
    http.post(CONFIG_MAPS, config_map("deep"))
    path, content_type = (
        (CONFIG_MAPS, "application/json") if method == "POST" else (f"{CONFIG_MAPS}/deep", MERGE)
    )
    for body in (
        b'{"data":' * 20000,
        b"[" * 200000,
        b'{"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    ):
        assert 400 <= http.request(method, path, body, Content_Type=content_type).status < 500


def test_invalid_utf8(http: Http) -> None:
    assert http.post(CONFIG_MAPS, b'{"metadata":{"name":"utf\xff\xfe"}}').status == 400
    assert http.post(CONFIG_MAPS, b"\xff\xfe\x00metadata", "application/yaml").status == 400


def raw(server: ApiServerProcess, data: bytes, timeout: float = 60.0) -> bytes:
    """What the server answers to bytes on a fresh connection, until it closes or falls silent."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout)
        sock.connect(str(server.socket))
        # A server may end what it has refused before all of it is sent.
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
                if b"\r\n\r\n" in answer and b"Connection: close" not in answer:
                    break
        except (TimeoutError, ConnectionError):
            pass
        return answer


def test_what_is_not_http(shared_apiserver: ApiServerProcess) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"nonsense\r\n\r\n" * 10,
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        assert raw(shared_apiserver, data).startswith(b"HTTP/1.1 400"), data


def test_huge_headers(shared_apiserver: ApiServerProcess) -> None:
    answer = raw(shared_apiserver, b"GET /version HTTP/1.1\r\nX: " + b"x" * (1 << 21) + b"\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


def test_odd_paths(http: Http) -> None:
    for path in (
        "/",
        "//",
        "/api/v1/namespaces/%00/pods",
        "/api/v1/%ff",
        "/apis//v1",
        "/api/v1/namespaces//pods",
        "/..",
        "/api/v1/pods/" + "x" * 5000,
    ):
        assert http.get(path).status < 500, path


def chunked(parts: list[bytes], path: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_chunked_bodies(shared_apiserver: ApiServerProcess) -> None:
    body = json.dumps(config_map("chunked", data={"a": "b" * 100})).encode()
    parts = [body[at : at + 7] for at in range(0, len(body), 7)]
    assert raw(shared_apiserver, chunked(parts, CONFIG_MAPS)).startswith(b"HTTP/1.1 201")
    assert raw(shared_apiserver, chunked([b"x" * 65536] * 64, CONFIG_MAPS)).startswith(
        b"HTTP/1.1 413"
    )


def test_a_body_over_the_limit_is_refused_before_it_comes(
    shared_apiserver: ApiServerProcess,
) -> None:
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n".encode()
    assert raw(shared_apiserver, head).startswith(b"HTTP/1.1 413")


def test_pipelined_requests_are_answered_in_order(shared_apiserver: ApiServerProcess) -> None:
    count = 200
    data = b"".join(
        f"GET /api/v1/namespaces/default/pods/p{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        for number in range(count)
    )
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(shared_apiserver.socket))
        sock.sendall(data + b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    positions = [answer.index(b'pods \\"p%d\\" not found' % number) for number in range(count)]
    assert positions == sorted(positions)


def test_head_has_no_body(shared_apiserver: ApiServerProcess) -> None:
    both = b"HEAD /version HTTP/1.1\r\nHost: x\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = raw(shared_apiserver, both)
    assert answer.startswith(b"HTTP/1.1 405")
    assert answer.partition(b"\r\n\r\n")[2][:8] in (b"", b"HTTP/1.1")
