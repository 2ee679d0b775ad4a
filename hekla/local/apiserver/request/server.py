"""The request path: authentication, authorization, routing, and the module that answers."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hekla.kube.http.server import Request, Response, Server, Stream, Upgrade
from hekla.local.apiserver.admission.addresses import Addresses
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.certificates import Certificates
from hekla.local.apiserver.admission.limits import Limits
from hekla.local.apiserver.admission.noderestriction import NodeRestriction
from hekla.local.apiserver.admission.plugins import Plugins
from hekla.local.apiserver.admission.podsecurity import PodSecurity
from hekla.local.apiserver.admission.policies.policies import Policies
from hekla.local.apiserver.admission.quotas import Quotas
from hekla.local.apiserver.admission.webhooks import Webhooks
from hekla.local.apiserver.aggregation.aggregator import Aggregator
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authentication import Authenticator
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.bootstrap import Bootstrap
from hekla.local.apiserver.auth.escalation import Escalation
from hekla.local.apiserver.auth.impersonation import impersonated, impersonates
from hekla.local.apiserver.auth.reviews import Reviews
from hekla.local.apiserver.auth.tokens import Tokens
from hekla.local.apiserver.auth.user import NOBODY, User
from hekla.local.apiserver.discovery.apiservices import ApiServices
from hekla.local.apiserver.discovery.definitions import Definitions
from hekla.local.apiserver.discovery.discovery import Discovery
from hekla.local.apiserver.discovery.schemas import Schemas
from hekla.local.apiserver.request import admission_metrics as verdicts
from hekla.local.apiserver.request.audit import Audit
from hekla.local.apiserver.request.call import Call, decode_body, shortened, warning_header
from hekla.local.apiserver.request.connect import Connections
from hekla.local.apiserver.request.eager import run_eagerly
from hekla.local.apiserver.request.encoding import encode_response
from hekla.local.apiserver.request.forms import negotiate
from hekla.local.apiserver.request.health import Health
from hekla.local.apiserver.request.kubelet import Kubelets
from hekla.local.apiserver.request.metrics import Metrics
from hekla.local.apiserver.request.podaddresses import PodAddresses
from hekla.local.apiserver.request.reading import get, list_objects
from hekla.local.apiserver.request.route import Route, Unserved, route
from hekla.local.apiserver.request.status import (
    NOSNIFF,
    Refusal,
    internal,
    method_not_allowed,
    no_such_resource,
)
from hekla.local.apiserver.request.subresources import READ_SCALE, Subresources
from hekla.local.apiserver.storage.collection import TooLarge
from hekla.local.apiserver.storage.event_expiry import EventExpiry
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.store import Store
from hekla.local.apiserver.watch.watch import end_watches, watch
from hekla.local.apiserver.write.binding import bind
from hekla.local.apiserver.write.deletion import Deleter
from hekla.local.apiserver.write.eviction import Evictions
from hekla.local.apiserver.write.patching import patch
from hekla.local.apiserver.write.writing import Writer

log = logging.getLogger("hekla.apiserver")

Answer = Response | Stream | Upgrade
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class ApiServer:
    """All parts of the server, and the dispatch of requests to them."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        admission: Admission,
        tokens: Tokens,
        authenticator: Authenticator,
    ) -> None:
        self.store = store
        self.registry = registry
        self.admission = admission
        self.authenticator = authenticator
        self.authorizer = Authorizer(registry)
        self.writer = Writer(store, registry, admission)
        self.deleter = Deleter(self.writer)
        self.subresources = Subresources(self.writer)
        self.evictions = Evictions(self.writer, self.deleter)
        self.aggregator = Aggregator(registry, self.writer, self.authorizer)
        self.discovery = Discovery(registry, self.aggregator)
        self.schemas = Schemas(registry)
        self.reviews = Reviews(registry, authenticator, self.authorizer)
        self.tokens = tokens
        self.health = Health(store)
        self.metrics = Metrics(store, registry)
        self.kubelets: Kubelets | None = None
        self.connections = Connections(registry, self.authorizer, admission)
        self.bootstrap = Bootstrap(self.writer)
        self.webhooks = admission.webhooks = Webhooks(registry, self.authorizer)
        admission.policies = Policies(registry, self.writer, self.authorizer)
        self.metrics.more = partial(verdicts.lines_of, self.webhooks, admission.policies)
        addresses = Addresses(registry)
        for operation in ("CREATE", "UPDATE"):
            admission.plugins["services", operation] = [addresses.admit]
        Plugins(registry, Limits(registry)).join(admission)
        Escalation(self.authorizer).join(admission)
        Certificates(self.authorizer).join(admission)
        PodAddresses(registry).join(admission)
        admission.nodes = NodeRestriction(registry, self.authorizer).admit
        tokens.restrict_node = admission.restrict_node
        admission.plugins["secrets", "CREATE"] = [tokens.fill_secret]
        self.events = EventExpiry(registry["events"].collection)
        self.definitions = Definitions(registry, self.writer, self.deleter)
        self.api_services = ApiServices(registry, self.definitions, self.deleter)
        self.quotas = admission.quotas = Quotas(store, registry, self.writer)
        admission.pod_security = PodSecurity(registry)
        store.on_collection = self.quotas.follow
        self.ready = False
        self.audit: Audit | None = None
        self._special: dict[tuple[str, str, str], Callable[[Call], Awaitable[Answer]]] = {
            ("pods", "binding", "POST"): lambda call: bind(
                self.writer.backend, call, call.route.name
            ),
            ("pods", "eviction", "POST"): self.evictions.evict,
            ("pods", "log", "GET"): self._log,
            ("serviceaccounts", "token", "POST"): self.tokens.request,
        }
        prefix = uuid.uuid4().hex
        self._audit = f"{prefix[:8]}-{prefix[8:12]}-4{prefix[13:16]}-a{prefix[17:20]}-"
        self._audits = 0

    async def start(self) -> None:
        """Serve the stored custom kinds, and create the objects that every cluster has."""
        self.definitions.start()
        self.admission.policies.start()
        self.quotas.start()
        self.events.start()
        await self.bootstrap.run()
        await self.api_services.start()
        self.aggregator.start()

    def stop(self) -> None:
        """End all watches, so that clients reconnect to the next server at once."""
        self.api_services.stop()
        self.aggregator.stop()
        self.admission.policies.stop()
        self.definitions.stop()
        self.quotas.stop()
        self.events.stop()
        for collection in self.store.collections.values():
            end_watches(self.store, collection)

    # --- the door ---------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer a request; without a task if it need not wait."""
        try:
            return run_eagerly(self._answer(request), self.store.loop)
        except Exception as error:  # whatever went wrong, its client gets an answer
            return self._failure(request, error)

    async def _answer(self, request: Request) -> Answer:
        started = time.perf_counter()
        answer: Answer
        verb, found, user = request.method, None, None
        try:
            user = self.authenticator.user(request)
            found = route(self.registry, request.path)
            if isinstance(found, Route):
                verb = verb_of(request, found)
                answer = await self._resource(request, found, user, verb)
            else:
                answer = await self._other(request, found, user)
        except Exception as error:  # as above
            answer = self._failure(request, error)
        self._audits += 1
        number = f"{self._audit}{self._audits:012x}"
        extra = {"Audit-Id": number, "Cache-Control": "no-cache, private"}
        if isinstance(found, Route) and found.resource.kind.warning and reached(found, answer):
            warn(answer, found.resource.kind.warning)
        if isinstance(answer, Response):
            answer.headers = {**extra, **answer.headers} if answer.headers else extra
            self.metrics.request(
                verb,
                found if isinstance(found, Route) else None,
                answer.status,
                time.perf_counter() - started,
            )
            if answer.content_type == "application/json":
                encode_response(request, answer)
        if self.audit is not None:
            where = found if isinstance(found, Route) else None
            self.audit.record(
                request, where, user, answer, number, time.time() - time.perf_counter() + started
            )
        return answer

    def _failure(self, request: Request, error: Exception) -> Response:
        if isinstance(error, Refusal):
            return error.response()
        if isinstance(error, TooLarge):
            return Refusal(413, f"Request entity too large: {error}").response()
        if isinstance(error, RecursionError):
            return Refusal(400, "the body is nested too deeply").response()
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return internal(f"{type(error).__name__}: {error}").response()

    # --- resources --------------------------------------------------------------------------------

    async def _resource(self, request: Request, found: Route, user: User, verb: str) -> Answer:
        kind = found.kind
        if not user.master or impersonates(request.headers):
            user = impersonated(self.authorizer, request, user)
            self.authorizer.check(user, access_of(found, verb, request, node=user.node is not None))
        if verb == "":
            raise method_not_allowed()
        if found.subresource:
            return await self._subresource(request, found, user, verb)
        if verb not in kind.verbs:
            raise method_not_allowed()
        match verb:
            case "get":
                return await get(self.store, request, found)
            case "list":
                return await list_objects(self.store, request, found)
            case "watch":
                return watch(self.store, request, found)
        call = Call(request, found, user, verb)
        try:
            return await self._write(call, found, verb)
        except Refusal as refusal:
            return warned(call, refusal)

    async def _write(self, call: Call, found: Route, verb: str) -> Answer:
        kind = found.kind
        check_accept(call.request, found)
        match verb:
            case "create":
                if found.name:
                    raise method_not_allowed()
                review = self.reviews.handlers.get((kind.group, kind.plural))
                if review is not None:
                    return await review(call)
                if kind.plural == "bindings" and not kind.group:
                    return await bind(self.writer.backend, call, "")
                return await self.writer.create(call)
            case "update":
                return await self.writer.update(call)
            case "patch":
                return await patch(self.writer, self.subresources, call)
            case "delete":
                return await self.deleter.delete(call)
            case "deletecollection":
                return await self.deleter.delete_collection(call)
        raise method_not_allowed()

    async def _subresource(self, request: Request, found: Route, user: User, verb: str) -> Answer:
        sub = found.kind.subresources.get(found.subresource)
        if sub is None:
            raise no_such_resource()
        if verb not in sub.verbs:
            raise method_not_allowed()
        call = Call(request, found, user, verb)
        if verb in ("update", "patch"):
            check_accept(request, found)
        special = self._special.get(
            (found.resource.collection.name, found.subresource, request.method)
        )
        if special is not None:
            return await special(call)
        if found.subresource == "scale":
            if verb == "get":
                return await self.subresources.get_scale(call)
            if verb == "patch":
                return await patch(self.writer, self.subresources, call)
            return await self.subresources.put_scale(call, decode_body(call, READ_SCALE))
        if found.subresource in ("exec", "attach", "portforward"):
            return await self.connections.connect(call)
        if found.subresource == "proxy":
            return await self.connections.proxy.answer(call)
        if verb == "get":
            return await get(self.store, request, found)
        try:
            match verb:
                case "update":
                    return await self.writer.update(call)
                case "patch":
                    return await patch(self.writer, self.subresources, call)
        except Refusal as refusal:
            return warned(call, refusal)
        raise method_not_allowed()

    async def _log(self, call: Call) -> Answer:
        if self.kubelets is None:
            raise Refusal(
                501,
                "this server was started without a certificate for kubelets",
                reason="NotImplemented",
                details={},
            )
        return await self.kubelets.log(call)

    # --- everything else --------------------------------------------------------------------------

    async def _other(self, request: Request, found: Unserved | None, user: User) -> Answer:
        path = request.path.rstrip("/") or "/"
        backend = self.aggregator.of(path)
        if backend is not None:
            return await self.aggregator.answer(request, backend, user)
        verb = request.method.lower()
        if user is NOBODY or not user.master or impersonates(request.headers):
            user = impersonated(self.authorizer, request, user)
            self.authorizer.check(user, Access("get" if verb == "head" else verb, path=path))
        if isinstance(found, Unserved):
            raise no_such_resource()
        if request.method != "GET":
            raise method_not_allowed()
        if path == "/":
            return self.health.index()
        if path.split("/")[1] in ("healthz", "livez", "readyz"):
            return self.health.check(request, path, self.ready)
        if path == "/version":
            return self.health.version()
        if path == "/metrics":
            return self.metrics.page()
        if path.startswith("/openapi/"):
            return self.schemas.answer(request, path)
        if path == "/openid/v1/jwks":
            return Response(200, pretty_bytes(self.tokens.keys()), "application/jwk-set+json")
        if path == "/.well-known/openid-configuration":
            return Response(200, pretty_bytes(self.health.openid()))
        answer = self.discovery.answer(request)
        if answer is not None:
            return answer
        parts = path.split("/", 3)
        if parts[1] == "api" or (
            parts[1] == "apis" and len(parts) > 2 and parts[2] in self.registry.built_in
        ):
            raise no_such_resource()
        return Response(404, b"404 page not found\n", "text/plain; charset=utf-8", NOSNIFF)


def verb_of(request: Request, found: Route) -> str:
    """The Kubernetes verb of a request; empty for a method that the path does not support."""
    method = request.method
    if method == "GET":
        if found.watch or (not found.name and request.query and request.flag("watch")):
            return "watch"
        if found.subresource in ("exec", "attach", "portforward"):
            return "get"
        return "get" if found.name else "list"
    if method == "DELETE":
        return "delete" if found.name else "deletecollection"
    if method in ("PUT", "PATCH") and not found.name:
        return ""
    if found.subresource == "proxy" and method in ("HEAD", "OPTIONS"):
        return "get"
    return VERBS.get(method, "")


def reached(found: Route, answer: Answer) -> bool:
    """Whether a request reached its kind, and was not refused for its path, method or Accept
    header."""
    if found.subresource and found.subresource not in found.kind.subresources:
        return False
    return not isinstance(answer, Response) or answer.status not in (405, 406)


def check_accept(request: Request, found: Route) -> None:
    """Refuse a write whose client accepts none of the response types."""
    accept = request.headers.get("accept")
    if accept:
        negotiate(accept, request.option("includeObject"), found)


def warned(call: Call, refusal: Refusal) -> Response:
    """The response to a refusal, with the warnings that the body had caused before it.

    The refusal is not raised again: its traceback would refer to this frame, which refers to the
    refusal, and the body would stay in memory until the next garbage collection.
    """
    answer = refusal.response()
    for text in reversed(shortened(list(call.warnings))):
        warn(answer, text)
    return answer


def warn(answer: Answer, text: str) -> None:
    """Add a Warning header to any answer."""
    headers = dict(answer.headers or {})
    more = headers.get("Warning")
    headers["Warning"] = f"{warning_header(text)}\n{more}" if more else warning_header(text)
    answer.headers = headers


def access_of(found: Route, verb: str, request: Request, *, node: bool = False) -> Access:
    """What a request needs permission for; for a node's request also which node a field selector
    names."""
    kind = found.kind
    namespace, name = found.namespace, found.name
    if verb in ("list", "watch") and not name:
        name = selected_name(request.option("fieldSelector"))
    if kind.plural == "namespaces" and not kind.group:
        namespace = found.name
    about = (
        selected(request.option("fieldSelector"), "spec.nodeName")
        if node and not found.name
        else ""
    )
    return Access(
        verb or "post", kind.group, kind.plural, found.subresource, namespace, name, node=about
    )


def selected_name(fields: str) -> str:
    """The only name that a field selector allows: whoever may get the object of that name may list
    and watch with this selector."""
    name = selected(fields, "metadata.name")
    return name if name not in (".", "..") and not {"/", "%"} & set(name) else ""


def selected(fields: str, wanted: str) -> str:
    """The only value that a field selector allows for a field; empty if there is none."""
    for term in fields.split(",") if fields else ():
        field, equals, value = term.partition("=")
        if equals and field.strip() == wanted:
            return value.removeprefix("=").strip()
    return ""


def pretty_bytes(tree: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(tree)


class Listener(Server):
    """One listener of the server.  Connections that are refused before there is a request get a
    Status, too."""

    def refusal(self, status: int, text: str) -> Response:
        return Refusal(status, text, details=None if status == 413 else {}).response()

    def failure(self, request: Request, error: BaseException) -> Response:
        log.error("%s %s failed", request.method, request.path, exc_info=error)
        return internal(f"{type(error).__name__}: {error}").response()
