"""Who may ask a node's endpoint: the API server says who a caller is and what they may."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.delegation import MOST_KEPT, Access, Delegation, Refused, User
from hekla.kube.errors import ApiError
from hekla.kube.http.message import Peer, Request, Response
from tests.kubelet.live_cluster import NODE_NAME, PATIENCE, Cluster, cluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"

# ------------------------------------------------------------------------------------ what is kept


class Reviewer:
    """An API server that knows one token, lets whatever is in `rights`, and counts."""

    def __init__(self) -> None:
        self.rights: set[str] = set()
        self.asked: list[str] = []
        self.away = False

    async def request(self, method: str, path: str, *, body: bytes) -> Response:
        if self.away:
            raise ApiError(503, "ServiceUnavailable", "it is away")
        spec = msgspec.json.decode(body)["spec"]
        if path.endswith("tokenreviews"):
            self.asked.append("who")
            known = spec["token"] == "good"
            status: Json = {"authenticated": known, "user": {"username": "ann"} if known else {}}
        else:
            self.asked.append("may")
            named = spec["resourceAttributes"]
            status = {"allowed": f"{named['verb']} {named['subresource']}" in self.rights}
        return Response(201, msgspec.json.encode({"status": status}))


def delegated_to(reviewer: Reviewer, clock: Callable[[], float] = time.monotonic) -> Delegation:
    return Delegation(reviewer, clock)  # type: ignore[arg-type]  # a client that only asks


def with_token(token: str) -> Request:
    return Request("GET", "/metrics", "", {"authorization": f"Bearer {token}"}, b"", Peer())


METRICS = Access("get", "", "nodes", "metrics", "n1")


async def test_a_token_and_a_right_are_looked_up_once_in_ten_seconds() -> None:
    now = 0.0
    reviewer = Reviewer()
    reviewer.rights = {"get metrics"}
    delegation = delegated_to(reviewer, lambda: now)
    user = await delegation.user(with_token("good"))
    assert (await delegation.verdict(user, METRICS)).allowed
    now = 9.0
    assert await delegation.user(with_token("good")) == user
    assert (await delegation.verdict(user, METRICS)).allowed
    assert reviewer.asked == ["who", "may"]
    now = 10.5
    await delegation.user(with_token("good"))
    reviewer.rights = set()
    assert not (await delegation.verdict(user, METRICS)).allowed


async def test_who_is_refused_is_looked_up_again_after_two_seconds() -> None:
    now = 0.0
    reviewer = Reviewer()
    delegation = delegated_to(reviewer, lambda: now)
    ann = User("ann")
    assert not (await delegation.verdict(ann, METRICS)).allowed
    reviewer.rights = {"get metrics"}
    assert not (await delegation.verdict(ann, METRICS)).allowed
    now = 2.1
    assert (await delegation.verdict(ann, METRICS)).allowed


async def test_what_one_may_is_not_what_another_may() -> None:
    reviewer = Reviewer()
    reviewer.rights = {"get metrics"}
    delegation = delegated_to(reviewer)
    assert (await delegation.verdict(User("ann"), METRICS)).allowed
    reviewer.rights = set()
    for other in (User("bob"), User("ann", ("g",)), User("ann", extra={"scopes": ["x"]})):
        assert not (await delegation.verdict(other, METRICS)).allowed
    assert not (
        await delegation.verdict(User("ann"), METRICS._replace(subresource="proxy"))
    ).allowed


async def test_made_up_tokens_fill_no_memory() -> None:
    reviewer = Reviewer()
    delegation = delegated_to(reviewer)
    for number in range(MOST_KEPT + 50):
        with pytest.raises(Refused) as refused:
            await delegation.user(with_token(f"made-up-{number}"))
        assert refused.value.code == 401
    assert len(delegation._users._answers) <= MOST_KEPT


async def test_an_api_server_that_is_away_says_nothing_that_is_kept() -> None:
    reviewer = Reviewer()
    delegation = delegated_to(reviewer)
    reviewer.away = True
    with pytest.raises(Refused) as refused:
        await delegation.user(with_token("good"))
    assert refused.value.code == 503 and "it is away" in str(refused.value)
    reviewer.away = False
    assert (await delegation.user(with_token("good"))).name == "ann"


# --------------------------------------------------------------------------------------------- live


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path_factory.mktemp("callers")) as made:
        yield made


async def token_of(client: Client, name: str, *rights: str) -> str:
    """A token of a new ServiceAccount that may get these subresources of nodes."""
    await client.request("POST", ACCOUNTS, body={"metadata": {"name": name}})
    if rights:
        resources = [f"nodes/{right}" for right in rights]
        rule = {"apiGroups": [""], "resources": resources, "verbs": ["get"]}
        role = {"metadata": {"name": name}, "rules": [rule]}
        await client.request("POST", f"{RBAC}/clusterroles", body=role)
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await client.request("POST", f"{RBAC}/clusterrolebindings", body=binding)
    answer = await client.request("POST", f"{ACCOUNTS}/{name}/token", body={"spec": {}})
    found = re.search(rb'"token":\s*"([^"]+)"', answer.body)
    assert found is not None
    return found[1].decode()


async def ask(
    live: Cluster, path: str, token: str = "", certificate: str = "", method: str = "GET"
) -> tuple[int, str]:
    """What the node's own port answers, on TLS that is checked."""
    node = await live.client.get(core.NODE, NODE_NAME)
    port = node.status.daemon_endpoints.kubelet_endpoint.port
    pki = live.server.pki
    tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    if certificate:
        tls.load_cert_chain(pki / f"{certificate}.crt", pki / f"{certificate}.key")

    def talk() -> tuple[int, str]:
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    return await asyncio.to_thread(talk)


@pytest.mark.asyncio(loop_scope="module")
async def test_nobody_in_particular_gets_nothing_but_health(live: Cluster) -> None:
    for path in (
        "/metrics",
        "/metrics/probes",
        "/metrics/resource",
        "/stats/summary",
        "/pods",
        "/anything",
    ):
        code, said = await ask(live, path)
        assert code == 401 and said.startswith("Unauthorized"), path
    assert (await ask(live, "/metrics/resource", token="made-up"))[0] == 401
    assert (await ask(live, "/healthz")) == (200, "ok")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_right_is_a_right_to_one_subresource(live: Cluster) -> None:
    token = await token_of(live.client, "scraper", "metrics")
    code, said = await ask(live, "/metrics/resource", token)
    assert code == 200 and "node_cpu_usage_seconds_total" in said
    for path in ("/metrics/cadvisor", "/metrics", "/metrics/probes"):
        assert (await ask(live, path, token))[0] == 200
    account = "system:serviceaccount:default:scraper"
    assert await ask(live, "/stats/summary", token) == (
        403,
        f"Forbidden (user={account}, verb=get, resource=nodes, subresource(s)=[stats])",
    )
    assert await ask(live, "/pods", token) == (
        403,
        f"Forbidden (user={account}, verb=get, resource=nodes, subresource(s)=[pods proxy])",
    )
    code, said = await ask(live, "/exec/default/p/c?command=id&output=1", token, method="POST")
    assert code == 403 and "verb=create, resource=nodes, subresource(s)=[proxy]" in said


@pytest.mark.asyncio(loop_scope="module")
async def test_the_right_to_proxy_opens_pods(live: Cluster) -> None:
    token = await token_of(live.client, "operator", "proxy")
    code, said = await ask(live, "/pods", token)
    assert code == 200 and '"PodList"' in said
    assert (await ask(live, "/metrics/resource", token))[0] == 403


@pytest.mark.asyncio(loop_scope="module")
async def test_certificates_are_known_too(live: Cluster) -> None:
    """That of the API server opens everything, a user's what the user may."""
    code, _ = await ask(live, "/metrics/resource", certificate="kubelet-client")
    assert code == 200
    code, said = await ask(live, "/metrics/resource", certificate="kubelet")
    assert code == 403 and "user=system:node:local" in said
