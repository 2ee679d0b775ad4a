"""The way to the kubelets: logs of containers, asked for by users and read from the node that
has them."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import quote, urlencode

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.kube.connection.tls import load_files
from hekla.kube.http.client import HttpClient, Target, TransportError
from hekla.kube.http.client import Stream as Incoming
from hekla.kube.http.server import Body, Response, Stream
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.status import Refusal, bad_request, internal, invalid, not_found
from hekla.local.apiserver.storage.registry import Registry

PASSED_ON = (
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "timestamps",
    "tailLines",
    "limitBytes",
    "stream",
)


class Kubelets:
    """Connections to kubelets, made with the server's own client certificate."""

    def __init__(self, registry: Registry, certificate: Path, key: Path, authority: Path) -> None:
        self.registry = registry
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        load_files(self.tls, certificate, key, authority)
        self.tls.check_hostname = (
            False  # nodes are reached by address, and say who they are by the authority's signature
        )

    async def log(self, call: Call) -> Response | Stream:
        """GET pods/<p>/log."""
        await asyncio.sleep(0)
        resource = self.registry["pods"]
        row = resource.collection.rows.get(call.route.key)
        if row is None:
            raise not_found(resource.kind, call.route.name)
        pod = row.tree()
        container = container_of(call, pod)
        check_options(call)
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            return Response(204, b"", "text/plain")
        check_started(call, pod, container)
        host, port = self.address(node, "log")
        options = {
            name: call.request.option(name) for name in PASSED_ON if call.request.option(name)
        }
        path = f"/containerLogs/{quote(row.namespace)}/{quote(row.name)}/{quote(container)}?{urlencode(options)}"
        client = HttpClient(Target(host, port, tls=lambda: self.tls), pool=1)
        try:
            incoming = await client.stream("GET", path)
        except (TransportError, OSError, TimeoutError) as error:
            await client.close()
            raise internal(f"the node {node} does not answer at {host}:{port}: {error}") from error
        if incoming.status != 200:
            text = (await incoming.read_all(1 << 20)).decode("utf-8", "replace").strip()
            await client.close()
            if incoming.status in (400, 404):
                raise bad_request(text or f"the node {node} refused: {incoming.status}")
            raise internal(text or f"the node {node} answered {incoming.status}")

        async def run(body: Body) -> None:
            try:
                await pass_on(incoming, body)
            finally:
                await client.close()

        return Stream(
            run, content_type="text/plain", headers={"Cache-Control": "no-cache, private"}
        )

    def address(self, name: str, what: str) -> tuple[str, int]:
        """Where the kubelet of a node answers."""
        nodes = self.registry["nodes"]
        row = nodes.collection.rows.get(name)
        if row is None:
            raise not_found(nodes.kind, name)
        status: Json = row.tree().get("status") or {}
        addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or []}
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
        if not host or not port:
            absent = {
                "log": "keeps no logs",
                "portforward": "forwards no ports",
                "proxy": "serves nothing",
            }.get(what, "runs no commands")
            raise Refusal(
                501,
                f"the node {name} {absent}: it has no kubelet that could be asked",
                reason="NotImplemented",
                details={},
            )
        return str(host), int(port)


async def pass_on(incoming: Incoming, body: Body) -> None:
    """Hands the node's answer to the client as it comes."""
    try:
        async for data in incoming:
            body.write(data)
            await body.drain()
    finally:
        incoming.close()


STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def container_names(pod: Json) -> list[str]:
    spec = pod.get("spec") or {}
    return [
        c["name"]
        for field in ("initContainers", "containers", "ephemeralContainers")
        for c in spec.get(field) or []
    ]


def container_of(call: Call, pod: Json) -> str:
    """The container that is meant; raises 400 where that is not clear."""
    wanted = call.request.option("container")
    main = [c["name"] for c in (pod.get("spec") or {}).get("containers") or []]
    if wanted:
        if wanted not in container_names(pod):
            raise bad_request(f"container {wanted} is not valid for pod {call.route.name}")
        return wanted
    if len(main) != 1 or ((pod.get("spec") or {}).get("initContainers") and not main):
        initial = [c["name"] for c in (pod.get("spec") or {}).get("initContainers") or []]
        text = f"a container name must be specified for pod {call.route.name}, choose one of: [{' '.join(main)}]"
        if initial:
            text += f" or one of the init containers: [{' '.join(initial)}]"
        raise bad_request(text)
    return str(main[0])


def check_options(call: Call) -> None:
    request = call.request
    errors = Errors()
    for name, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)):
        text = request.option(name)
        if not text:
            continue
        try:
            value = int(text)
        except ValueError as error:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from error
        if value < least:
            errors.invalid(name, value, f"must be greater than or equal to {least}")
    stream = request.option("stream")
    if stream not in ("", "All", "Stdout", "Stderr"):
        errors.not_supported("stream", stream, ["All", "Stderr", "Stdout"])
    if request.option("sinceSeconds") and request.option("sinceTime"):
        errors.forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    if errors:
        kind = call.route.kind
        raise invalid(
            type(kind)("", "v1", "PodLogOptions", "podlogoptions", True), call.route.name, errors
        )


def check_started(call: Call, pod: Json, container: str) -> None:
    """Raises 400 for a container that has not begun to write."""
    status = pod.get("status") or {}
    known = {c.get("name"): c for field in STATUSES for c in status.get(field) or []}
    state = known.get(container)
    name = call.route.name
    if state is None:
        raise bad_request(
            f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
        )
    if call.request.flag("previous"):
        if not (state.get("lastState") or {}).get("terminated"):
            raise bad_request(
                f'previous terminated container "{container}" in pod "{name}" not found'
            )
        return
    waiting = (state.get("state") or {}).get("waiting")
    if waiting is not None and not (state.get("lastState") or {}).get("terminated"):
        reason = waiting.get("reason") or "ContainerCreating"
        text = {
            "ErrImagePull": "image can't be pulled",
            "InvalidImageName": "image can't be pulled",
            "ImagePullBackOff": "trying and failing to pull image",
        }.get(reason, reason)
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {text}')
