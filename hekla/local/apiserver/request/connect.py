"""exec, attach, port-forward and proxy: requests that are carried on to a node, a pod or what
stands behind a service.

The server asks who may (as for any request, and for `create` too where a WebSocket comes as a GET),
lets admission look with the operation CONNECT, and then only hands bytes on.  Reference:
local-cluster 8.10, 6.1.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

from hekla.api.trees import Json
from hekla.kube.http.client import TransportError
from hekla.kube.http.server import Response, Stream, Upgrade
from hekla.kube.http.upgrade import open_upgrade, splice
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.kubelet import Kubelets, container_of
from hekla.local.apiserver.request.proxy import Proxy
from hekla.local.apiserver.request.status import Refusal, bad_request, internal, not_found
from hekla.local.apiserver.storage.registry import Registry

if TYPE_CHECKING:
    from hekla.local.apiserver.admission.admission import Admission

KINDS = {
    "exec": "PodExecOptions",
    "attach": "PodAttachOptions",
    "portforward": "PodPortForwardOptions",
}
HANDED_ON = (
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "x-stream-protocol-version",
    "origin",
)
OVER = ("Succeeded", "Failed")


class Connections:
    """The CONNECT side of the API server."""

    def __init__(self, registry: Registry, authorizer: Authorizer, admission: Admission) -> None:
        self.kubelets: Kubelets | None = None
        self.registry = registry
        self.authorizer = authorizer
        self.admission = admission
        self.proxy = Proxy(self)

    async def connect(self, call: Call) -> Response | Stream | Upgrade:
        """exec, attach or portforward of a pod."""
        kubelets = self.kubelets
        if kubelets is None:
            raise Refusal(
                501,
                "this server was started without a certificate for kubelets",
                reason="NotImplemented",
                details={},
            )
        await asyncio.sleep(0)
        what = call.route.subresource
        self.check_create(call)
        pod = self.pod_of(call)
        spec = pod.get("spec") or {}
        container = "" if what == "portforward" else container_of(call, pod)
        await self.admit(call, options_of(call, what, container))
        node = spec.get("nodeName")
        if not node:
            raise bad_request(f"pod {call.route.name} does not have a host assigned")
        phase = (pod.get("status") or {}).get("phase")
        if what == "portforward" and phase in OVER:
            raise bad_request(
                f"unable to forward port because pod is not running. Current status={phase}"
            )
        host, port = kubelets.address(node, what)
        words = [
            "portForward" if what == "portforward" else what,
            call.route.namespace,
            call.route.name,
        ]
        if container:
            words.append(container)
        target = "/" + "/".join(quote(word, safe="") for word in words)
        if call.request.query:
            target += f"?{call.request.query}"
        return await self.carry(call, host, port, target)

    def check_create(self, call: Call) -> None:
        """A WebSocket can only be a GET, but running a command is no reading."""
        user, found = call.user, call.route
        if call.request.method == "GET" and not user.master:
            self.authorizer.check(
                user,
                Access(
                    "create",
                    found.kind.group,
                    found.kind.plural,
                    found.subresource,
                    found.namespace,
                    found.name,
                ),
            )

    @staticmethod
    def pod_of(call: Call) -> Json:
        resource = call.route.resource
        row = resource.collection.rows.get(call.route.key)
        if row is None:
            raise not_found(resource.kind, call.route.name)
        return row.tree()

    async def admit(self, call: Call, options: Json) -> None:
        """Lets admission see the options of the connection."""
        found = call.route
        attributes = Attributes(
            call,
            found.resource,
            "CONNECT",
            found.namespace,
            found.name,
            options,
            None,
            subresource=found.subresource,
        )
        await self.admission.call_webhooks(attributes)

    async def carry(self, call: Call, host: str, port: int, target: str) -> Response | Upgrade:
        """Opens the same request at the node and joins the two connections."""
        assert self.kubelets is not None
        request = call.request
        headers = {name: request.headers[name] for name in HANDED_ON if name in request.headers}
        try:
            opening = await open_upgrade(
                host, port, self.kubelets.tls, request.method, target, headers.items()
            )
        except (TransportError, OSError, TimeoutError) as error:
            raise internal(f"error dialing backend: {host}:{port}: {error}") from error
        if opening.status != 101:
            return refusal_of(
                opening.status,
                bytes(opening.body).decode("utf-8", "replace").strip(),
                opening.headers,
            )
        answer = {
            name.title(): value
            for name, value in opening.headers.items()
            if name.startswith(("sec-websocket", "x-stream"))
        }
        answer["Upgrade"] = opening.headers.get("upgrade", "")
        return Upgrade(lambda transport, rest: splice(transport, rest, opening), answer)


def refusal_of(status: int, text: str, headers: dict[str, str]) -> Response:
    """A node's refusal in the server's words."""
    reasons = {
        400: "BadRequest",
        403: "Forbidden",
        404: "NotFound",
        500: "InternalError",
        501: "NotImplemented",
    }
    response = Refusal(
        status, text or f"the node answered {status}", reason=reasons.get(status, ""), details={}
    ).response()
    accepted = headers.get("x-accepted-stream-protocol-versions")
    if accepted:
        response.headers = {
            **(response.headers or {}),
            "X-Accepted-Stream-Protocol-Versions": accepted,
        }
    return response


def options_of(call: Call, what: str, container: str) -> Json:
    """What admission is shown."""
    request = call.request
    tree: Json = {"kind": KINDS[what], "apiVersion": "v1"}
    if what == "portforward":
        ports = [
            int(text)
            for text in ",".join(request.options.get("ports", [])).split(",")
            if text.isdecimal()
        ]
        if ports:
            tree["ports"] = ports
        return tree
    for name in ("stdin", "stdout", "stderr", "tty"):
        if request.flag(name):
            tree[name] = True
    if container:
        tree["container"] = container
    if what == "exec":
        tree["command"] = request.options.get("command", [])
    return tree
