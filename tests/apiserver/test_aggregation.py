"""APIs that another server answers: who asks is checked here and told there, and discovery has them."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError, Forbidden, NotFound
from hekla.kube.http.server import Request, Response, serve
from hekla.local.apiserver.aggregation.aggregator import access_of, remote_headers
from hekla.local.apiserver.auth.user import User
from hekla.local.machine.certificates import Authority, Leaf
from tests.apiserver_process import ApiServerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP, VERSION = "fruit.example.com", "v1"
PATH = f"/apis/{GROUP}/{VERSION}"
LISTED = {
    "kind": "APIResourceList",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {"name": "pears", "namespaced": True, "kind": "Pear", "verbs": ["get", "list"]},
        {"name": "pears/status", "namespaced": True, "kind": "Pear", "verbs": ["get"]},
    ],
}
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

MERGE = {"Content-Type": "application/merge-patch+json"}


class Orchard:
    """The server behind: tells its discovery, and answers all else with what it was asked."""

    def __init__(self) -> None:
        self.server: Any = None

    def __call__(self, request: Request) -> Response:
        if request.peer.common_name != "front-proxy-client":
            return Response(401, b"who are you?", "text/plain")
        if request.path == PATH:
            return Response(200, json.dumps(LISTED).encode())
        seen = {
            "path": request.path,
            "method": request.method,
            "user": request.headers.get("x-remote-user"),
            "groups": request.headers.get("x-remote-group"),
            "secret": request.headers.get("authorization"),
        }
        return Response(200, json.dumps(seen).encode())


class Live:
    def __init__(self, server: ApiServerProcess, orchard: Orchard, ca: Path) -> None:
        self.server = server
        self.orchard = orchard
        self.ca = ca
        self.client = Client(load(str(server.internal_kubeconfig)))

    async def get(self, path: str, **headers: str) -> Json:
        answer = await self.client.request("GET", path, headers=headers)
        found: Json = json.loads(answer.body)
        return found

    async def condition(self, wanted: str) -> Json:
        deadline = time.monotonic() + 60
        while True:
            tree = await self.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}")
            for one in (tree.get("status") or {}).get("conditions") or []:
                if one["type"] == "Available" and one["reason"] == wanted:
                    return dict(one)
            assert time.monotonic() < deadline, tree.get("status")
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    directory = tmp_path_factory.mktemp("aggregation")
    pki = directory / "orchard"
    pki.mkdir()
    authority = Authority(pki)
    authority.ensure(Leaf("serving", "orchard", names=("orchard.default.svc",), client=False))
    with ApiServerProcess.started(directory) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "serving.crt", pki / "serving.key")
        context.load_verify_locations(server.pki / "front-proxy-ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        orchard = Orchard()
        orchard.server = await serve(orchard, host="127.0.0.1", port=0, ssl=context)
        made = Live(server, orchard, authority.certificate_file)
        await made.client.request(
            "POST",
            "/api/v1/namespaces/default/services",
            body=json.dumps(
                {
                    "metadata": {"name": "orchard"},
                    "spec": {
                        "type": "ExternalName",
                        "externalName": "localhost",
                        "ports": [{"port": orchard.server.port}],
                    },
                }
            ).encode(),
        )
        await made.client.request(
            "POST", "/apis/apiregistration.k8s.io/v1/apiservices", body=service(made)
        )
        yield made
        await made.client.close()
        await orchard.server.close(0.1)


def service(live: Live) -> bytes:
    spec = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
        "service": {"name": "orchard", "namespace": "default", "port": live.orchard.server.port},
        "caBundle": base64.b64encode(live.ca.read_bytes()).decode(),
    }
    return json.dumps({"metadata": {"name": f"{VERSION}.{GROUP}"}, "spec": spec}).encode()


async def test_a_request_reaches_the_server_behind_under_its_users_name(live: Live) -> None:
    assert (await live.condition("Passed"))["status"] == "True"
    seen = await live.get(f"{PATH}/namespaces/default/pears?limit=3")
    assert seen["path"] == f"{PATH}/namespaces/default/pears"
    assert "system:masters" in seen["groups"]
    seen = await live.get(
        f"{PATH}/pears", **{"Impersonate-User": "eve", "Impersonate-Group": "system:masters"}
    )
    assert seen["user"] == "eve"


async def test_nobody_names_himself_and_no_token_is_handed_on(live: Live) -> None:
    await live.condition("Passed")
    path = "/api/v1/namespaces/default/serviceaccounts"
    await live.client.request("POST", path, body={"metadata": {"name": "picker"}})
    answer = await live.client.request("POST", f"{path}/picker/token", body={"spec": {}})
    token = json.loads(answer.body)["status"]["token"]
    binding = {
        "metadata": {"name": "picker"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "picker", "namespace": "default"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    await live.client.request("POST", bindings, body=binding)
    seen = await live.get(
        f"{PATH}/pears", **{"X-Remote-User": "root", "Authorization": f"Bearer {token}"}
    )
    assert seen["user"] == "system:serviceaccount:default:picker"
    assert seen["secret"] is None


async def test_who_may_not_is_refused_here(live: Live) -> None:
    await live.condition("Passed")
    with pytest.raises(Forbidden) as error:
        await live.get(f"{PATH}/namespaces/default/pears", **{"Impersonate-User": "eve"})
    assert 'cannot list resource "pears" in API group "fruit.example.com"' in str(error.value)


async def test_discovery_has_it_in_both_forms(live: Live) -> None:
    await live.condition("Passed")
    groups = {one["name"]: one for one in (await live.get("/apis"))["groups"]}
    assert groups[GROUP]["preferredVersion"]["groupVersion"] == f"{GROUP}/{VERSION}"
    assert (await live.get(f"/apis/{GROUP}"))["versions"][0]["version"] == VERSION
    assert await live.get(PATH) == LISTED
    _, body = live.server.request("GET", "/apis", headers={"Accept": DISCOVERY})
    items = json.loads(body)["items"]
    (item,) = [one for one in items if one["metadata"]["name"] == GROUP]
    (version,) = item["versions"]
    assert version["freshness"] == "Current"
    assert [one["resource"] for one in version["resources"]] == ["pears"]


async def test_a_server_that_has_gone_is_said_so_and_comes_back(live: Live) -> None:
    await live.condition("Passed")
    port = live.orchard.server.port
    await live.client.request(
        "PATCH",
        "/api/v1/namespaces/default/services/orchard",
        body=json.dumps({"spec": {"ports": None}}).encode(),
        headers=MERGE,
    )
    again = json.loads(service(live))
    again["spec"]["versionPriority"] = 11
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
    await live.client.request("PATCH", path, body=json.dumps(again).encode(), headers=MERGE)
    told = await live.condition("ServicePortError")
    assert told["message"] == f'no service port {port} found for service "orchard"'
    with pytest.raises(ApiError) as error:
        await live.get(f"{PATH}/pears")
    assert error.value.code == 503 and "service unavailable" in str(error.value)
    await live.client.request(
        "PATCH",
        "/api/v1/namespaces/default/services/orchard",
        body=json.dumps({"spec": {"ports": [{"port": port}]}}).encode(),
        headers=MERGE,
    )
    await live.condition("Passed")
    await live.get(f"{PATH}/pears")


async def test_an_api_that_is_withdrawn_is_gone(live: Live) -> None:
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{GROUP}"
    await live.condition("Passed")
    await live.client.request("DELETE", path)
    with pytest.raises(NotFound):
        await live.get(f"{PATH}/pears")
    assert GROUP not in {one["name"] for one in (await live.get("/apis"))["groups"]}
    await live.client.request(
        "POST", "/apis/apiregistration.k8s.io/v1/apiservices", body=service(live)
    )


async def test_servers_behind_learn_whom_to_trust(live: Live) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = (await live.get(path))["data"]
    front = (live.server.pki / "front-proxy-ca.crt").read_text()
    assert data["requestheader-client-ca-file"] == front
    assert data["client-ca-file"] == (live.server.pki / "ca.crt").read_text()
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]


# --- pure -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "verb", "resource", "subresource", "namespace", "name"),
    [
        ("GET", "nodes", "list", "nodes", "", "", ""),
        ("GET", "nodes/n1", "get", "nodes", "", "", "n1"),
        ("GET", "namespaces/a/pods", "list", "pods", "", "a", ""),
        ("PUT", "namespaces/a/pods/p/status", "update", "pods", "status", "a", "p"),
        ("POST", "namespaces/a/pods", "create", "pods", "", "a", ""),
        ("DELETE", "namespaces/a/pods", "deletecollection", "pods", "", "a", ""),
        ("DELETE", "namespaces/a/pods/p", "delete", "pods", "", "a", "p"),
        ("GET", "namespaces/a", "get", "namespaces", "", "", "a"),
    ],
)
async def test_what_a_path_asks_for(
    method: str, path: str, verb: str, resource: str, subresource: str, namespace: str, name: str
) -> None:
    request = Request(method, f"{PATH}/{path}", "", {}, b"", None)  # type: ignore[arg-type]
    found = access_of(request)
    assert (found.verb, found.group, found.resource) == (verb, GROUP, resource)
    assert (found.subresource, found.namespace, found.name) == (subresource, namespace, name)


async def test_each_group_has_its_header() -> None:
    user = User("anna", ("a", "b"), "u1", {"scopes/x": ("1", "2")})
    assert remote_headers(user) == [
        ("X-Remote-User", "anna"),
        ("X-Remote-Uid", "u1"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-scopes%2Fx", "1"),
        ("X-Remote-Extra-scopes%2Fx", "2"),
    ]
