"""The fabric manager of an InfiniBand network as a source of hypernodes: an HTTPS server that
answers as it does."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hekla.api import names, topology
from hekla.api.kubernetes import core
from hekla.controllers.hypernode import ufm
from hekla.controllers.hypernode.controller import KEY
from hekla.kube.cache import Cache
from hekla.kube.errors import ApiError
from hekla.local.machine.certificates import Authority, Leaf
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, running

__all__ = ["shared_apiserver"]

Tree = dict[str, Any]


def link(node: str, leaf: str) -> Tree:
    return {
        "description": f"Computer IB Port {node}",
        "system_name": node,
        "peer_node_name": leaf,
        "port_state": "Active",
    }


SWITCHES = [{"description": "Switch IB Port", "system_name": "leaf-a", "peer_node_name": "spine"}]
TWO_GROUPS = [
    *SWITCHES,
    link("n3", "leaf-c"),
    link("n1", "leaf-a"),
    link("n1", "leaf-b"),
    link("n2", "leaf-b"),
]


def tree(ports: list[Tree]) -> dict[str, tuple[int, str, list[str]]]:
    """Hypernode -> (tier, type of its members, their names)."""
    found = ufm.discover(
        ufm.Port(*(port[key] for key in ("description", "system_name", "peer_node_name")))
        for port in ports
    )
    return {name: _shape(body["spec"]) for name, body in found.items()}


def _shape(spec: Tree) -> tuple[int, str, list[str]]:
    members = spec["members"]
    return (
        spec["tier"],
        members[0]["type"],
        [member["selector"]["exactMatch"]["name"] for member in members],
    )


@pytest.mark.scenario("controllers", 144)
def test_leaves_that_share_a_node_are_one() -> None:
    assert tree(TWO_GROUPS) == {
        "leaf-hn-0": (1, "Node", ["n1", "n2"]),
        "leaf-hn-1": (1, "Node", ["n3"]),
        "spine-hn": (2, "HyperNode", ["leaf-hn-0", "leaf-hn-1"]),
    }
    assert tree(SWITCHES) == {}


@pytest.mark.scenario("controllers", 144)
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"config": {}}, "needs config.endpoint"),
        ({"config": {"endpoint": ""}}, "needs config.endpoint"),
        ({"config": {"endpoint": "ufm:443"}}, "needs credentials.secretRef.name"),
    ],
)
def test_what_a_source_needs(source: Tree, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ufm.settings(source)


@pytest.mark.scenario("controllers", 144)
def test_what_a_secret_needs() -> None:
    for data, why in (({}, "no username and no password"), ({"username": "eA=="}, "no password")):
        with pytest.raises(ValueError, match=why):
            ufm.credentials({"metadata": {"name": "s"}, "data": data})
    assert (
        ufm.settings(
            {"config": {"endpoint": "ufm"}, "credentials": {"secretRef": {"name": "s"}}}
        ).url
        == f"https://ufm{ufm.PATH}"
    )


class FabricManager:
    """What the fabric manager would say, over HTTPS on a free port."""

    def __init__(self, directory: Path) -> None:
        self.ports: list[Tree] | None = []
        """None: it is out of order and answers with 500."""
        self.asked: list[tuple[str, str]] = []
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                user = base64.b64decode(
                    (self.headers["Authorization"] or "").removeprefix("Basic ")
                ).decode()
                manager.asked.append((self.path, user))
                status = 500 if manager.ports is None else 200 if user == "admin:secret" else 401
                body = json.dumps(manager.ports).encode() if status == 200 else b"no"
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        authority = Authority(directory)
        authority.ensure(Leaf("ufm", "ufm", names=("127.0.0.1",), client=False))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "ufm.crt", directory / "ufm.key")
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.endpoint = f"https://127.0.0.1:{self.server.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[FabricManager]:
        thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


async def configure(cluster: Cluster, *sources: Tree) -> None:
    """The ConfigMap of the controllers, with these sources."""
    text = yaml.safe_dump({"networkTopologyDiscovery": list(sources)})
    body = {"metadata": {"name": "volcano-controller-configmap"}, "data": {KEY: text}}
    with contextlib.suppress(ApiError):
        await cluster.client.create(
            core.NAMESPACE.untyped, {"metadata": {"name": "volcano-system"}}
        )
    try:
        await cluster.client.create(core.CONFIG_MAP.untyped, body, "volcano-system")
    except ApiError:
        await cluster.client.patch(
            core.CONFIG_MAP.untyped, "volcano-controller-configmap", body, "volcano-system"
        )


@pytest.mark.scenario("controllers", 144)
@pytest.mark.scenario("controllers", 145)
async def test_a_network_is_found_and_followed(cluster: Cluster, tmp_path: Path) -> None:
    manager = FabricManager(tmp_path)
    hypernodes = Cache(cluster.client, topology.HYPER_NODE)
    await hypernodes.start()

    def found(source: str = "ufm") -> dict[str, tuple[int, list[str]]]:
        return {
            each.metadata.name: _shape(msgspec.to_builtins(each.spec))[::2]
            for each in hypernodes
            if each.metadata.labels.get(names.NETWORK_TOPOLOGY_SOURCE) == source
        }

    async def become(wanted: dict[str, tuple[int, list[str]]]) -> None:
        await cluster.until(lambda: found() == wanted, lambda: f"{wanted}; there are {found()}")

    both = {
        "leaf-hn-0": (1, ["n1", "n2"]),
        "leaf-hn-1": (1, ["n3"]),
        "spine-hn": (2, ["leaf-hn-0", "leaf-hn-1"]),
    }
    source = {
        "source": "ufm",
        "enabled": True,
        "interval": "200ms",
        "credentials": {"secretRef": {"name": "ufm", "namespace": "volcano-system"}},
        "config": {"endpoint": manager.endpoint, "insecureSkipVerify": True},
    }
    tiers = [{"nodeLabel": "example.com/row"}, {"nodeLabel": "host"}]
    racks = {
        "source": "label",
        "enabled": True,
        "config": {"networkTopologyTypes": {"rack": tiers}},
    }
    await cluster.client.create(
        core.NODE.untyped, {"metadata": {"name": "n1", "labels": {"example.com/row": "a"}}}
    )
    with manager.running():
        manager.ports = list(TWO_GROUPS)
        await configure(cluster, source, racks)
        await cluster.until(lambda: len(found("label")) == 1, lambda: str(found("label")))
        assert not manager.asked and not found(), (
            "there is no secret yet; the other source runs all the same"
        )
        secret = {
            "metadata": {"name": "ufm"},
            "stringData": {"username": "admin", "password": "old"},
        }
        await cluster.client.create(core.SECRET.untyped, secret, "volcano-system")
        await configure(cluster, source, racks)
        await cluster.until(lambda: manager.asked)
        assert not found(), "a wrong password finds nothing"
        await cluster.client.patch(
            core.SECRET.untyped, "ufm", {"stringData": {"password": "secret"}}, "volcano-system"
        )
        await become(both)
        assert manager.asked[-1] == (ufm.PATH, "admin:secret")

        manager.ports = None
        seen = len(manager.asked)
        await cluster.until(lambda: len(manager.asked) > seen + 1)
        assert found() == both, "no answer changes nothing"
        manager.ports = [link("n1", "leaf-a")]
        await become({"leaf-hn-0": (1, ["n1"]), "spine-hn": (2, ["leaf-hn-0"])})

        await configure(cluster, {**source, "enabled": False}, racks)
        seen = len(manager.asked)
        manager.ports = []
        await cluster.client.patch(
            core.NODE.untyped, "n1", {"metadata": {"labels": {"example.com/row": None}}}
        )
        await cluster.until(lambda: not found("label"), lambda: str(found("label")))
        assert len(found()) == 2 and len(manager.asked) <= seen + 1, (
            "a source that is stopped leaves what it has found"
        )
        await configure(cluster, source)
        await become({})
    await cluster.client.delete(core.NODE, "n1")
    await cluster.client.delete(core.CONFIG_MAP, "volcano-controller-configmap", "volcano-system")
    await hypernodes.stop()
