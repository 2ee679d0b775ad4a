"""ResourceQuota: what a namespace may hold is charged in the step in which a write is accepted
(local-cluster 5.4, 10.9).

The books are kept here, in the one process that accepts writes, so two creates at the same moment
cannot both have the last place, and the status that users read is a copy of the books and never the
other way round.  They follow the ACCEPTED state by what each write changes; a cluster without
quotas keeps no books and pays nothing (no hook is set).  A batch that the disk refuses takes its
charges back by counting again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from hekla.api.text.quantity import ZERO
from hekla.api.trees import Json
from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.admission.attributes import Attributes, Changer
from hekla.local.apiserver.auth.user import ADMIN
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.usage import (
    Usage,
    can_use,
    in_scope,
    scope_terms,
    unspecified_resources,
    usage,
)
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal, forbidden
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import DELETED, Row
from hekla.local.apiserver.storage.store import Store

log = logging.getLogger("hekla.apiserver")

QUOTAS = "resourcequotas"
STATUS_SECONDS = 0.02
"""Charges within this time are one write of the status."""
ON_UPDATE = frozenset({"services", "persistentvolumeclaims"})
"""Collections whose objects an update can make count for more.  A pod's requests change only
through the resize subresource."""


class Ledger:
    """The usage of one quota."""

    __slots__ = ("_counts", "hard", "name", "namespace", "scopes", "used")

    def __init__(self, namespace: str, name: str, spec: Json) -> None:
        self.namespace = namespace
        self.name = name
        self.hard: Usage = {
            resource: amount(text) for resource, text in (spec.get("hard") or {}).items()
        }
        self.scopes = scope_terms(spec)
        self.used: Usage = dict.fromkeys(self.hard, ZERO)
        self._counts: dict[str, bool] = {}

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def counts(self, collection: str) -> bool:
        known = self._counts.get(collection)
        if known is None:
            known = self._counts[collection] = any(
                can_use(collection, resource) for resource in self.hard
            )
        return known

    def wants(self, collection: str, tree: Json) -> bool:
        """Whether the quota's scopes select an object."""
        return in_scope(collection, tree, self.scopes)

    def status(self) -> Json:
        return {
            "hard": {resource: str(value) for resource, value in self.hard.items()},
            "used": {resource: str(value) for resource, value in self.used.items()},
        }


class Quotas:
    def __init__(self, store: Store, registry: Registry, writer: Changer) -> None:
        self.store = store
        self.registry = registry
        self.writer = writer
        self.resource = registry[QUOTAS]
        self.ledgers: dict[str, dict[str, Ledger]] = {}
        """Namespace -> name of a quota -> its usage."""
        self._stale: set[str] = set()
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Count the usage of all quotas, and keep it up to date."""
        self.resource.collection.account = self.on_quota
        self.store.on_loss = self.count_again
        for row in self.resource.collection.accepted():
            self._open(row.namespace, row.name, row.tree())

    def stop(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    # --- the books --------------------------------------------------------------------------------

    def on_quota(
        self, collection: Collection, type: str, tree: Json, old: Row | None, row: Row
    ) -> None:
        """Follow a quota that was created, changed or deleted.  It also counts as an object of its
        namespace."""
        before = self.ledgers.get(row.namespace, {}).get(row.name)
        if type is DELETED:
            self._close(row.namespace, row.name)
        elif (
            before is None
            or old is None
            or (old.tree().get("spec") or {}) != (tree.get("spec") or {})
        ):
            self._open(row.namespace, row.name, tree)
        elif (tree.get("status") or {}) != before.status():
            self._tell(before)
        others = [
            ledger
            for name, ledger in self.ledgers.get(row.namespace, {}).items()
            if name != row.name
        ]
        self._charge(others, collection, tree if type is not DELETED else None, old)

    def on_write(
        self, collection: Collection, type: str, tree: Json, old: Row | None, row: Row
    ) -> None:
        """Charge an accepted write to the quotas of its namespace."""
        ledgers = self.ledgers.get(row.namespace)
        if ledgers:
            self._charge(
                list(ledgers.values()), collection, tree if type is not DELETED else None, old
            )

    def _charge(
        self, ledgers: list[Ledger], collection: Collection, new: Json | None, old: Row | None
    ) -> None:
        ledgers = [ledger for ledger in ledgers if ledger.counts(collection.name)]
        if not ledgers or (new is not None and old is not None and collection.name not in CHANGING):
            return
        before = old.tree() if old is not None else None
        for ledger in ledgers:
            changes = difference(ledger, collection.name, new, before)
            for resource, change in changes.items():
                ledger.used[resource] = ledger.used[resource] + change
            if any(changes.values()):
                self._tell(ledger)

    def _open(self, namespace: str, name: str, tree: Json) -> None:
        ledger = Ledger(namespace, name, tree.get("spec") or {})
        self.ledgers.setdefault(namespace, {})[name] = ledger
        self._follow()
        for collection in self.store.collections.values():
            if ledger.counts(collection.name):
                for row in accepted_in(collection, namespace):
                    stored = row.tree()
                    if ledger.wants(collection.name, stored):
                        for resource, value in usage(collection.name, stored).items():
                            if resource in ledger.used:
                                ledger.used[resource] = ledger.used[resource] + value
        if (tree.get("status") or {}) != ledger.status():
            self._tell(ledger)

    def _close(self, namespace: str, name: str) -> None:
        self.ledgers.get(namespace, {}).pop(name, None)
        if not self.ledgers.get(namespace):
            self.ledgers.pop(namespace, None)
        self._follow()

    def _follow(self) -> None:
        """Set the hooks of exactly those collections that a quota counts."""
        wanted = {
            resource
            for ledgers in self.ledgers.values()
            for ledger in ledgers.values()
            for resource in ledger.hard
        }
        for collection in self.store.collections.values():
            if collection.name != QUOTAS:
                followed = any(can_use(collection.name, resource) for resource in wanted)
                collection.account = self.on_write if followed else None

    def follow(self, collection: Collection) -> None:
        """Follow a new collection, if a quota counts it."""
        if self.ledgers:
            self._follow()

    def count_again(self) -> None:
        """Count again after the disk refused writes that were charged."""
        self.ledgers.clear()
        for row in self.resource.collection.accepted():
            self._open(row.namespace, row.name, row.tree())

    # --- admission --------------------------------------------------------------------------------

    def admit(self, attributes: Attributes) -> None:
        """Refuse a write that would exceed a quota.  The charge itself follows in the same step,
        when the write is accepted."""
        if not self.ledgers:
            return
        ledgers = self.ledgers.get(attributes.namespace)
        new, collection = attributes.object, attributes.resource.collection.name
        if not ledgers or new is None or attributes.subresource not in ("", "resize"):
            return
        if (
            attributes.operation == "UPDATE"
            and collection not in ON_UPDATE
            and attributes.subresource != "resize"
        ):
            return
        kind, name = attributes.resource.kind, attributes.name
        for ledger in sorted(ledgers.values(), key=lambda ledger: ledger.name):
            if not ledger.counts(collection) or not ledger.wants(collection, new):
                continue
            if collection == "pods":
                open_ = unspecified_resources(new, ledger.hard)
                if open_:
                    text = "; ".join(
                        f"{resource} for: {','.join(sorted(set(names)))}"
                        for resource, names in sorted(open_.items())
                    )
                    raise forbidden(kind, name, f"failed quota: {ledger.name}: must specify {text}")
            asked = difference(ledger, collection, new, attributes.old)
            over = [
                resource
                for resource, more in sorted(asked.items())
                if more.nanos > 0 and ledger.used[resource] + more > ledger.hard[resource]
            ]
            if over:
                raise forbidden(
                    kind,
                    name,
                    f"exceeded quota: {ledger.name}, requested: {shown(asked, over)}, used: {shown(ledger.used, over)}, "
                    f"limited: {shown(ledger.hard, over)}",
                )

    # --- status -----------------------------------------------------------------------------------

    def _tell(self, ledger: Ledger) -> None:
        self._stale.add(ledger.key)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_later())

    async def _write_later(self) -> None:
        try:
            while self._stale:
                await asyncio.sleep(STATUS_SECONDS)
                keys, self._stale = self._stale, set()
                for key in sorted(keys):
                    await self._write(key)
        finally:
            self._writing = None

    async def _write(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        ledger = self.ledgers.get(namespace, {}).get(name)
        if ledger is None:
            return

        def change(tree: Json) -> Json:
            tree["status"] = ledger.status()
            return tree

        call = Call(
            Request("PUT", "/quotas", "", {}, b"", Peer()),
            Route(self.resource, namespace, name, ""),
            ADMIN,
            "update",
        )
        try:
            await self.writer.change(
                call, self.resource, key, change, retry=True, subresource="server", admit=False
            )
        except Refusal as refusal:
            if refusal.code == 409:
                self._stale.add(key)
            elif refusal.code != 404:
                log.warning("the status of the quota %s: %s", key, refusal)


CHANGING = ON_UPDATE | {"pods", "resourceclaims.resource.k8s.io"}
"""Collections whose objects can count for more or less while they exist.  Of others only the number
counts."""


def difference(ledger: Ledger, collection: str, new: Json | None, old: Json | None) -> Usage:
    """The change of usage when `old` becomes `new`."""
    found: Usage = {}
    if new is not None and ledger.wants(collection, new):
        found.update(
            {
                resource: value
                for resource, value in usage(collection, new).items()
                if resource in ledger.hard
            }
        )
    if old is not None and ledger.wants(collection, old):
        for resource, value in usage(collection, old).items():
            if resource in ledger.hard:
                found[resource] = found.get(resource, ZERO) - value
    return found


def shown(values: Usage, resources: list[str]) -> str:
    return ",".join(f"{resource}={values[resource]}" for resource in resources)


def accepted_in(collection: Collection, namespace: str) -> Iterator[Row]:
    """The accepted rows of one namespace."""
    for key in collection.ordered(namespace):
        if key not in collection.overlay:
            yield collection.rows[key]
    for write in collection.overlay.values():
        if write.type is not DELETED and write.row.namespace == namespace:
            yield write.row
