"""The proxy subresource: HTTP handed on to a port of a pod, to what stands behind a service, or to
a node's kubelet.

Method, path, query and body are kept, and upgrades too.  As on any API server, whoever may use it
reaches whatever listens there under the server's address; that is what the permission on
`pods/proxy` and its siblings is for.  It goes to addresses of pods and nodes alone: see
`podaddresses.py` for what that is on one machine.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from hekla.api.trees import Json
from hekla.kube.http.client import HttpClient, Target, TransportError
from hekla.kube.http.server import Body, Request, Response, Stream, Upgrade
from hekla.kube.http.upgrade import HOP, open_upgrade, splice
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.kubelet import pass_on
from hekla.local.apiserver.request.podaddresses import (
    addresses_of,
    check_reach,
    declared_ports,
    is_global,
)
from hekla.local.apiserver.request.status import Refusal, bad_request, not_found

if TYPE_CHECKING:
    from hekla.local.apiserver.request.connect import Connections

NOT_HANDED_ON = HOP | {"host", "authorization", "expect", "accept-encoding", "x-forwarded-uri"}
OPTIONS = {
    "pods": "PodProxyOptions",
    "services": "ServiceProxyOptions",
    "nodes": "NodeProxyOptions",
}


class Destination:
    """Where a request goes.  `server_name`: what its certificate must be for, if not the host."""

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, server_name: str = ""
    ) -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.server_name = server_name


class Proxy:
    """Hands requests on."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    async def answer(self, call: Call) -> Response | Stream | Upgrade:
        await asyncio.sleep(0)
        found = call.route
        plural = found.kind.plural
        scheme, name, port = name_of(found.name)
        key = f"{found.namespace}/{name}" if found.namespace else name
        row = found.resource.collection.rows.get(key)
        if row is None:
            raise not_found(found.kind, name)
        path = "/" + rest_of(call)
        await self.connections.admit(
            call, {"kind": OPTIONS[plural], "apiVersion": "v1", "path": path}
        )
        tree = row.tree()
        if plural == "pods":
            destination = of_pod(tree, scheme, port)
        elif plural == "services":
            destination = self.of_service(call, tree, scheme, port)
        else:
            destination = await self.of_node(name, port)
        return await hand_on(call.request, destination, path)

    def of_service(self, call: Call, service: Json, scheme: str, port: str) -> Destination:
        """One of the ready addresses behind a service."""
        name = service["metadata"]["name"]
        wanted = next(
            (
                p
                for p in service.get("spec", {}).get("ports") or []
                if port in ("", p.get("name"), str(p.get("port")))
            ),
            None,
        )
        if wanted is None:
            raise Refusal(503, f'no service port "{port}" found for service "{name}"', details={})
        endpoints = self.connections.registry["endpoints"]
        row = endpoints.collection.rows.get(f"{call.route.namespace}/{name}")
        for subset in (row.tree().get("subsets") or []) if row is not None else []:
            for candidate in subset.get("ports") or []:
                if candidate.get("name", "") == wanted.get("name", ""):
                    for address in subset.get("addresses") or []:
                        if self.is_pods(call.route.namespace, address, int(candidate["port"])):
                            return Destination(
                                address["ip"], int(candidate["port"]), unverified(scheme)
                            )
        raise Refusal(503, f'no endpoints available for service "{name}"', details={})

    def is_pods(self, namespace: str, address: Json, port: int) -> bool:
        """Whether an endpoint is a pod of the namespace: whoever writes Endpoints does not choose
        where the server connects to."""
        reference = address.get("targetRef") or {}
        if reference.get("kind") != "Pod" or reference.get("namespace") != namespace:
            return False
        row = self.connections.registry["pods"].collection.rows.get(
            f"{namespace}/{reference.get('name')}"
        )
        if row is None:
            return False
        try:
            check_reach(row.tree(), str(address.get("ip")), port)
        except Refusal:
            return False
        return True

    async def of_node(self, name: str, port: str) -> Destination:
        """The node's kubelet, which shows a certificate of the cluster's; elsewhere only what is no
        address of this machine."""
        kubelets = self.connections.kubelets
        if kubelets is None:
            raise Refusal(
                501,
                "this server was started without a certificate for kubelets",
                reason="NotImplemented",
                details={},
            )
        host, own = kubelets.address(name, "proxy")
        if not port or port == str(own):
            return Destination(host, own, kubelets.tls)
        found = await asyncio.get_running_loop().getaddrinfo(
            host, number_of(port), type=socket.SOCK_STREAM
        )
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(map(is_global, addresses)):
            raise bad_request("address not allowed")
        # The address that was checked, whatever the name resolves to next.
        return Destination(addresses[0], number_of(port))


def name_of(text: str) -> tuple[str, str, str]:
    """(scheme, name, port) of `name`, `name:port` or `scheme:name:port`."""
    parts = text.split(":")
    if len(parts) == 1:
        return "", parts[0], ""
    if len(parts) == 2:
        return "", parts[0], parts[1]
    if len(parts) == 3 and parts[0] in ("http", "https", ""):
        return parts[0], parts[1], parts[2]
    raise bad_request(f'invalid proxy request "{text}"')


def number_of(port: str) -> int:
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise bad_request(f'invalid port "{port}"')
    return int(port)


def unverified(scheme: str) -> ssl.SSLContext | None:
    """Certificates of pods are anybody's: they are not checked, on a real server neither."""
    return ssl._create_unverified_context() if scheme == "https" else None


def of_pod(pod: Json, scheme: str, port: str) -> Destination:
    address = next(iter(addresses_of(pod)), "")
    declared = declared_ports(pod)
    if not port:
        port = str(declared[0]["containerPort"]) if declared else "80"
    elif not port.isdecimal():
        named = next((p for p in declared if p.get("name") == port), None)
        port = str(named["containerPort"]) if named is not None else port
    check_reach(pod, address, number_of(port))
    return Destination(address, number_of(port), unverified(scheme))


def rest_of(call: Call) -> str:
    """What stands behind the subresource in the path, as it is written; objects may be called
    `proxy` too."""
    # /api/v1/namespaces/<namespace>/pods/<name>/proxy, /api/v1/nodes/<name>/proxy.
    before = 8 if call.route.namespace else 6
    parts = call.request.path.split("/", before)
    return parts[before] if len(parts) > before else ""


async def hand_on(
    request: Request,
    to: Destination,
    path: str,
    more: Sequence[tuple[str, str]] = (),
    without: str = "",
) -> Response | Stream | Upgrade:
    """Sends the request on and streams the answer back.  `more`: further headers; those of the
    client's that begin with `without`, if that is given, are left out."""
    target = quote(path, safe="/:@!$&'()*+,;=~-._") + (f"?{request.query}" if request.query else "")
    headers = {
        name: value
        for name, value in request.headers.items()
        if name not in NOT_HANDED_ON and not (without and name.startswith(without))
    }
    headers["x-forwarded-uri"] = request.path
    try:
        if (
            "upgrade" in request.headers.get("connection", "").lower()
            and "upgrade" in request.headers
        ):
            return await upgraded(request, to, target, headers, more)
        tls = to.tls
        client = HttpClient(
            Target(
                to.host,
                to.port,
                tls=None if tls is None else lambda: tls,
                server_name=to.server_name,
            ),
            pool=1,
        )
        lines = "".join(
            f"{name}: {value}\r\n" for name, value in (*headers.items(), *more) if "\n" not in value
        ).encode("latin-1", "replace")
        try:
            # Whose answer would have a length, but no body.
            method = "GET" if request.method == "HEAD" else request.method
            incoming = await client.stream(method, target, lines, request.body)
        except BaseException:
            await client.close()
            raise
    except (TransportError, OSError, TimeoutError) as error:
        text = f"error trying to reach service: dial tcp {to.host}:{to.port}: {error}"
        return Response(503, text.encode(), "text/plain; charset=utf-8")

    async def run(body: Body) -> None:
        try:
            await pass_on(incoming, body)
        finally:
            await client.close()

    answer: dict[str, str] = {}
    for name, value in incoming.headers:
        key = name.decode("latin-1")
        if key.lower() not in HOP and key.lower() != "content-type":
            text = value.decode("latin-1")
            answer[key] = f"{answer[key]}\n{text}" if key in answer else text
    if request.method == "HEAD" or incoming.status in (204, 304):
        incoming.close()
        await client.close()
        return Response(incoming.status, b"", headers=answer)
    length = incoming.header(b"content-length")
    return Stream(
        run,
        incoming.status,
        incoming.header(b"content-type"),
        answer,
        int(length) if length.isdecimal() else None,
    )


async def upgraded(
    request: Request,
    to: Destination,
    target: str,
    headers: dict[str, str],
    more: Sequence[tuple[str, str]],
) -> Response | Upgrade:
    headers |= {name: request.headers[name] for name in ("connection", "upgrade")}
    opening = await open_upgrade(
        to.host, to.port, to.tls, request.method, target, [*headers.items(), *more], to.server_name
    )
    if opening.status != 101:
        return Response(
            opening.status, bytes(opening.body), opening.headers.get("content-type", "text/plain")
        )
    answer = {name.title(): value for name, value in opening.headers.items() if name not in HOP}
    answer["Upgrade"] = opening.headers.get("upgrade", "")
    return Upgrade(lambda transport, rest: splice(transport, rest, opening), answer)
