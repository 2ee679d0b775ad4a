"""Which addresses the server connects to on behalf of clients: pods and nodes, and nothing else on
this machine (local-cluster 5.5, 8.10)."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hekla.api.trees import Json
from tests.apiserver.http import MERGE, Answer, Http
from tests.apiserver_process import ApiServerProcess

CORE, SLICES = (
    "/api/v1/namespaces/reach",
    "/apis/discovery.k8s.io/v1/namespaces/reach/endpointslices",
)
NOWHERE = (
    "127.0.0.1",
    "127.0.0.53",
    "169.254.169.254",
    "0.0.0.0",
    "::1",
    "fe80::1",
    "::ffff:127.0.0.1",
    "224.0.0.1",
)


class _Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of something that listens on this machine, on all of its addresses."""
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), _Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


@pytest.fixture(scope="module", autouse=True)
def place(shared_apiserver: ApiServerProcess) -> None:
    http = Http(shared_apiserver)
    for name in ("reach", "elsewhere"):
        assert http.post("/api/v1/namespaces", {"metadata": {"name": name}}).status == 201


def made(
    http: Http,
    name: str,
    address: str,
    *ports: int,
    namespace: str = "reach",
    phase: str = "Running",
    node: str = "n",
) -> Answer:
    """A pod whose node says that it has an address."""
    container = {"name": "c", "image": "i", "ports": [{"containerPort": port} for port in ports]}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    http.delete(f"{pods}/{name}?gracePeriodSeconds=0")
    created = http.post(
        pods,
        {
            "metadata": {"name": name},
            "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        },
    )
    assert created.status == 201, created
    status = {"phase": phase, "podIP": address, "podIPs": [{"ip": address}]}
    return http.patch(f"{pods}/{name}/status", {"status": status}, MERGE)


def test_a_pod_is_reached_at_its_own_address(http: Http, port: int) -> None:
    made(http, "own", "127.83.9.9")
    assert http.get(f"{CORE}/pods/own:{port}/proxy/").body == b"hello"
    made(http, "shared", "127.0.0.1", port)
    assert http.get(f"{CORE}/pods/shared:{port}/proxy/").body == b"hello"
    assert http.get(f"{CORE}/pods/shared/proxy/").body == b"hello"


def test_and_nowhere_else(http: Http, port: int) -> None:
    for address in NOWHERE[:1] + NOWHERE[2:]:
        if made(http, "lost", address).status == 200:
            answer = http.get(f"{CORE}/pods/lost:{port}/proxy/")
            assert (answer.status, answer.message) == (400, "address not allowed"), address
    for more in ({"phase": "Succeeded"}, {"phase": "Failed"}, {"node": ""}):
        made(http, "lost", "127.83.9.9", port, **more)
        assert http.get(f"{CORE}/pods/lost:{port}/proxy/").status == 400, more
    made(http, "shared", "127.0.0.1", port)
    other = http.server.port
    assert http.get(f"{CORE}/pods/https:shared:{other}/proxy/").message == "address not allowed"


def endpoints(address: str, port: int, **reference: str) -> Json:
    entry = {"ip": address, **({"targetRef": reference} if reference else {})}
    return {
        "metadata": {"name": "s"},
        "subsets": [{"addresses": [entry], "ports": [{"port": port}]}],
    }


def piece(address: str, port: int, **reference: str) -> Json:
    entry = {"addresses": [address], **({"targetRef": reference} if reference else {})}
    kind = "IPv6" if ":" in address else "IPv4"
    return {
        "metadata": {"name": "s"},
        "addressType": kind,
        "endpoints": [entry],
        "ports": [{"port": port}],
    }


def test_endpoints_name_no_address_of_this_machine(http: Http, port: int) -> None:
    made(http, "own", "127.83.9.9")
    made(http, "theirs", "127.83.9.8", namespace="elsewhere")
    strangers: tuple[Json, ...] = (
        {},
        {"kind": "Pod", "name": "none", "namespace": "reach"},
        {"kind": "Pod", "name": "theirs", "namespace": "elsewhere"},
        {"kind": "Node", "name": "own"},
        {"kind": "Pod", "name": "own", "namespace": "reach"},
    )
    for path, body in ((f"{CORE}/endpoints", endpoints), (SLICES, piece)):
        for address in NOWHERE:
            for reference in strangers:
                answer = http.post(path, body(address, port, **reference))
                assert answer.status == 422, (address, reference, answer)
        for reference in strangers[:-1]:
            answer = http.post(
                path, body("127.83.9.9" if not reference else "127.83.9.8", port, **reference)
            )
            assert (
                answer.status,
                "may not be in the loopback range (127.0.0.0/8, ::1/128)" in answer.message,
            ) == (422, True)
        good = body("127.83.9.9", port, **strangers[-1])
        assert http.post(path, good).status == 201
        bad = http.patch(
            f"{path}/s",
            {name: body("127.0.0.1", port).get(name) for name in ("subsets", "endpoints")},
            MERGE,
        )
        assert bad.status == 422, bad
        made(http, "own", "127.83.9.7")  # what was right stays, as long as nobody touches it
        assert http.patch(f"{path}/s", {"metadata": {"labels": {"a": "b"}}}, MERGE).status == 200
        made(http, "own", "127.83.9.9")
        assert http.delete(f"{path}/s").status == 200


def test_a_shared_address_is_a_pods_at_its_ports(http: Http, port: int) -> None:
    """For whoever is not the cluster's own controller, which writes what a Service says."""
    made(http, "shared", "127.0.0.1", port)
    rule = {"apiGroups": ["*"], "resources": ["endpoints", "endpointslices"], "verbs": ["*"]}
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    http.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {"metadata": {"name": "leader"}, "rules": [rule]},
    )
    http.post(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "leader"},
            "roleRef": {**group, "kind": "ClusterRole", "name": "leader"},
            "subjects": [{**group, "kind": "User", "name": "leader"}],
        },
    )
    pod = {"kind": "Pod", "name": "shared", "namespace": "reach"}
    for path, body in ((f"{CORE}/endpoints", endpoints), (SLICES, piece)):
        for wanted, code in ((port, 201), (22, 422)):
            answer = http.request(
                "POST",
                f"{path}?dryRun=All",
                body("127.0.0.1", wanted, **pod),
                Impersonate_User="leader",
                Content_Type="application/json",
            )
            assert answer.status == code, answer
    everywhere = {**piece("127.0.0.1", 1, **pod), "ports": []}
    assert (
        http.request(
            "POST", SLICES, everywhere, Impersonate_User="leader", Content_Type="application/json"
        ).status
        == 422
    )


def test_a_service_leads_to_pods_alone(http: Http, port: int) -> None:
    http.post(
        f"{CORE}/services",
        {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "targetPort": port}]}},
    )
    pod = {"kind": "Pod", "name": "own", "namespace": "reach"}
    made(http, "own", "127.83.9.9")
    http.post(f"{CORE}/endpoints", endpoints("127.83.9.9", port, **pod))
    assert http.get(f"{CORE}/services/s:80/proxy/").body == b"hello"
    made(http, "own", "127.83.9.7")  # and what was a pod's is so no more
    answer = http.get(f"{CORE}/services/s:80/proxy/")
    assert (answer.status, answer.message) == (503, 'no endpoints available for service "s"')
    assert http.put(f"{CORE}/endpoints/s", endpoints("10.1.2.3", port)).status == 200
    assert http.get(f"{CORE}/services/s:80/proxy/").status == 503
    assert http.put(f"{CORE}/endpoints/s", endpoints("10.1.2.3", port, **pod)).status == 200
    assert http.get(f"{CORE}/services/s:80/proxy/").status == 503


def test_a_node_is_its_agent(http: Http, port: int) -> None:
    """What listens in its place must show a certificate of the cluster's, and gets none that may
    anything."""
    http.post("/api/v1/nodes", {"metadata": {"name": "n"}})

    def moved(address: str, own: int) -> None:
        addresses, endpoint = (
            [{"type": "InternalIP", "address": address}],
            {"kubeletEndpoint": {"Port": own}},
        )
        answer = http.patch(
            "/api/v1/nodes/n/status",
            {"status": {"addresses": addresses, "daemonEndpoints": endpoint}},
            MERGE,
        )
        assert answer.status == 200, answer

    for address in ("127.0.0.1", "localhost", "169.254.169.254", "0.0.0.0"):
        moved(address, 1)
        assert http.get(f"/api/v1/nodes/n:{port}/proxy/").message == "address not allowed", address
    moved("127.0.0.1", port)
    assert http.get("/api/v1/nodes/n/proxy/").status == 503
    moved("127.0.0.1", http.server.port)
    answer = http.get("/api/v1/nodes/n/proxy/api/v1/secrets")
    assert (
        answer.status,
        'User "kube-apiserver-kubelet-client" cannot list resource' in answer.message,
    ) == (403, True)
