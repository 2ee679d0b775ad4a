"""Admission webhooks: which ones want to see a request, and the conversation with them (local-cluster 6.2 to 6.4)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from hekla.kube.http.client import TimedOut, TransportError
from hekla.local.apiserver.admission import Attributes
from hekla.local.apiserver.call import untyped
from hekla.local.apiserver.eviction import selects
from hekla.local.apiserver.hook import Hook, HookClients, Unreachable
from hekla.local.apiserver.kind import Json
from hekla.local.apiserver.objects import patch as patches
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.registry import Registry
from hekla.local.apiserver.status import Refusal, bad_request, internal
from hekla.local.apiserver.store import Event, decode, encode

log = logging.getLogger("hekla.apiserver")

GROUP = "admissionregistration.k8s.io"
Key = tuple[str, str, str, str, str]


class Response(msgspec.Struct):
    """The part of an AdmissionReview that a webhook answers with."""

    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: list[str] | None = None


class Review(msgspec.Struct):
    response: Response | None = None


class Chain:
    """The webhooks of one sort, read from their configurations and read again when one changes."""

    def __init__(self, registry: Registry, plural: str) -> None:
        self.registry = registry
        resource = registry.get(GROUP, "v1", plural)
        if resource is None:
            raise LookupError(f"this server does not serve {plural}")
        self.collection = resource.collection
        self.collection.listeners.add(self._changed)
        self._hooks: list[Hook] | None = None
        self._matching: dict[Key, tuple[Hook, ...]] = {}

    def _changed(self, events: list[Event]) -> None:
        self._hooks = None
        self._matching.clear()

    @property
    def hooks(self) -> list[Hook]:
        """In order of configuration name, then position."""
        if self._hooks is None:
            self._hooks = [
                Hook(key, tree) for key in self.collection.ordered() for tree in self.collection.rows[key].tree().get("webhooks") or []
            ]
        return self._hooks

    def wanted(self, attributes: Attributes) -> bool:
        return bool(self._by_rule(attributes)) and bool(self.of(attributes))

    def _by_rule(self, attributes: Attributes) -> tuple[Hook, ...]:
        kind = attributes.resource.kind
        key = (kind.group, kind.version, kind.plural, attributes.subresource, attributes.operation)
        found = self._matching.get(key)
        if found is None:
            if kind.group == GROUP or attributes.subresource == "server":
                found = ()
            else:
                found = tuple(hook for hook in self.hooks if any(hook.rule_matches(rule, kind, key) for rule in hook.rules))
            self._matching[key] = found
        return found

    def of(self, attributes: Attributes) -> list[Hook]:
        """The webhooks that want to see a request."""
        return [hook for hook in self._by_rule(attributes) if self._selected(hook, attributes)]

    def _selected(self, hook: Hook, attributes: Attributes) -> bool:
        if hook.namespace_selector:
            labels = self._namespace_labels(attributes)
            if labels is not None and not selects(hook.namespace_selector, labels):
                return False
        if hook.object_selector:
            trees = [tree for tree in (attributes.object, attributes.old) if tree is not None]
            if not any(selects(hook.object_selector, tree.get("metadata", {}).get("labels") or {}) for tree in trees):
                return False
        return not hook.conditions or hook.conditions_hold(attributes.object, attributes.old)

    def _namespace_labels(self, attributes: Attributes) -> Mapping[str, str] | None:
        """Of the object's namespace; of a namespace itself its own; None for what has none."""
        if attributes.resource.collection.name == "namespaces":
            tree = attributes.object or attributes.old or {}
            return tree.get("metadata", {}).get("labels") or {}
        if not attributes.namespace:
            return None
        row = self.registry["namespaces"].collection.newest(attributes.namespace)
        return dict(row.labels) if row is not None else {}


class Webhooks:
    """Both chains, and the calls."""

    def __init__(self, registry: Registry) -> None:
        self.mutating = Chain(registry, "mutatingwebhookconfigurations")
        self.validating = Chain(registry, "validatingwebhookconfigurations")
        self.clients = HookClients(registry)

    async def mutate(self, attributes: Attributes) -> None:
        """Asks one after the other; each sees what those before it changed."""
        earlier: list[Hook] = []
        again: list[Hook] = []
        for hook in self.mutating.of(attributes):
            changed = await self._mutate(hook, attributes)
            if changed:
                again.extend(other for other in earlier if other not in again)
            if hook.reinvoke:
                earlier.append(hook)
        for hook in again:
            await self._mutate(hook, attributes)

    async def _mutate(self, hook: Hook, attributes: Attributes) -> bool:
        response = await self._ask(hook, attributes)
        if response is None or response.patch is None:
            return False
        try:
            if response.patchType != "JSONPatch":
                raise Unreachable(f'invalid patch type: "{response.patchType or ""}"')
            try:
                operations = msgspec.json.decode(base64.b64decode(response.patch))
            except (binascii.Error, ValueError) as error:
                raise Unreachable(f"the patch cannot be read: {error}") from error
            if not operations:
                return False
            if attributes.object is None:
                raise Unreachable("there is no object to patch")
            # A copy, by way of bytes because that is quickest: a patch changes the tree that it is given, and may fail half way.
            typed = decode(encode(attributes.resource.typed(attributes.object)))
            try:
                patched = patches.apply_json(typed, operations)
                kind = attributes.resource.kind
                if kind.decode is not None and attributes.subresource not in ("binding", "eviction") and attributes.operation != "CONNECT":
                    patched = kind.decode(encode(patched), "application/json", "Ignore").tree
            except BadBody as error:
                raise Unreachable(f"the patch does not apply: {error}") from error
        except Unreachable as error:
            self._failed(hook, str(error))
            return False
        new = untyped(patched)
        changed = new != attributes.object
        attributes.object = new
        return changed

    async def validate(self, attributes: Attributes) -> None:
        """Asks all at once; the first refusal in order is the answer."""
        hooks = self.validating.of(attributes)
        if len(hooks) == 1:
            await self._ask(hooks[0], attributes)
            return
        results = await asyncio.gather(*(self._ask(hook, attributes) for hook in hooks), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _ask(self, hook: Hook, attributes: Attributes) -> Response | None:
        """One call.  None when it failed and the webhook does not mind; raises what the client is to see."""
        call = attributes.call
        if call.dry_run and hook.side_effects not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        uid = str(uuid.uuid4())
        try:
            response = await self._exchange(hook, attributes, uid)
        except Unreachable as error:
            self._failed(hook, str(error))
            return None
        for text in response.warnings or ():
            call.warn(text[:256])
        if not response.allowed:
            raise denied(hook.name, response.status or {})
        return response

    async def _exchange(self, hook: Hook, attributes: Attributes, uid: str) -> Response:
        client, path, url = self.clients.of(hook)
        body = review(attributes, uid, hook.version)
        try:
            answer = await client.request("POST", path, self.clients.HEADERS, body, timeout=hook.timeout)
        except TimedOut as error:
            raise Unreachable(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
        except (TransportError, OSError) as error:
            raise Unreachable(f'failed to call webhook: Post "{url}": {worded(error, client.target.host, client.target.port)}') from error
        if answer.status != 200:
            raise Unreachable('failed to call webhook: an error on the server ("unknown") has prevented the request from succeeding')
        try:
            found = msgspec.json.decode(answer.body, type=Review)
        except msgspec.DecodeError as error:
            raise Unreachable(f"received invalid webhook response: {error}") from error
        if found.response is None:
            raise Unreachable("received invalid webhook response: response is absent")
        if found.response.uid != uid:
            raise Unreachable(f'received invalid webhook response: expected response.uid="{uid}", got "{found.response.uid}"')
        return found.response

    def _failed(self, hook: Hook, why: str) -> None:
        if hook.ignores_failure:
            log.warning('webhook "%s" failed and is ignored: %s', hook.name, why)
            return
        raise internal(f'failed calling webhook "{hook.name}": {why}')


def worded(error: Exception, host: str, port: int) -> str:
    """A failure of the network in the words that users of Kubernetes know."""
    text = str(error)
    lower = text.lower()
    if "refused" in lower:
        return f"dial tcp {host}:{port}: connect: connection refused"
    if "self-signed" in lower or "self signed" in lower or "unable to get local issuer" in lower:
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if "hostname mismatch" in lower or "certificate verify failed" in lower:
        return f"tls: failed to verify certificate: x509: {text}"
    return text


def denied(name: str, status: Json) -> Refusal:
    """What the client sees of a refusal."""
    code = status.get("code") or 0
    message, reason = status.get("message") or "", status.get("reason") or ""
    text = f'admission webhook "{name}" denied the request'
    if message:
        text += f": {message}"
    elif reason:
        text += f": {reason}"
    else:
        text += " without explanation"
    return Refusal(code if code >= 400 else 400, text, reason=reason)


def review(attributes: Attributes, uid: str, version: str) -> bytes:
    """The body of an AdmissionReview request."""
    resource, call = attributes.resource, attributes.call
    kind = resource.kind
    sub = kind.subresources.get(attributes.subresource) if attributes.subresource else None
    kind_tree = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    if sub is not None and sub.kind:
        kind_tree = {"group": sub.group, "version": sub.version or "v1", "kind": sub.kind}
    resource_tree = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    request: Json = {
        "uid": uid, "kind": kind_tree, "resource": resource_tree, "requestKind": kind_tree, "requestResource": resource_tree,
        "operation": attributes.operation, "userInfo": call.user.tree(), "dryRun": call.dry_run, "options": call.options_tree(),
    }  # fmt: skip
    if attributes.subresource:
        request["subResource"] = request["requestSubResource"] = attributes.subresource
    if attributes.name:
        request["name"] = attributes.name
    if attributes.namespace:
        request["namespace"] = attributes.namespace
    elif kind.plural == "namespaces" and not kind.group:
        request["namespace"] = attributes.name
    of_kind = {"kind": kind_tree["kind"], "apiVersion": f"{kind_tree['group']}/{kind_tree['version']}".lstrip("/")}
    request["object"] = {**of_kind, **attributes.object} if attributes.object is not None else None
    request["oldObject"] = {**of_kind, **attributes.old} if attributes.old is not None else None
    if attributes.operation == "DELETE" and attributes.options is not None:
        request["options"] = attributes.options
    return encode({"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request})
