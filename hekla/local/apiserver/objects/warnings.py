"""What an object is accepted with and its writer should hear all the same: fields that do nothing,
or not what they seem to.

The texts are those of Kubernetes.  Pods come by the thousand and mostly deserve no word, so each
check begins with a look that costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.custom.schema import unknown_formats
from hekla.local.apiserver.objects.errors import shown

Warnings = Callable[[Json, Json | None], list[str]]
"""(new, old or None) -> texts"""

OLD_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
OLD_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
SUSPECT = frozenset(
    (
        "affinity",
        "topologySpreadConstraints",
        "hostAliases",
        "imagePullSecrets",
        "overhead",
        "initContainers",
        "ephemeralContainers",
    )
)
"""Fields of a pod's spec that must be looked into."""
PARTS = ("m", "u", "n")
NO_SELECTOR = "a null labelSelector results in matching no pod"


def pod(tree: Json, old: Json | None) -> list[str]:
    """Of a new pod; changes of pods are made by programs."""
    if old is not None:
        return []
    named = list(of_name(tree, "the Pod's hostname"))
    if _harmless(tree.get("spec") or {}, tree["metadata"]):
        return named
    return [*named, *of_pod(tree.get("spec") or {}, tree["metadata"], "")]


def of_name(tree: Json, what: str) -> Iterator[str]:
    """A name that is good and makes no good hostname."""
    name = tree["metadata"].get("name") or ""
    if "." in name or len(name) > 63:
        why = f"this is used in {what}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {why}: [{' '.join(names.dns_label(name))}]"


def _harmless(spec: Json, metadata: Json) -> bool:
    """Whether a pod plainly deserves no word, as nearly all do."""
    containers, annotations, selector = (
        spec.get("containers") or [],
        metadata.get("annotations"),
        spec.get("nodeSelector"),
    )
    if selector and not OLD_LABELS.keys().isdisjoint(selector):
        return False
    if not SUSPECT.isdisjoint(spec) or len(containers) != 1:
        return False
    if annotations and not OLD_ANNOTATIONS.keys().isdisjoint(annotations):
        return False
    for volume in spec.get("volumes") or ():
        if not OLD_VOLUMES.keys().isdisjoint(volume):
            return False
    container: Json = containers[0]
    env, resources = container.get("env"), container.get("resources")
    if (env and len(env) > 1 and len({one.get("name") for one in env}) < len(env)) or len(
        container.get("ports") or ()
    ) > 1:
        return False
    for amounts in resources.values() if resources else ():
        if type(amounts) is dict and str(amounts.get("memory", ""))[-1:] in PARTS:
            return False
        if type(amounts) is dict and "ephemeral-storage" in amounts:
            return False
    return True


def template_at(*path: str, named: bool = False) -> Warnings:
    """Of the pods that an object will make, whenever what it makes has changed; `named` are those
    after it."""
    prefix = ".".join(path) + "."

    def warnings(tree: Json, old: Json | None) -> list[str]:
        if old is not None and tree["metadata"].get("generation", 0) == old["metadata"].get(
            "generation", 0
        ):
            return []
        found: Any = tree
        for step in path:
            found = found.get(step) or {}
        own = of_name(tree, "Pod names and hostnames") if named and old is None else ()
        return [
            *own,
            *islice(of_pod(found.get("spec") or {}, found.get("metadata") or {}, prefix), MOST),
        ]

    return warnings


def of_pod(spec: Json, metadata: Json, at: str) -> Iterator[str]:
    """`at` is where the pod's spec and metadata are, with a dot at the end."""
    for key in OLD_LABELS.keys() & (spec.get("nodeSelector") or {}).keys():
        yield f"{at}spec.nodeSelector[{key}]: {_old_label(key)}"
    if "affinity" in spec:
        yield from _affinity(spec["affinity"] or {}, f"{at}spec.affinity")
    for position, one in enumerate(spec.get("topologySpreadConstraints") or ()):
        path = f"{at}spec.topologySpreadConstraints[{position}]"
        if (key := one.get("topologyKey")) in OLD_LABELS:
            yield f"{path}.topologyKey: {key} is {_old_label(key)}"
        if one.get("labelSelector") is None:
            yield f"{path}.labelSelector: {NO_SELECTOR}"
    for key in OLD_ANNOTATIONS.keys() & (metadata.get("annotations") or {}).keys():
        yield f"{at}metadata.annotations[{key}]: {OLD_ANNOTATIONS[key]}"
    for position, volume in enumerate(spec.get("volumes") or ()):
        for kind in OLD_VOLUMES.keys() & volume.keys():
            yield f"{at}spec.volumes[{position}].{kind}: {OLD_VOLUMES[kind]}"
    if "hostAliases" in spec:
        yield from _twice(spec["hostAliases"] or (), "ip", f"{at}spec.hostAliases")
    if "imagePullSecrets" in spec:
        path = f"{at}spec.imagePullSecrets"
        yield from _twice(spec["imagePullSecrets"] or (), "name", path)
        for position, secret in enumerate(spec["imagePullSecrets"] or ()):
            if not secret.get("name"):
                yield f'{path}[{position}].name: invalid empty name ""'
    yield from _fractions(spec.get("overhead") or {}, f"{at}spec.overhead")
    yield from _containers(spec, f"{at}spec")


def _containers(spec: Json, at: str) -> Iterator[str]:
    ports: list[tuple[str, Json]] = []
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            resources = container.get("resources")
            if resources:
                for part in ("limits", "requests"):
                    yield from _fractions(
                        resources.get(part) or {}, f"{at}.{name}[{position}].resources.{part}"
                    )
            env = container.get("env")
            if env and len(env) > 1 and len({one.get("name") for one in env}) < len(env):
                yield from _hidden(env, f"{at}.{name}[{position}].env")
            for index, port in enumerate(container.get("ports") or ()):
                ports.append((f"{at}.{name}[{position}].ports[{index}]", port))
    if len(ports) > 1:
        yield from _ports(ports)


MOST, MOST_ALIKE = 1000, 100
"""Warnings of one pod, and ports of one number that each other of that number is compared with."""


def _ports(ports: list[tuple[str, Json]]) -> Iterator[str]:
    numbers: dict[tuple[Any, Any], list[tuple[str, Json]]] = {}
    names: dict[str, str] = {}
    said: list[str] = []
    for path, port in ports:
        same = numbers.setdefault((port.get("containerPort"), port.get("protocol")), [])
        for other_path, other in same[:MOST_ALIKE]:
            mine, theirs = port.get("hostPort") or 0, other.get("hostPort") or 0
            here, there = port.get("hostIP") or "", other.get("hostIP") or ""
            if (here, mine) == (there, theirs):
                yield f"{path}: duplicate port definition with {other_path}"
            elif not mine or not theirs:
                yield f"{path}: overlapping port definition with {other_path}"
            elif mine == theirs and bool(here) != bool(there):
                yield f"{path}: dangerously ambiguous port definition with {other_path}"
        same.append((path, port))
        if name := port.get("name"):
            first = names.setdefault(name, path)
            if first is not path:
                why = f"services and probes that select ports by name will use {first}"
                said.append(f"{path}: duplicate port name {shown(name)} with {first}, {why}")
    yield from said


def _hidden(env: list[Json], at: str) -> Iterator[str]:
    seen: set[str] = set()
    for position, one in enumerate(env):
        name, value = one.get("name") or "", one.get("value") or ""
        itself = f"$({name})"
        if name in seen and ("valueFrom" in one or value == itself or itself not in value):
            yield f"{at}[{position}]: hides previous definition of {shown(name)}, which may be dropped when using apply"
        seen.add(name)


def _twice(items: Sequence[Json], key: str, at: str) -> Iterator[str]:
    seen: set[Any] = set()
    for position, item in enumerate(items):
        value = item.get(key) or ""
        if value in seen:
            yield f"{at}[{position}].{key}: duplicate {key} {shown(value)}"
        seen.add(value)


def _fractions(amounts: Json, at: str) -> Iterator[str]:
    """Parts of bytes."""
    for name in ("memory", "ephemeral-storage"):
        text = amounts.get(name)
        if isinstance(text, str) and text.endswith(PARTS) and amount(text).nanos % 10**9:
            yield f"{at}[{name}]: fractional byte value {shown(text)} is invalid, must be an integer"


def _affinity(affinity: Json, at: str) -> Iterator[str]:
    node = affinity.get("nodeAffinity") or {}
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    terms = [
        (f"{at}.nodeAffinity.{required}.nodeSelectorTerms[{position}]", term)
        for position, term in enumerate((node.get(required) or {}).get("nodeSelectorTerms") or ())
    ]
    terms += [
        (f"{at}.nodeAffinity.{preferred}[{position}].preference", one.get("preference") or {})
        for position, one in enumerate(node.get(preferred) or ())
    ]
    for path, term in terms:
        for position, wanted in enumerate(term.get("matchExpressions") or ()):
            if (key := wanted.get("key")) in OLD_LABELS:
                yield f"{path}.matchExpressions[{position}].key: {key} is {_old_label(key)}"
    for name in ("podAffinity", "podAntiAffinity"):
        both = affinity.get(name) or {}
        for position, term in enumerate(both.get(required) or ()):
            if term.get("labelSelector") is None:
                yield f"{at}.{name}.{required}[{position}].labelSelector: {NO_SELECTOR}"
        for position, one in enumerate(both.get(preferred) or ()):
            if (one.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{at}.{name}.{preferred}[{position}].podAffinityTerm.labelSelector: {NO_SELECTOR}"


def _old_label(key: str) -> str:
    since, instead = OLD_LABELS[key]
    return f'deprecated since {since}; use "{instead}" instead'


# --- other kinds ----------------------------------------------------------------------------------


def service(tree: Json, old: Json | None) -> list[str]:
    spec, found = tree.get("spec") or {}, []
    kind, addresses = spec.get("type"), spec.get("externalIPs")
    if "service.kubernetes.io/topology-aware-hints" in (tree["metadata"].get("annotations") or {}):
        found.append(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
        )
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            found.append("spec.loadBalancerIP is ignored for headless services")
        if addresses:
            found.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    elif addresses and kind != "ExternalName":
        found.append(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
        )
    if kind == "ExternalName" and addresses:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def ingress(tree: Json, old: Json | None) -> list[str]:
    said = (tree["metadata"].get("annotations") or {}).keys()
    if (
        old is None
        and "kubernetes.io/ingress.class" in said
        and not (tree.get("spec") or {}).get("ingressClassName")
    ):
        return [
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
        ]
    return []


def endpoint_slice(tree: Json, old: Json | None) -> list[str]:
    return (
        ["spec.addressType: FQDN endpoints are deprecated"]
        if old is None and tree.get("addressType") == "FQDN"
        else []
    )


def definition(tree: Json, old: Json | None) -> list[str]:
    known = _formats(old) if old is not None else []
    return [f"unrecognized format {shown(form)}" for form in _formats(tree) if form not in known]


def _formats(tree: Json) -> list[str]:
    versions = (tree.get("spec") or {}).get("versions") or ()
    return [
        form
        for version in versions
        for form in unknown_formats((version.get("schema") or {}).get("openAPIV3Schema"))
    ]


TEMPLATE, NAMED = template_at("spec", "template"), template_at("spec", "template", named=True)


def driver(tree: Json, old: Json | None) -> list[str]:
    """Of a driver that asks for tokens from now on."""
    spec = tree.get("spec") or {}
    if (
        ((old or {}).get("spec") or {}).get("tokenRequests")
        or not spec.get("tokenRequests")
        or spec.get("serviceAccountTokenInSecrets") is not None
    ):
        return []
    why = "is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"
    return [f"spec.serviceAccountTokenInSecrets {why}"]


OF: dict[tuple[str, str], Warnings] = {
    ("", "Pod"): pod,
    ("", "ReplicationController"): NAMED,
    ("", "PodTemplate"): template_at("template"),
    ("", "Service"): service,
    **{("apps", kind): NAMED for kind in ("Deployment", "ReplicaSet")},
    **{("apps", kind): TEMPLATE for kind in ("StatefulSet", "DaemonSet")},
    ("batch", "Job"): NAMED,
    ("batch", "CronJob"): template_at("spec", "jobTemplate", "spec", "template", named=True),
    ("networking.k8s.io", "Ingress"): ingress,
    ("storage.k8s.io", "CSIDriver"): driver,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definition,
}
"""By (group, kind)."""
