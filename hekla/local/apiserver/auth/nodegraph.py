"""Which objects belong to which node: the pods that are bound to it, what these name, and what that
leads to.

Nothing is followed before the first question of a node.  From then on each change of a pod is noted
by the pod's key alone, and looked at with the next question: what a change costs is a set's entry,
what a question costs is what changed since the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hekla.api.trees import Json
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.store import Event, Row

Reference = tuple[str, str, str]
"""(plural, namespace, name)"""
MIRROR = "kubernetes.io/config.mirror"
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
GROWING = (b'"ephemeralContainers"', b'"resourceClaimStatuses"', b'"extendedResourceClaimStatus"')
"""What may come to a pod after it was bound and names other objects."""
MOST_NOTED = 20_000
"""Changes that nobody asks about, after which nothing is followed any more until somebody does."""
DRIVER_SECRETS = ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")
"""Kinds of volumes with a `secretRef`."""
VISIBLE = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
"""Secrets of a CSI volume that its node uses; the others are the controllers'."""


@dataclass
class Bound:
    """A pod on its node, with what it names, once somebody asked for that node."""

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
        self._noted: set[str] = set()
        self._bound: dict[str, Bound] = {}
        self._by_node: dict[str, dict[str, Bound]] = {}
        self._unread: dict[str, set[str]] = {}
        """Node -> keys of its pods whose references nobody has read."""
        self._named: dict[str, Counter[Reference]] = {}

    # --- questions --------------------------------------------------------------------------------

    def names(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Whether a pod of the node names an object."""
        return self._names_of(node)[plural, namespace, name] > 0

    def has_pod(self, node: str, namespace: str, name: str) -> bool:
        row = self.pods.rows.get(f"{namespace}/{name}")
        return row is not None and row.fields[self._node] == node

    def has_secret(self, node: str, namespace: str, name: str) -> bool:
        """A secret that a pod of the node names, or a volume that such a pod claims."""
        if self.names(node, "secrets", namespace, name):
            return True
        claims = [key for key in self._names_of(node) if key[0] == "persistentvolumeclaims"]
        return any(
            (namespace, name) in volume_secrets(volume)
            for claim in claims
            for volume in self._volume_of(*claim[1:])
        )

    def has_volume(self, node: str, name: str) -> bool:
        """A volume whose claim a pod of the node names."""
        volume = self.object("", "persistentvolumes", name)
        claim = ((volume or {}).get("spec") or {}).get("claimRef") or {}
        return bool(claim) and self.names(
            node, "persistentvolumeclaims", str(claim.get("namespace")), str(claim.get("name"))
        )

    def stands_for(self, node: str, group: str, plural: str, name: str) -> bool:
        """Whether an object without a namespace says in its spec that it is about the node."""
        found = self.object(group, plural, name)
        return found is not None and (found.get("spec") or {}).get("nodeName") == node

    def object(self, group: str, plural: str, key: str) -> Json | None:
        resource = self.registry.get(group, "v1", plural)
        row = resource.collection.rows.get(key) if resource is not None else None
        return None if row is None else row.tree()

    def _volume_of(self, namespace: str, name: str) -> Iterator[Json]:
        """The volume of a claim, where both say so: whom a claim asks for is the claim's author's
        word alone."""
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

    def _names_of(self, node: str) -> Counter[Reference]:
        """What the pods of a node name, and how many of them do."""
        self._look()
        counts = self._named.setdefault(node, Counter())
        for key in self._unread.pop(node, ()):
            bound, row = self._bound[key], self.pods.rows[key]
            bound.references = references(row.tree())
            counts.update(bound.references)
        return counts

    def _look(self) -> None:
        if not self._followed:
            self._followed = True
            self.pods.listeners.add(self._note)
            self._noted = set(self.pods.rows)
        for key in self._noted:
            self._place(key, self.pods.rows.get(key))
        self._noted.clear()

    def _note(self, events: list[Event]) -> None:
        self._noted.update(event.row.key for event in events)
        if len(self._noted) > MOST_NOTED:
            self.pods.listeners.discard(self._note)
            self._followed = False
            for kept in (self._noted, self._bound, self._by_node, self._unread, self._named):
                kept.clear()

    def _place(self, key: str, row: Row | None) -> None:
        node = row.fields[self._node] if row is not None else None
        known = self._bound.get(key)
        if known is not None:
            same = row is not None and known.uid == row.uid and known.node == node
            if same and row is not None and not any(field in row.data for field in GROWING):
                return
            self._take_away(key, known)
        if row is not None and node:
            self._bound[key] = bound = Bound(row.uid, node)
            self._by_node.setdefault(node, {})[key] = bound
            self._unread.setdefault(node, set()).add(key)

    def _take_away(self, key: str, known: Bound) -> None:
        del self._bound[key]
        pods = self._by_node[known.node]
        del pods[key]
        unread = self._unread.get(known.node)
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
            self._unread.pop(known.node, None)
            self._named.pop(known.node, None)


# --- what objects name ----------------------------------------------------------------------------


def references(pod: Json) -> frozenset[Reference]:
    """What a pod names.  One that mirrors a node's own file names nothing: a node must not give
    itself rights by making a pod."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if MIRROR in (metadata.get("annotations") or {}):
        return frozenset()
    namespace = metadata["namespace"]
    found: set[tuple[str, str]] = {("serviceaccounts", spec.get("serviceAccountName") or "")}
    found.update(("secrets", name) for name in secrets_of(spec))
    found.update(("configmaps", name) for name in config_maps_of(spec))
    found.update(("persistentvolumeclaims", name) for name in claims_of(metadata["name"], spec))
    found.update(("resourceclaims", name) for name in device_claims_of(pod))
    return frozenset((plural, namespace, name) for plural, name in found if name)


def _containers(spec: Json) -> Iterator[Json]:
    for field in CONTAINERS:
        yield from spec.get(field) or ()


def _named(holders: Iterable[Json | None], *path: str) -> Iterator[str]:
    """The text at a path below each of these, where there is one."""
    for holder in holders:
        found: Json | None = holder
        for step in path[:-1]:
            found = (found or {}).get(step)
        name = (found or {}).get(path[-1])
        if name:
            yield str(name)


def _sources(spec: Json) -> list[Json]:
    return [
        source
        for volume in spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    ]


def secrets_of(spec: Json) -> Iterator[str]:
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
    for container in _containers(spec):
        yield from _named(container.get("envFrom") or (), "configMapRef", "name")
        yield from _named(container.get("env") or (), "valueFrom", "configMapKeyRef", "name")
    yield from _named(_sources(spec), "configMap", "name")
    yield from _named(spec.get("volumes") or (), "configMap", "name")


def claims_of(pod: str, spec: Json) -> Iterator[str]:
    """Claims of storage; one that is made for the pod has the pod's name and the volume's."""
    for volume in spec.get("volumes") or ():
        if (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            yield str(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral") is not None:
            yield f"{pod}-{volume.get('name')}"


def device_claims_of(pod: Json) -> Iterator[str]:
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
    """(namespace, name) of the secrets of a volume that the nodes of its claim's pods use."""
    spec = volume.get("spec") or {}
    namespace = (spec.get("claimRef") or {}).get("namespace") or ""
    found: set[tuple[str, str]] = set()
    azure, csi = spec.get("azureFile") or {}, spec.get("csi") or {}
    if azure.get("secretName"):
        found.add((azure.get("secretNamespace") or namespace, azure["secretName"]))
    holders = [(spec.get(kind) or {}).get("secretRef") for kind in DRIVER_SECRETS]
    for reference in (*holders, *(csi.get(field) for field in VISIBLE)):
        if reference and reference.get("name"):
            found.add((reference.get("namespace") or namespace, reference["name"]))
    return found
