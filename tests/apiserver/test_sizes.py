"""No object exceeds etcd's size limit, however it grows, and requests without end take no memory."""

from __future__ import annotations

import json
import socket
import ssl
from typing import Any

import psutil
import pytest

from hekla.kube.http.server import MOST_HELD, MOST_LINGERING, TLS_ROOM
from hekla.local.apiserver.request.call import LONGEST_CUT, LONGEST_WARNINGS, shortened
from hekla.local.apiserver.storage.collection import MAX_OBJECT_BYTES
from tests.apiserver.http import (
    CONFIG_MAPS,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Answer,
    Http,
    config_map,
    until,
)
from tests.apiserver_process import ApiServerProcess

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
APPLY = "application/apply-patch+yaml"
WORDS = "etcdserver: request is too large"
PIECE = "x" * 500_000


def deployment(name: str, **annotations: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"a": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": name}}, "template": template},
    }


def too_large(answer: Answer) -> bool:
    tree = answer.tree
    return (
        answer.status == 413
        and tree["reason"] == "RequestEntityTooLarge"
        and WORDS in tree["message"]
        and tree["code"] == 413
    )


def env(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "value": PIECE} for name in names]


def test_no_way_to_write_makes_an_object_too_large(http: Http) -> None:
    path = f"{DEPLOYMENTS}/big"
    assert http.post(DEPLOYMENTS, deployment("big")).status == 201
    where = "/spec/template/spec/containers/0/env"
    assert (
        http.patch(path, [{"op": "add", "path": where, "value": env("A", "B")}], JSON_PATCH).status
        == 200
    )
    one_more = [
        {"op": "copy", "from": f"{where}/0", "path": f"{where}/-"},
        {"op": "replace", "path": f"{where}/2/name", "value": "C"},
    ]
    before = http.get(path).tree
    container = {"name": "c", "image": "i", "env": env("A", "B", "C", "D")}
    template = {"spec": {"template": {"spec": {"containers": [container]}}}}
    assert http.patch(path, one_more, JSON_PATCH).status == 200  # 1.5 MB
    before = http.get(path).tree
    assert too_large(
        http.patch(path, [{"op": "copy", "from": f"{where}/0", "path": f"{where}/-"}], JSON_PATCH)
    )
    assert too_large(http.patch(path, template, MERGE))
    assert too_large(http.patch(path, template, STRATEGIC))
    applied = {**deployment("big"), "spec": {**deployment("big")["spec"], **template["spec"]}}
    applied["spec"]["template"]["metadata"] = {"labels": {"a": "big"}}
    assert too_large(
        http.patch(f"{path}?fieldManager=me&force=true", json.dumps(applied).encode(), APPLY)
    )
    assert too_large(http.put(path, applied))
    assert too_large(http.post(DEPLOYMENTS, {**applied, "metadata": {"name": "born-big"}}))
    conditions = [
        {"type": f"T{number}", "status": "True", "message": "y" * 100_000} for number in range(12)
    ]
    assert too_large(http.patch(f"{path}/status", {"status": {"conditions": conditions}}, MERGE))
    assert http.get(path).tree == before
    assert http.patch(path, [{"op": "remove", "path": f"{where}/0"}], JSON_PATCH).status == 200
    assert http.delete(path).status == 200


def test_custom_objects_and_their_status_are_bounded_too(http: Http) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    http.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "metadata": {"name": "heaps.big.example.com"},
            "spec": {
                "group": "big.example.com",
                "scope": "Namespaced",
                "names": {"plural": "heaps", "kind": "Heap"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": anything},
                    }
                ],
            },
        },
    )
    heaps = "/apis/big.example.com/v1/namespaces/default/heaps"
    body = {"apiVersion": "big.example.com/v1", "kind": "Heap", "metadata": {"name": "h"}}
    until(lambda: http.post(heaps, body).status in (201, 409))
    assert http.patch(f"{heaps}/h", {"spec": {"a": PIECE, "b": PIECE}}, MERGE).status == 200
    assert too_large(http.patch(f"{heaps}/h/status", {"status": {"a": PIECE, "b": PIECE}}, MERGE))
    assert too_large(http.patch(f"{heaps}/h", {"spec": {"c": PIECE * 2}}, MERGE))
    assert too_large(
        http.post(heaps, {**body, "metadata": {"name": "i"}, "spec": {"a": "x" * MAX_OBJECT_BYTES}})
    )


def test_what_etcd_holds_is_measured_as_etcd_holds_it(http: Http) -> None:
    """A mebibyte of line feeds is two in JSON, and one on Kubernetes."""
    lines = config_map("lines", data={"x": "\n" * 1_000_000})
    assert http.post(CONFIG_MAPS, lines).status == 201
    assert (
        http.patch(f"{CONFIG_MAPS}/lines", {"metadata": {"labels": {"a": "b"}}}, MERGE).status
        == 200
    )
    assert http.delete(f"{CONFIG_MAPS}/lines").status == 200


def test_versions_have_no_gap_where_something_was_too_large(http: Http) -> None:
    first = int(http.post(CONFIG_MAPS, config_map("before")).version)
    assert too_large(
        http.post(
            DEPLOYMENTS,
            deployment("gap", a="x" * 200_000)
            | {
                "metadata": {
                    "name": "gap",
                    "finalizers": [f"a.example.com/{number}{'x' * 50}" for number in range(30_000)],
                }
            },
        )
    )
    assert int(http.post(CONFIG_MAPS, config_map("after")).version) == first + 1


SENT = 300_000


@pytest.mark.slow(seconds=40)
@pytest.mark.timeout(180)
def test_800_half_sent_requests_are_not_held(apiserver: ApiServerProcess) -> None:
    assert apiserver.process is not None
    process = psutil.Process(apiserver.process.pid)
    before = process.memory_info().rss
    context = ssl.create_default_context(cafile=str(apiserver.pki / "ca.crt"))
    head = b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n"
    held: list[socket.socket] = []
    most = before
    http = Http(apiserver)
    for number in range(800):
        made = context.wrap_socket(
            socket.create_connection(("127.0.0.1", apiserver.port), 30), server_hostname="127.0.0.1"
        )
        held.append(made)
        try:
            made.sendall(head + b"x" * SENT)
        except OSError:
            pass  # it was among the slowest
        if number % 50 == 0:
            most = max(most, process.memory_info().rss)
            assert http.post(CONFIG_MAPS, config_map(f"meanwhile-{number}")).status == 201
    most = max(most, process.memory_info().rss)
    for made in held:
        made.close()
    until(lambda: process.memory_info().rss < before + 60_000_000)
    print(
        f"before {before / 1e6:.0f} MB, most {most / 1e6:.0f} MB, after {process.memory_info().rss / 1e6:.0f} MB"
    )
    # 240 MB were sent.  What is held has its budget, and with it the connections, each of which has
    # the room into which TLS reads.
    assert most < before + MOST_HELD + (MOST_HELD // SENT + MOST_LINGERING) * TLS_ROOM + 30_000_000


def test_warnings_fit_into_headers() -> None:
    few = ["a" * 300, "b"]
    assert shortened(few) == few
    many = shortened([f"{number} " + "x" * 5000 for number in range(200)])
    assert {len(text) for text in many} == {LONGEST_CUT}
    assert LONGEST_WARNINGS - LONGEST_CUT < sum(map(len, many)) <= LONGEST_WARNINGS + LONGEST_CUT
    assert [text.split()[0] for text in many] == [str(number) for number in range(len(many))]
