"""Hands requests for aggregated APIs to the servers behind them, and watches whether those answer.

The caller is authenticated and authorized here, as for any resource; the server behind is told who it
is by headers that it trusts because of the front proxy's certificate.
"""

from __future__ import annotations

import asyncio
import json
import logging
from urllib.parse import quote

from hekla.api.trees import Json
from hekla.kube.http.client import HttpClient, Target, TransportError
from hekla.kube.http.server import Peer, Request, Response, Stream, Upgrade
from hekla.local.apiserver.admission.hook import worded
from hekla.local.apiserver.admission.service_endpoints import NoEndpoint
from hekla.local.apiserver.aggregation.backend import PASSED, Backend, Condition, FrontProxy
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.impersonation import impersonated
from hekla.local.apiserver.auth.user import ADMIN, User
from hekla.local.apiserver.objects.conditions import set_condition
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.proxy import hand_on
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Event
from hekla.local.apiserver.write.writing import Writer

log = logging.getLogger("hekla.apiserver")

INTERVAL = 30.0
"""Seconds between two looks at a server that answers."""
RETRY = 2.0
"""Seconds until one that does not is looked at again."""
PATIENCE = 5.0
"""Seconds that an answer may take."""
LARGEST = 1 << 20
METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class Aggregator:
    """The aggregated APIs of this server."""

    def __init__(self, registry: Registry, writer: Writer, authorizer: Authorizer) -> None:
        self.registry = registry
        self.writer = writer
        self.authorizer = authorizer
        self.proxy: FrontProxy | None = None
        self.backends: dict[tuple[str, str], Backend] = {}
        """By group and version."""
        self.generation = 0
        """Grows with each change of what discovery shows of them."""
        self._resource = registry.resources["apiregistration.k8s.io", "v1", "apiservices"]
        self._watches: dict[str, asyncio.Task[None]] = {}
        """By the name of an APIService: the watch over its server."""

    def start(self) -> None:
        """Serve the stored APIServices, and follow changes."""
        collection = self._resource.collection
        collection.listeners.add(self.on_events)
        for key in collection.ordered():
            self._take(key)

    def stop(self) -> None:
        """Stop following."""
        self._resource.collection.listeners.discard(self.on_events)
        for task in self._watches.values():
            task.cancel()

    def on_events(self, events: list[Event]) -> None:
        """APIServices have come, changed or gone."""
        for event in events:
            self._take(event.row.name)

    def _take(self, name: str) -> None:
        row = self._resource.collection.rows.get(name)
        known = next((one for one in self.backends.values() if one.name == name), None)
        spec: Json = {} if row is None else row.tree().get("spec") or {}
        if known is not None and row is not None and (known.uid, known.spec) == (row.uid, spec):
            return
        if known is not None:
            del self.backends[known.group, known.version]
            self._watches.pop(name).cancel()
            self.generation += 1
        if row is not None and spec.get("service"):
            backend = Backend(row, self.proxy)
            self.backends[backend.group, backend.version] = backend
            self._watches[name] = asyncio.get_running_loop().create_task(self._watch(backend))
            self.generation += 1

    # --- requests ---------------------------------------------------------------------------------

    def of(self, path: str) -> Backend | None:
        """The backend that answers this path."""
        if not self.backends:
            return None
        parts = path.split("/", 4)
        return self.backends.get((parts[2], parts[3])) if len(parts) > 3 else None

    async def answer(
        self, request: Request, backend: Backend, user: User
    ) -> Response | Stream | Upgrade:
        """What the server behind says to this request."""
        await asyncio.sleep(0)
        user = impersonated(self.authorizer, request, user)
        self.authorizer.check(user, access_of(request))
        if not backend.condition.available:
            raise Refusal(503, "service unavailable", details={})
        try:
            destination = backend.destination(self.registry)
        except NoEndpoint as error:
            raise Refusal(503, "service unavailable", details={}) from error
        return await hand_on(
            request, destination, request.path, remote_headers(user), without="x-remote-"
        )

    # --- availability -----------------------------------------------------------------------------

    async def _watch(self, backend: Backend) -> None:
        while True:
            found = await self._check(backend)
            if found != backend.condition:
                backend.condition = found
                self.generation += 1
                await self._tell(backend)
            await asyncio.sleep(INTERVAL if found.available else RETRY)

    async def _check(self, backend: Backend) -> Condition:
        """Whether the server behind answers its discovery."""
        try:
            to = backend.destination(self.registry)
        except NoEndpoint as error:
            return Condition(False, error.reason, str(error))
        tls, url = to.tls, f"https://{to.host}:{to.port}{backend.path}"
        target = Target(
            to.host, to.port, tls=None if tls is None else lambda: tls, server_name=to.server_name
        )
        client = HttpClient(target, pool=1)
        headers = "".join(f"{name}: {value}\r\n" for name, value in remote_headers(ADMIN))
        try:
            answer = await client.request(
                "GET", backend.path, headers.encode("latin-1"), b"", timeout=PATIENCE
            )
            if answer.status != 200:
                raise ValueError(f"bad status from {url}: {answer.status}")
            if len(answer.body) > LARGEST:
                raise ValueError(f"the answer of {url} is larger than {LARGEST} bytes")
            resources = json.loads(answer.body)["resources"]
            backend.resources = [dict(one) for one in resources]
        except (TransportError, OSError) as error:
            return _failed(url, f'Get "{url}": {worded(error, to.host, to.port)}')
        except (ValueError, TypeError, KeyError) as error:
            return _failed(url, str(error))
        finally:
            await client.close()
        return PASSED

    async def _tell(self, backend: Backend) -> None:
        """Write the condition into the APIService."""
        available, reason, message = backend.condition

        def told(tree: Json) -> Json:
            status = tree.setdefault("status", {})
            set_condition(status, "Available", "True" if available else "False", reason, message)
            return tree

        request = Request("PUT", "/apiservices", "", {}, b"", Peer())
        call = Call(request, Route(self._resource, "", backend.name, ""), ADMIN, "update")
        try:
            await self.writer.change(
                call,
                self._resource,
                backend.name,
                told,
                retry=True,
                subresource="server",
                admit=False,
            )
        except Refusal as refusal:
            log.info("the condition of APIService %s: %s", backend.name, refusal)


def _failed(url: str, why: str) -> Condition:
    return Condition(
        False, "FailedDiscoveryCheck", f"failing or missing response from {url}: {why}"
    )


def remote_headers(user: User) -> list[tuple[str, str]]:
    """Who the caller is, for the server behind."""
    headers = [("X-Remote-User", user.name)]
    if user.uid:
        headers.append(("X-Remote-Uid", user.uid))
    headers += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        headers += [(f"X-Remote-Extra-{quote(key, safe='')}", value) for value in values]
    return headers


def access_of(request: Request) -> Access:
    """What a request for an aggregated API needs permission for: a resource below its version, else
    the path."""
    parts = request.path.strip("/").split("/")
    method = request.method
    group, rest = parts[1], parts[3:]
    if not rest:
        return Access("get" if method == "HEAD" else method.lower(), path=request.path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    if method in ("GET", "HEAD"):
        verb = "get" if name else "watch" if request.flag("watch") else "list"
    elif method == "DELETE":
        verb = "delete" if name else "deletecollection"
    else:
        verb = METHODS.get(method, method.lower())
    return Access(verb, group, rest[0], rest[2] if len(rest) > 2 else "", namespace, name)
