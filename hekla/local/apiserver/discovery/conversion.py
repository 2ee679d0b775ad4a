"""Conversion of custom objects by webhooks (local-cluster 4.5, strategy Webhook).

An object is stored in the version that was the storage version when it was written; its bytes name
that version. Writes use the current storage version. When objects are read in another version they
are converted: all rows of a response in one request to the webhook, before the response is encoded;
results are cached by resourceVersion. The rest of the server need not know about conversion.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from hekla.api.trees import Json
from hekla.kube.http.client import TimedOut, TransportError
from hekla.local.apiserver.admission.attributes import in_task
from hekla.local.apiserver.admission.hook import Hook, HookClients, Unreachable, worded
from hekla.local.apiserver.objects.kind import Kind, Stored
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.rows import decode, encode

TIMEOUT = 30.0
"""Seconds for one request to a webhook."""
MIN_CACHED = 2000
"""How many converted objects are cached; more if a response needed more."""
SERVER_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "generateName",
)
"""Metadata that a webhook cannot change."""


class Result(msgspec.Struct):
    """The outcome of a conversion, a metav1.Status."""

    status: str = ""
    message: str = ""


class Answer(msgspec.Struct):
    """The response of a ConversionReview."""

    uid: str = ""
    result: Result = msgspec.field(default_factory=Result)
    convertedObjects: list[Any] = msgspec.field(default_factory=list)


class Review(msgspec.Struct):
    """A ConversionReview as a webhook returns it."""

    response: Answer | None = None


class Conversion:
    """The versions of one definition, and the requests to its webhook."""

    def __init__(self, definition: Json, clients: HookClients) -> None:
        spec = definition["spec"]
        self.group: str = spec["group"]
        self.kind: str = spec["names"]["kind"]
        self.clients = clients
        webhook = (spec.get("conversion") or {}).get("webhook") or {}
        self.hook = Hook(
            "", {"clientConfig": webhook.get("clientConfig"), "timeoutSeconds": TIMEOUT}
        )
        self.review = next(
            (
                name
                for name in webhook.get("conversionReviewVersions") or ()
                if name in ("v1", "v1beta1")
            ),
            "v1",
        )
        stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
        self.storage = f"{self.group}/{stored}"
        past = (definition.get("status") or {}).get("storedVersions") or [stored]
        self.unmarked = f"{self.group}/{past[0]}"
        """The version of objects that were stored before there was a webhook."""
        self.known: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self.most = MIN_CACHED

    async def convert(self, trees: Sequence[Json], wanted: str) -> list[Json]:
        """Convert whole objects (with kind and apiVersion) to another version. Raises Refusal."""
        first = trees[0]["apiVersion"]
        await in_task()
        try:
            return await self._request(trees, wanted)
        except Unreachable as error:
            group, _, version = first.partition("/")
            why = f"conversion webhook for {group}/{version}, Kind={self.kind} {error}"
            raise Refusal(500, why, reason="", details={}) from error

    async def _request(self, trees: Sequence[Json], wanted: str) -> list[Json]:
        uid = str(uuid.uuid4())
        try:
            client, path, url = self.clients.of(self.hook)
            request = {"uid": uid, "desiredAPIVersion": wanted, "objects": list(trees)}
            body = encode(
                {
                    "kind": "ConversionReview",
                    "apiVersion": f"apiextensions.k8s.io/{self.review}",
                    "request": request,
                }
            )
            try:
                answer = await client.request(
                    "POST", path, self.clients.HEADERS, body, timeout=TIMEOUT
                )
            except TimedOut as error:
                raise Unreachable(f'Post "{url}": context deadline exceeded') from error
            except (TransportError, OSError) as error:
                raise Unreachable(
                    f'Post "{url}": {worded(error, client.target.host, client.target.port)}'
                ) from error
            if answer.status != 200:
                raise Unreachable(
                    'an error on the server ("unknown") has prevented the request from succeeding'
                )
            try:
                response = msgspec.json.decode(answer.body, type=Review).response
            except msgspec.DecodeError as error:
                raise Unreachable(f"received invalid webhook response: {error}") from error
            if response is None:
                raise Unreachable("no response provided")
            if response.uid != uid:
                raise Unreachable(f'expected response.uid="{uid}", got "{response.uid}"')
            if response.result.status != "Success":
                raise Unreachable(
                    response.result.message
                    or f"response.result.status was '{response.result.status}', not 'Success'"
                )
        except Unreachable as error:
            raise Unreachable(
                f"failed: {str(error).removeprefix('failed to call webhook: ')}"
            ) from error
        if len(response.convertedObjects) != len(trees):
            raise Unreachable(
                f"returned {len(response.convertedObjects)} objects, expected {len(trees)}"
            )
        for position, (before, after) in enumerate(
            zip(trees, response.convertedObjects, strict=True)
        ):
            why = difference(before, after, wanted)
            if why:
                raise Unreachable(f"returned invalid converted object at index {position}: {why}")
            metadata, own = after["metadata"], before.get("metadata") or {}
            after["metadata"] = {name: own[name] for name in SERVER_METADATA if name in own} | {
                name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)
            }
        return response.convertedObjects

    def remember(self, key: tuple[str, str, str], tree: Json) -> None:
        """Cache a converted object."""
        self.known[key] = encode(tree)
        while len(self.known) > self.most:
            self.known.popitem(last=False)


def difference(before: Json, after: Any, wanted: str) -> str:
    """Why the webhook's result is not the same object in the wanted version; empty if it is."""
    if not isinstance(after, dict):
        return "it is not an object"
    if after.get("apiVersion") != wanted:
        return f"invalid groupVersion (expected {wanted}, received {after.get('apiVersion')})"
    if after.get("kind") != before["kind"]:
        return f"must have the same kind: {before['kind']} != {after.get('kind')}"
    metadata, own = after.get("metadata"), before.get("metadata") or {}
    if not isinstance(metadata, dict):
        return "invalid metadata: it is not an object"
    for name in ("name", "namespace", "uid"):
        if (metadata.get(name) or "") != (own.get(name) or ""):
            return f"must have the same {'UID' if name == 'uid' else name}: {own.get(name) or ''} != {metadata.get(name) or ''}"
    return ""


class Version:
    """One served version of a definition with a webhook; its Kind refers to it."""

    def __init__(self, owner: Conversion, name: str, coerce: Callable[[str, Json], None]) -> None:
        self.owner = owner
        self.api_version = f"{owner.group}/{name}"
        self.coerce = coerce
        """(apiVersion, tree): prunes and defaults by the schema of that version."""

    def present(self, tree: Json) -> Json:
        """A stored object in this version; one that is stored in another version must have been
        converted by `ready`."""
        owner = self.owner
        stored = tree.pop("apiVersion", None) or owner.unmarked
        if stored == self.api_version:
            return tree
        metadata = tree["metadata"]
        known = owner.known.get(
            (self.api_version, metadata.get("uid") or "", metadata.get("resourceVersion") or "")
        )
        if known is None:
            raise Refusal(
                500,
                f"conversion webhook for {stored}, Kind={owner.kind} has not been asked",
                reason="",
                details={},
            )
        converted: Json = decode(known)
        if "managedFields" in metadata:
            converted["metadata"]["managedFields"] = metadata["managedFields"]
        return converted

    async def ready(self, rows: Sequence[Stored]) -> None:
        """Convert rows that are stored in another version and not cached, in one request. Raises
        Refusal."""
        owner = self.owner
        owner.most = max(owner.most, 2 * len(rows))
        missing: dict[str, list[Json]] = {}
        for row in rows:
            key = (self.api_version, row.uid, str(row.version))
            if key in owner.known:
                owner.known.move_to_end(key)
                continue
            tree = row.tree()
            stored = tree.pop("apiVersion", None) or owner.unmarked
            if stored != self.api_version:
                missing.setdefault(stored, []).append(
                    {"apiVersion": stored, "kind": owner.kind, **tree}
                )
        for trees in missing.values():
            for tree, converted in zip(
                trees, await owner.convert(trees, self.api_version), strict=True
            ):
                metadata = tree["metadata"]
                owner.remember(
                    (self.api_version, metadata.get("uid") or "", metadata["resourceVersion"]),
                    self._own(converted),
                )

    def _own(self, whole: Json) -> Json:
        """A converted object after pruning and defaulting, without kind and apiVersion."""
        api_version = whole.pop("apiVersion")
        whole.pop("kind", None)
        tree = {"metadata": whole.pop("metadata"), **whole}
        self.coerce(api_version, tree)
        return tree

    async def kept(self, tree: Json) -> Json:
        """An object of this version as it is stored: in the storage version, which its bytes name."""
        owner = self.owner
        stored = (
            tree if self.api_version == owner.storage else await self.across(tree, owner.storage)
        )
        return {"metadata": stored["metadata"], "apiVersion": owner.storage, **stored}

    async def across(self, tree: Json, wanted: str) -> Json:
        """An object of this version converted to another one."""
        if wanted == self.api_version:
            return tree
        [converted] = await self.owner.convert(
            [{"apiVersion": self.api_version, "kind": self.owner.kind, **tree}], wanted
        )
        return self._own(converted)


def converting(kinds: Sequence[Kind], owner: Conversion) -> list[Kind]:
    """The served kinds of a definition, with their conversion by its webhook."""
    defaults = {kind.api_version: kind.strategy.default for kind in kinds}

    def coerce(api_version: str, tree: Json) -> None:
        if api_version in defaults:
            defaults[api_version](tree)

    made = []
    for kind in kinds:
        version = Version(owner, kind.version, coerce)
        made.append(
            replace(
                kind,
                present=version.present,
                conversion=version,
                strategy=replace(kind.strategy, partial_updates=None),
            )
        )
    return made
