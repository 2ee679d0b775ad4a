"""Admission webhooks: which ones want to see a request, and the conversation with them
(local-cluster 6.2 to 6.4)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from hekla.api.trees import Json
from hekla.kube.http.client import TimedOut, TransportError
from hekla.local.apiserver.admission.attributes import Attributes, in_task
from hekla.local.apiserver.admission.hook import Hook, HookClients, Unreachable, worded
from hekla.local.apiserver.admission.in_process import Reviewer
from hekla.local.apiserver.admission.matching import (
    ConditionFailed,
    Key,
    key_of,
    matching_resource,
    object_in,
    request_tree,
    scope_of,
    selected,
)
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging import patch as patches
from hekla.local.apiserver.request.call import untyped
from hekla.local.apiserver.request.metrics import Histogram
from hekla.local.apiserver.request.status import Refusal, bad_request, forbidden, internal
from hekla.local.apiserver.storage.registry import Registry, Resource
from hekla.local.apiserver.storage.rows import Event, decode, encode

log = logging.getLogger("hekla.apiserver")

GROUP = "admissionregistration.k8s.io"


class Response(msgspec.Struct):
    """The part of an AdmissionReview that a webhook answers with."""

    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: str | None = None
    patchType: str | None = None
    warnings: list[str] | None = None
    auditAnnotations: dict[str, str] | None = None


class Review(msgspec.Struct):
    response: Response | None = None


class InProcessResponse(Response):
    """The response of an in-process webhook, whose patch needs no decoding."""

    operations: list[Any] | None = None


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
        self._matching: dict[Key, tuple[tuple[Hook, Resource], ...]] = {}
        self._generation = -1
        self.kind = "admit" if plural.startswith("mutating") else "validating"

    def _changed(self, events: list[Event]) -> None:
        self._hooks = None
        self._matching.clear()

    @property
    def hooks(self) -> list[Hook]:
        """In order of configuration name, then position."""
        if self._hooks is None:
            self._hooks = [
                Hook(key, tree, place, self.kind)
                for key in self.collection.ordered()
                for place, tree in enumerate(self.collection.rows[key].tree().get("webhooks") or [])
            ]
        return self._hooks

    def wanted(self, attributes: Attributes) -> bool:
        return bool(self.by_rule(attributes)) and bool(self._chosen(attributes))

    def _chosen(self, attributes: Attributes) -> list[tuple[Hook, Resource]]:
        """By rules and selectors."""
        return [pair for pair in self.by_rule(attributes) if self._selected(pair[0], attributes)]

    def by_rule(self, attributes: Attributes) -> tuple[tuple[Hook, Resource], ...]:
        """By the rules alone, each with the group and version in which the webhook wants to see the
        object."""
        if self._generation != self.registry.generation:
            self._generation = self.registry.generation
            self._matching.clear()
        resource = attributes.resource
        key = key_of(resource.kind, attributes)
        found = self._matching.get(key)
        if found is None:
            if key[0] == GROUP or attributes.subresource == "server":
                found = ()
            else:
                seen = [
                    (
                        hook,
                        matching_resource(
                            hook.rules, hook.match_policy, self.registry, resource, key
                        ),
                    )
                    for hook in self.hooks
                ]
                found = tuple((hook, matched) for hook, matched in seen if matched is not None)
            self._matching[key] = found
        return found

    def _selected(self, hook: Hook, attributes: Attributes) -> bool:
        namespace = attributes.namespace
        if (
            not namespace
            or hook.object_selector
            or not hook.namespace_selector
            or attributes.resource.collection.name == "namespaces"
        ):
            return selected(
                hook.namespace_selector, hook.object_selector, attributes, self.registry
            )
        # Twice for each webhook and write, of a few namespaces that hardly ever change.
        row = self.registry["namespaces"].collection.newest(namespace)
        known = hook.namespaces.get(namespace)
        if known is not None and known[0] is row:
            return known[1]
        answer = selected(hook.namespace_selector, None, attributes, self.registry)
        hook.namespaces[namespace] = row, answer
        return answer

    def of(self, attributes: Attributes, authorizer: Authorizer) -> list[tuple[Hook, Resource]]:
        """The webhooks to call, by rules, selectors and match conditions.  Raises Refusal for a
        condition that cannot be evaluated."""
        return [
            pair
            for pair in self._chosen(attributes)
            if self._conditions_hold(*pair, attributes, authorizer)
        ]

    def independent_of_object(self, attributes: Attributes) -> list[tuple[Hook, Resource]] | None:
        """The webhooks that are called for an object whatever it holds; None where its labels or a
        match condition decide."""
        if any(
            hook.object_selector or hook.conditions.entries or hook.unusable
            for hook, _ in self.by_rule(attributes)
        ):
            return None
        return self._chosen(attributes)

    def _conditions_hold(
        self, hook: Hook, matched: Resource, attributes: Attributes, authorizer: Authorizer
    ) -> bool:
        if not hook.conditions.entries and not hook.unusable:
            return True
        cached = attributes.cached
        if (
            cached is None
            or matched is not attributes.resource
            or not hook.conditions.reads_spec_and_annotation_names
        ):
            return self._evaluate(hook, matched, attributes, authorizer)
        annotations = (
            attributes.object["metadata"].get("annotations")
            if attributes.object is not None
            else None
        )
        key = hook, None if annotations is None else tuple(annotations)
        known = cached.conditions.get(key)
        if known is None:
            known = cached.conditions[key] = self._evaluate(hook, matched, attributes, authorizer)
        return known

    def _evaluate(
        self, hook: Hook, matched: Resource, attributes: Attributes, authorizer: Authorizer
    ) -> bool:
        try:
            if hook.unusable:
                raise ConditionFailed(hook.unusable)
            return hook.conditions.hold(scope_of(attributes, matched, self.registry, authorizer))
        except ConditionFailed as error:
            if hook.ignores_failure:
                return False
            raise forbidden(attributes.resource.kind, attributes.name, str(error)) from error


class Webhooks:
    """Both chains, and the calls."""

    def __init__(self, registry: Registry, authorizer: Authorizer) -> None:
        self.registry = registry
        self.authorizer = authorizer
        self.mutating = Chain(registry, "mutatingwebhookconfigurations")
        self.validating = Chain(registry, "validatingwebhookconfigurations")
        self.clients = HookClients(registry)
        self.in_process: Mapping[str, Reviewer] = {}
        """The functions that answer for in-process webhooks, by URL."""
        self.calls: dict[tuple[str, str, str, int, bool], Histogram] = {}
        """(webhook, type, operation, code of its answer, refused) -> how long it took."""
        self.rejections: dict[tuple[str, str, str, str, int], int] = {}
        """(webhook, type, operation, sort of error, code that the client saw) -> how often."""
        self.failed_open: dict[tuple[str, str], int] = {}

    async def mutate(self, attributes: Attributes, *, again: bool = False) -> bool:
        """Asks one after the other; each sees what those before it changed.  Whether any changed
        something.

        `again` asks only those that want to see what was changed after them.
        """
        earlier: list[tuple[Hook, Resource]] = []
        repeat: list[tuple[Hook, Resource]] = []
        changed_any = False
        for hook, matched in self.mutating.of(attributes, self.authorizer):
            if again and not hook.reinvoke:
                continue
            changed = await self._mutate(hook, matched, attributes, 1 if again else 0)
            changed_any = changed_any or changed
            if changed:
                repeat.extend(other for other in earlier if other not in repeat)
            if hook.reinvoke:
                earlier.append((hook, matched))
        for hook, matched in repeat:
            await self._mutate(hook, matched, attributes, 1)
        return changed_any

    async def _mutate(
        self, hook: Hook, matched: Resource, attributes: Attributes, round: int
    ) -> bool:
        response = await self._ask(hook, matched, attributes)
        mutated = False
        try:
            mutated = await self._patched(hook, matched, attributes, response)
        finally:
            name = f"mutation.webhook.admission.k8s.io/round_{round}_index_{hook.place}"
            note = {"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated}
            attributes.call.annotate(name, encode(note).decode())
        return mutated

    async def _patched(
        self, hook: Hook, matched: Resource, attributes: Attributes, response: Response | None
    ) -> bool:
        if response is None:
            return False
        try:
            operations = operations_of(response)
            if not operations:
                return False
            if attributes.object is None:
                raise Unreachable("there is no object to patch")
            shaped = (
                attributes.subresource not in ("binding", "eviction")
                and attributes.operation != "CONNECT"
            )
            # A copy, by way of bytes because that is quickest: a patch changes the tree that it is
            # given, and may fail half way.
            typed = decode(encode(object_in(matched, attributes, attributes.object)))
            try:
                patched = patches.apply_json(typed, operations)
                if shaped:
                    patched = read_patched(matched.kind, patched)
            except BadBody as error:
                raise Unreachable(f"the patch does not apply: {error}") from error
        except Unreachable as error:
            self._failed(hook, str(error))
            return False
        new = untyped(patched)
        own = attributes.resource.kind
        if matched.kind is not own and matched.kind.conversion is not None:
            new = await matched.kind.conversion.across(new, own.api_version)
        elif matched.kind is not own:
            new = matched.kind.keep(new) if matched.kind.keep is not None else new
            new = own.present(new) if own.present is not None else new
        if matched.kind is not own and shaped:
            own.strategy.default(new)  # which drops what only the other version knows
        changed = new != attributes.object
        attributes.object = new
        return changed

    async def validate(self, attributes: Attributes) -> None:
        """Asks all at once; the first refusal in order is the answer."""
        hooks = self.validating.of(attributes, self.authorizer)
        if len(hooks) <= 1:
            for hook, matched in hooks:
                await self._ask(hook, matched, attributes)
            return
        results = await asyncio.gather(
            *(self._ask(hook, matched, attributes) for hook, matched in hooks),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _ask(self, hook: Hook, matched: Resource, attributes: Attributes) -> Response | None:
        """One call.  None when it failed and the webhook does not mind; raises what the client is
        to see."""
        call = attributes.call
        if call.dry_run and hook.side_effects not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        started = time.perf_counter()
        kind = hook.kind
        reviewer = self.reviewer(hook)
        try:
            if reviewer is not None:
                response = await self._review_in_process(reviewer, matched, attributes)
            else:
                response = await self._exchange(hook, matched, attributes, str(uuid.uuid4()))
        except Unreachable as error:
            self._count(hook, attributes, 0 if hook.ignores_failure else 500, True, started)
            if hook.ignores_failure:
                self.failed_open[hook.name, kind] = self.failed_open.get((hook.name, kind), 0) + 1
            else:
                rejection = (hook.name, kind, attributes.operation, "calling_webhook_error", 0)
                self.rejections[rejection] = self.rejections.get(rejection, 0) + 1
            self._failed(hook, str(error))
            return None
        code = 200 if response.allowed else (response.status or {}).get("code") or 400
        self._count(hook, attributes, code, not response.allowed, started)
        if not response.allowed:
            rejection = (hook.name, kind, attributes.operation, "no_error", code)
            self.rejections[rejection] = self.rejections.get(rejection, 0) + 1
        for name, value in (response.auditAnnotations or {}).items():
            call.annotate(f"{hook.name}/{name}", value)
        for text in response.warnings or ():
            call.warn(text[:256])
        if not response.allowed:
            raise denied(hook.name, response.status or {})
        return response

    def reviewer(self, hook: Hook) -> Reviewer | None:
        """The function that answers for an in-process webhook; None for all others."""
        return self.in_process.get(hook.client_config.get("url") or "") if self.in_process else None

    def count_skipped(self, hook: Hook, attributes: Attributes) -> None:
        """Count a webhook that was not called because its answer is cached."""
        self._count(hook, attributes, 200, False, time.perf_counter())

    def _count(
        self, hook: Hook, attributes: Attributes, code: int, rejected: bool, started: float
    ) -> None:
        key = (hook.name, hook.kind, attributes.operation, code, rejected)
        durations = self.calls.get(key)
        if durations is None:
            durations = self.calls[key] = Histogram()
        durations.observe(time.perf_counter() - started)

    async def _review_in_process(
        self, reviewer: Reviewer, matched: Resource, attributes: Attributes
    ) -> Response:
        """Call an in-process webhook with the same input that an HTTP webhook would get."""
        cached = attributes.cached
        allowed_by = (
            cached.allowed_by if cached is not None and matched is attributes.resource else None
        )
        if allowed_by is not None:
            if not reviewer.settled(attributes.object or {}):
                allowed_by = None
            elif reviewer in allowed_by:
                return InProcessResponse(allowed=True)
        await convert_views(matched, attributes)
        kind = matched.kind
        try:
            allowed, message, operations = reviewer(
                (kind.group, kind.version, kind.plural),
                attributes.operation,
                object_in(matched, attributes, attributes.object),
                object_in(matched, attributes, attributes.old),
                attributes.name,
                attributes.namespace,
            )
        except Exception as error:  # whatever broke in it, the webhook's failure policy says what becomes of the request
            log.exception("the review of %s failed", kind.kind)
            raise Unreachable(f"failed to call webhook: {type(error).__name__}: {error}") from error
        if allowed_by is not None and allowed and not operations:
            allowed_by.add(reviewer)
        return InProcessResponse(
            allowed=allowed,
            status=None if allowed else {"message": message, "metadata": {}},
            operations=operations,
        )

    async def _exchange(
        self, hook: Hook, matched: Resource, attributes: Attributes, uid: str
    ) -> Response:
        client, path, url = self.clients.of(hook)
        await in_task()
        await convert_views(matched, attributes)
        body = review(attributes, matched, uid, hook.version)
        try:
            answer = await client.request(
                "POST", path, self.clients.HEADERS, body, timeout=hook.timeout
            )
        except TimedOut as error:
            raise Unreachable(
                f'failed to call webhook: Post "{url}": context deadline exceeded'
            ) from error
        except (TransportError, OSError) as error:
            raise Unreachable(
                f'failed to call webhook: Post "{url}": {worded(error, client.target.host, client.target.port)}'
            ) from error
        if answer.status != 200:
            raise Unreachable(
                'failed to call webhook: an error on the server ("unknown") has prevented the request from succeeding'
            )
        try:
            found = msgspec.json.decode(answer.body, type=Review)
        except msgspec.DecodeError as error:
            raise Unreachable(f"received invalid webhook response: {error}") from error
        if found.response is None:
            raise Unreachable("received invalid webhook response: response is absent")
        if found.response.uid != uid:
            raise Unreachable(
                f'received invalid webhook response: expected response.uid="{uid}", got "{found.response.uid}"'
            )
        return found.response

    def _failed(self, hook: Hook, why: str) -> None:
        if hook.ignores_failure:
            log.warning('webhook "%s" failed and is ignored: %s', hook.name, why)
            return
        raise internal(f'failed calling webhook "{hook.name}": {why}')


async def convert_views(matched: Resource, attributes: Attributes) -> None:
    """Has the objects converted to the version in which the webhook wants to see them, where that
    takes another webhook."""
    own = attributes.resource.kind
    if matched.kind is own or own.conversion is None:
        return
    for tree in (attributes.object, attributes.old):
        if tree is not None and not any(of is tree for of, _, _ in attributes.views):
            attributes.views.append(
                (
                    tree,
                    matched.kind.api_version,
                    await own.conversion.across(tree, matched.kind.api_version),
                )
            )


def operations_of(response: Response) -> list[Any] | None:
    """The patch of an answer.  Raises Unreachable where there is one that cannot be read."""
    if isinstance(response, InProcessResponse):
        return response.operations
    if response.patch is None:
        return None
    if response.patchType != "JSONPatch":
        raise Unreachable(f'invalid patch type: "{response.patchType or ""}"')
    try:
        found: list[Any] | None = msgspec.json.decode(base64.b64decode(response.patch))
    except (binascii.Error, ValueError) as error:
        raise Unreachable(f"the patch cannot be read: {error}") from error
    return found


def read_patched(kind: Kind, patched: Json) -> Json:
    """What came of a patch, read as a body would be.  Raises BadBody."""
    if kind.decode is None:
        return patched
    if (
        kind.read_again is not None
        and patched.get("kind") == kind.kind
        and patched.get("apiVersion") == kind.api_version
    ):
        return kind.read_again(patched, "Ignore").tree
    return kind.decode(encode(patched), "application/json", "Ignore").tree  # which finds the words


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


def review(attributes: Attributes, matched: Resource, uid: str, version: str) -> bytes:
    """The body of an AdmissionReview request."""
    request: Json = {"uid": uid, **request_tree(attributes, matched)}
    request["object"] = object_in(matched, attributes, attributes.object)
    request["oldObject"] = object_in(matched, attributes, attributes.old)
    return encode(
        {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}
    )
