"""Built-in admission that looks at other objects: default classes, overhead of runtimes, finalizers
of storage, who asks for certificates.

Each plugin is found by the collection and operation that it is about, so a request pays for the
plugins of its own kind alone. Reference: local-cluster 5.9, 6.1.
"""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.attributes import Attributes, Plugin, TreeCache, remembered
from hekla.local.apiserver.admission.limits import Limits
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.request.status import forbidden
from hekla.local.apiserver.storage.registry import Registry

DEFAULT_STORAGE = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
DEFAULT_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)
CLAIMS, REQUESTS = "persistentvolumeclaims", "certificatesigningrequests.certificates.k8s.io"


class Plugins:
    def __init__(self, registry: Registry, limits: Limits) -> None:
        self.registry = registry
        self.limits = limits
        self._trees = TreeCache()

    def join(self, admission: Admission) -> None:
        """Takes its places in the chain."""
        fill, check = admission.plugins, admission.checks
        fill["pods", "CREATE"] = [self.limits.fill, *fill["pods", "CREATE"], self.runtime_class]
        admission.reads["pods"] += ("limitranges", "runtimeclasses.node.k8s.io")
        fill[CLAIMS, "CREATE"] = [
            self.default_storage_class,
            protect("kubernetes.io/pvc-protection"),
        ]
        fill["persistentvolumes", "CREATE"] = [protect("kubernetes.io/pv-protection")]
        fill["ingresses.networking.k8s.io", "CREATE"] = [self.default_ingress_class]
        fill["nodes", "CREATE"] = [taint_until_ready]
        fill[REQUESTS, "CREATE"] = [requester]
        fill[REQUESTS, "UPDATE"] = [same_requester]
        check["pods", "CREATE"] = [self.limits.check_pod]
        check[CLAIMS, "CREATE"] = [self.limits.check_claim]
        check[CLAIMS, "UPDATE"] = [self.limits.check_claim, self.resize]

    def _all(self, group: str, plural: str) -> list[Json]:
        resource = self.registry.get(group, "v1", plural)
        rows = resource.collection.accepted() if resource is not None else ()
        return [remembered(self._trees, f"{plural} {row.key}", row) for row in rows]

    def _default(self, group: str, plural: str, annotations: tuple[str, ...]) -> list[Json]:
        """The classes that are marked as default, the newest first."""
        found = [
            tree
            for tree in self._all(group, plural)
            if any(
                (tree["metadata"].get("annotations") or {}).get(name) == "true"
                for name in annotations
            )
        ]
        found.sort(key=lambda tree: tree["metadata"]["name"])
        found.sort(
            key=lambda tree: str(tree["metadata"].get("creationTimestamp") or ""), reverse=True
        )
        return found

    def default_storage_class(self, attributes: Attributes) -> None:
        """A claim that names no class (not even the empty one) gets the default class."""
        claim = attributes.object
        assert claim is not None
        spec = claim.setdefault("spec", {})
        if spec.get(
            "storageClassName"
        ) is None and "volume.beta.kubernetes.io/storage-class" not in (
            claim["metadata"].get("annotations") or {}
        ):
            classes = self._default("storage.k8s.io", "storageclasses", DEFAULT_STORAGE)
            if classes:
                spec["storageClassName"] = classes[0]["metadata"]["name"]

    def default_ingress_class(self, attributes: Attributes) -> None:
        """An ingress that names no class gets the default class; two of them are one too many."""
        ingress = attributes.object
        assert ingress is not None
        spec = ingress.setdefault("spec", {})
        if spec.get("ingressClassName") is not None or "kubernetes.io/ingress.class" in (
            ingress["metadata"].get("annotations") or {}
        ):
            return
        classes = self._default("networking.k8s.io", "ingressclasses", DEFAULT_INGRESS)
        if classes:
            spec["ingressClassName"] = classes[0]["metadata"]["name"]

    def runtime_class(self, attributes: Attributes) -> None:
        """What a runtime costs beside the containers, and where it can run."""
        pod = attributes.object
        spec = pod.get("spec") if pod is not None else None
        if not isinstance(spec, dict):
            return
        name, kind = spec.get("runtimeClassName"), attributes.resource.kind
        if not name:
            if spec.get("overhead"):
                why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                raise forbidden(kind, attributes.name, why)
            return
        resource = self.registry.get("node.k8s.io", "v1", "runtimeclasses")
        row = resource.collection.newest(name) if resource is not None else None
        if row is None:
            raise forbidden(kind, attributes.name, f'pod rejected: RuntimeClass "{name}" not found')
        found = remembered(self._trees, f"runtimeclasses {name}", row)
        fixed = (found.get("overhead") or {}).get("podFixed") or {}
        given = spec.get("overhead") or {}
        if given and {key: amount(text) for key, text in given.items()} != {
            key: amount(text) for key, text in fixed.items()
        }:
            raise forbidden(
                kind,
                attributes.name,
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            )
        if fixed:
            spec["overhead"] = dict(fixed)
        placed = found.get("scheduling") or {}
        selector = placed.get("nodeSelector") or {}
        own = spec.get("nodeSelector") or {}
        for key, value in selector.items():
            if own.get(key, value) != value:
                why = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own[key]}"
                raise forbidden(kind, attributes.name, why)
        if selector:
            spec["nodeSelector"] = {**own, **selector}
        missing = [
            t for t in placed.get("tolerations") or () if t not in (spec.get("tolerations") or ())
        ]
        if missing:
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *missing]

    def resize(self, attributes: Attributes) -> None:
        """A claim may only grow where its class says that volumes can."""
        new, old = attributes.object or {}, attributes.old or {}
        size, before = asked(new), asked(old)
        if size is None or before is None or amount(size) <= amount(before):
            return
        name = (old.get("spec") or {}).get("storageClassName")
        growing = [
            tree["metadata"]["name"]
            for tree in self._all("storage.k8s.io", "storageclasses")
            if tree.get("allowVolumeExpansion")
        ]
        if name not in growing:
            why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            raise forbidden(attributes.resource.kind, attributes.name, why)


def asked(claim: Json) -> str | None:
    text = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    return None if text is None else str(text)


def protect(finalizer: str) -> Plugin:
    """Storage that somebody uses must not vanish under him: a controller takes the finalizer off
    when nobody does."""

    def add(attributes: Attributes) -> None:
        assert attributes.object is not None
        finalizers = attributes.object["metadata"].setdefault("finalizers", [])
        if finalizer not in finalizers:
            finalizers.append(finalizer)

    return add


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def taint_until_ready(attributes: Attributes) -> None:
    """Nothing is placed on a node before it has said that it is ready; the controller of nodes
    takes the taint off then.

    One that says so in the very request that makes it needs none: the controller would take it off
    at once.
    """
    node = attributes.object
    assert node is not None
    conditions = (node.get("status") or {}).get("conditions") or ()
    if any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in conditions
    ):
        return
    taints = node.setdefault("spec", {}).setdefault("taints", [])
    if not any(
        taint.get("key") == NOT_READY["key"] and taint.get("effect") == NOT_READY["effect"]
        for taint in taints
    ):
        taints.append(dict(NOT_READY))


def requester(attributes: Attributes) -> None:
    """A certificate is asked for by whoever sends the request, whatever the body says."""
    assert attributes.object is not None
    user, spec = attributes.call.user, attributes.object.setdefault("spec", {})
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec.update(user.tree())


def same_requester(attributes: Attributes) -> None:
    assert attributes.object is not None and attributes.old is not None
    spec, before = attributes.object.setdefault("spec", {}), attributes.old.get("spec") or {}
    for name in ("username", "uid", "groups", "extra"):
        if name in before:
            spec[name] = before[name]
        else:
            spec.pop(name, None)
