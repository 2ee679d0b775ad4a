"""Which objects belong to a node: the pods that are bound to it, the objects that these name, and
what those lead to.

Pods are followed from the first question about any node on. Each change of a pod then adds its key
to a set, which the next question works off: a change costs one entry of the set, a question costs
what changed since the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hekla.api.names import MIRROR_POD
from hekla.api.trees import Json
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Event, Row

Reference = tuple[str, str, str]
"""(plural, namespace, name)"""
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
FIELDS_AFTER_BINDING = (
    b'"ephemeralContainers"',
    b'"resourceClaimStatuses"',
    b'"extendedResourceClaimStatus"',
)
"""Fields with references that a pod may get after it was bound."""
MAX_PENDING_CHANGES = 20_000
"""After so many changes without a question, pods are no longer followed until the next question."""
DRIVER_SECRETS = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
"""Volume types with a `secretRef`."""
NODE_SECRET_REFS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
"""The secrets of a CSI volume that its node uses; the others are for controllers."""


@dataclass
class Bound:
    """A pod on its node, with its references once they were needed."""

    uid: str
    node: str
    references: frozenset[Reference] | None = None


class NodeGraph:
    """Answers from the committed state."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.pods = registry["pods"].collection
        self._node = self.pods.positions["spec.nodeName"]
        self._followed = False
        self._pending: set[str] = set()
        self._bound: dict[str, Bound] = {}
        self._by_node: dict[str, dict[str, Bound]] = {}
        self._unresolved: dict[str, set[str]] = {}
        """Node -> keys of its pods whose references were not read yet."""
        self._named: dict[str, Counter[Reference]] = {}

    # --- questions --------------------------------------------------------------------------------

    def names(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether a pod of the node refers to an object."""
        return self._references_of(node)[plural, namespace, name] > 0

    def has_pod(self, node: str, namespace: str, name: str) -> bool:
        """Whether a pod is bound to the node."""
        row = self.pods.rows.get(f"{namespace}/{name}")
        return row is not None and row.fields[self._node] == node

    def has_secret(self, node: str, namespace: str, name: str) -> bool:
        """Whether a pod of the node refers to a secret, directly or by a volume that it claims."""
        if self.names(node, "secrets", namespace, name):
            return True
        claims = [key for key in self._references_of(node) if key[0] == "persistentvolumeclaims"]
        return any(
            (namespace, name) in volume_secrets(volume)
            for claim in claims
            for volume in self._volume_of(*claim[1:])
        )

    def has_volume(self, node: str, name: str) -> bool:
        """Whether a pod of the node refers to the claim of a volume."""
        volume = self.object("", "persistentvolumes", name)
        claim = ((volume or {}).get("spec") or {}).get("claimRef") or {}
        return bool(claim) and self.names(
            node, "persistentvolumeclaims", str(claim.get("namespace")), str(claim.get("name"))
        )

    def stands_for(self, node: str, group: str, plural: str, name: str) -> bool:
        """Whether the spec of a cluster-scoped object names the node."""
        tree = self.object(group, plural, name)
        return tree is not None and (tree.get("spec") or {}).get("nodeName") == node

    def object(self, group: str, plural: str, key: str) -> Json | None:
        """The committed object with a key (`namespace/name`), None if there is none."""
        resource = self.registry.get(group, "v1", plural)
        row = resource.collection.rows.get(key) if resource is not None else None
        return None if row is None else row.tree()

    def _volume_of(self, namespace: str, name: str) -> Iterator[Json]:
        """The volume of a claim, if both refer to each other: `volumeName` alone is only what the
        author of the claim wrote."""
        claim = self.object("", "persistentvolumeclaims", f"{namespace}/{name}")
        wanted = ((claim or {}).get("spec") or {}).get("volumeName")
        volume = self.object("", "persistentvolumes", wanted) if wanted else None
        reference = ((volume or {}).get("spec") or {}).get("claimRef") or {}
        if volume is not None and (reference.get("namespace"), reference.get("name")) == (
            namespace,
            name,
        ):
            yield volume

    # --- following --------------------------------------------------------------------------------

    def _references_of(self, node: str) -> Counter[Reference]:
        """What the pods of a node refer to, and how many of them do."""
        self._work_off()
        counts = self._named.setdefault(node, Counter())
        for key in self._unresolved.pop(node, ()):
            bound, row = self._bound[key], self.pods.rows[key]
            bound.references = references(row.tree())
            counts.update(bound.references)
        return counts

    def _work_off(self) -> None:
        if not self._followed:
            self._followed = True
            self.pods.listeners.add(self._on_events)
            self._pending = set(self.pods.rows)
        for key in self._pending:
            self._place(key, self.pods.rows.get(key))
        self._pending.clear()

    def _on_events(self, events: list[Event]) -> None:
        self._pending.update(event.row.key for event in events)
        if len(self._pending) > MAX_PENDING_CHANGES:
            self.pods.listeners.discard(self._on_events)
            self._followed = False
            for kept in (self._pending, self._bound, self._by_node, self._unresolved, self._named):
                kept.clear()

    def _place(self, key: str, row: Row | None) -> None:
        node = row.fields[self._node] if row is not None else None
        known = self._bound.get(key)
        if known is not None:
            same = row is not None and known.uid == row.uid and known.node == node
            if (
                same
                and row is not None
                and not any(field in row.data for field in FIELDS_AFTER_BINDING)
            ):
                return
            self._remove(key, known)
        if row is not None and node:
            self._bound[key] = bound = Bound(row.uid, node)
            self._by_node.setdefault(node, {})[key] = bound
            self._unresolved.setdefault(node, set()).add(key)

    def _remove(self, key: str, known: Bound) -> None:
        del self._bound[key]
        pods = self._by_node[known.node]
        del pods[key]
        unread = self._unresolved.get(known.node)
        if unread is not None:
            unread.discard(key)
        if known.references is not None:
            counts = self._named[known.node]
            for reference in known.references:
                counts[reference] -= 1
                if not counts[reference]:
                    del counts[reference]
        if not pods:
            del self._by_node[known.node]
            self._unresolved.pop(known.node, None)
            self._named.pop(known.node, None)


# --- what objects name ----------------------------------------------------------------------------


def references(pod: Json) -> frozenset[Reference]:
    """What a pod refers to. A mirror pod refers to nothing, because a node must not get rights by
    creating pods."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if MIRROR_POD in (metadata.get("annotations") or {}):
        return frozenset()
    namespace = metadata["namespace"]
    names: set[tuple[str, str]] = {("serviceaccounts", spec.get("serviceAccountName") or "")}
    names.update(("secrets", name) for name in secrets_of(spec))
    names.update(("configmaps", name) for name in config_maps_of(spec))
    names.update(("persistentvolumeclaims", name) for name in claims_of(metadata["name"], spec))
    names.update(("resourceclaims", name) for name in device_claims_of(pod))
    return frozenset((plural, namespace, name) for plural, name in names if name)


def _containers(spec: Json) -> Iterator[Json]:
    for field in CONTAINERS:
        yield from spec.get(field) or ()


def _named(holders: Iterable[Json | None], *path: str) -> Iterator[str]:
    """The texts at a path below each of the holders, where there are any."""
    for holder in holders:
        node: Json | None = holder
        for step in path[:-1]:
            node = (node or {}).get(step)
        name = (node or {}).get(path[-1])
        if name:
            yield str(name)


def _sources(spec: Json) -> list[Json]:
    return [
        source
        for volume in spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    ]


def secrets_of(spec: Json) -> Iterator[str]:
    """The secrets of a pod's spec."""
    volumes = spec.get("volumes") or ()
    yield from _named(spec.get("imagePullSecrets") or (), "name")
    for container in _containers(spec):
        yield from _named(container.get("envFrom") or (), "secretRef", "name")
        yield from _named(container.get("env") or (), "valueFrom", "secretKeyRef", "name")
    yield from _named(_sources(spec), "secret", "name")
    yield from _named(volumes, "secret", "secretName")
    yield from _named(volumes, "azureFile", "secretName")
    yield from _named(volumes, "csi", "nodePublishSecretRef", "name")
    for kind in DRIVER_SECRETS:
        yield from _named(volumes, kind, "secretRef", "name")


def config_maps_of(spec: Json) -> Iterator[str]:
    """The config maps of a pod's spec."""
    for container in _containers(spec):
        yield from _named(container.get("envFrom") or (), "configMapRef", "name")
        yield from _named(container.get("env") or (), "valueFrom", "configMapKeyRef", "name")
    yield from _named(_sources(spec), "configMap", "name")
    yield from _named(spec.get("volumes") or (), "configMap", "name")


def claims_of(pod: str, spec: Json) -> Iterator[str]:
    """The volume claims of a pod's spec; a claim of an ephemeral volume has the name of pod and
    volume."""
    for volume in spec.get("volumes") or ():
        if (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield str(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral") is not None:
            yield f"{pod}-{volume.get('name')}"


def device_claims_of(pod: Json) -> Iterator[str]:
    """The resource claims of a pod, including those that were created for it."""
    status = pod.get("status") or {}
    made = {
        entry.get("name"): entry.get("resourceClaimName")
        for entry in status.get("resourceClaimStatuses") or ()
    }
    for claim in (pod.get("spec") or {}).get("resourceClaims") or ():
        name = claim.get("resourceClaimName") or made.get(claim.get("name"))
        if name:
            yield str(name)
    yield from _named([status.get("extendedResourceClaimStatus")], "resourceClaimName")


def volume_secrets(volume: Json) -> set[tuple[str, str]]:
    """(namespace, name) of the secrets of a volume that nodes use to mount it."""
    spec = volume.get("spec") or {}
    namespace = (spec.get("claimRef") or {}).get("namespace") or ""
    secrets: set[tuple[str, str]] = set()
    azure, csi = spec.get("azureFile") or {}, spec.get("csi") or {}
    if azure.get("secretName"):
        secrets.add((azure.get("secretNamespace") or namespace, azure["secretName"]))
    holders = [(spec.get(kind) or {}).get("secretRef") for kind in DRIVER_SECRETS]
    for reference in (*holders, *(csi.get(field) for field in NODE_SECRET_REFS)):
        if reference and reference.get("name"):
            secrets.add((reference.get("namespace") or namespace, reference["name"]))
    return secrets
