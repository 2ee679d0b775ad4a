"""Warnings for the writer of an object that is accepted: fields without effect, deprecated fields,
likely mistakes.

The messages are those of Kubernetes. Pods come by the thousand and rarely deserve a warning, so a
quick check comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from hekla.api.names import ARCH, OS, REGION, ZONE
from hekla.api.text.fielderrors import shown
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.custom.schema import unknown_formats

Warnings = Callable[[Json, Json | None], list[str]]
"""(new, old or None) -> texts"""

DEPRECATED_LABELS = {
    "beta.kubernetes.io/arch": ("v1.14", ARCH),
    "beta.kubernetes.io/os": ("v1.14", OS),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", REGION),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", ZONE),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
DEPRECATED_VOLUMES = {
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
FIELDS_TO_CHECK = frozenset(
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
"""If a pod's spec has one of these fields, the quick check is not enough."""
FRACTIONAL_SUFFIXES = ("m", "u", "n")
NO_SELECTOR = "a null labelSelector results in matching no pod"


def pod(tree: Json, old: Json | None) -> list[str]:
    """Warnings for a new pod; updates of pods come from programs and get none."""
    if old is not None:
        return []
    named = list(name_warnings(tree, "the Pod's hostname"))
    if _has_no_warnings(tree.get("spec") or {}, tree["metadata"]):
        return named
    return [*named, *pod_warnings(tree.get("spec") or {}, tree["metadata"], "")]


def name_warnings(tree: Json, what: str) -> Iterator[str]:
    """A valid name that is not a good hostname. `what` says what the name is used in."""
    name = tree["metadata"].get("name") or ""
    if "." in name or len(name) > 63:
        why = f"this is used in {what}, which can result in surprising behavior; a DNS label is recommended"
        yield f"metadata.name: {why}: [{' '.join(names.dns_label(name))}]"


def _has_no_warnings(spec: Json, metadata: Json) -> bool:
    """A quick check that finds nearly all pods without warnings."""
    containers = spec.get("containers") or []
    annotations = metadata.get("annotations")
    selector = spec.get("nodeSelector")
    if selector and not DEPRECATED_LABELS.keys().isdisjoint(selector):
        return False
    if not FIELDS_TO_CHECK.isdisjoint(spec) or len(containers) != 1:
        return False
    if annotations and not DEPRECATED_ANNOTATIONS.keys().isdisjoint(annotations):
        return False
    for volume in spec.get("volumes") or ():
        if not DEPRECATED_VOLUMES.keys().isdisjoint(volume):
            return False
    container: Json = containers[0]
    env, resources = container.get("env"), container.get("resources")
    if (env and len(env) > 1 and len({variable.get("name") for variable in env}) < len(env)) or len(
        container.get("ports") or ()
    ) > 1:
        return False
    for amounts in resources.values() if resources else ():
        if type(amounts) is dict and str(amounts.get("memory", ""))[-1:] in FRACTIONAL_SUFFIXES:
            return False
        if type(amounts) is dict and "ephemeral-storage" in amounts:
            return False
    return True


def template_at(*path: str, named: bool = False) -> Warnings:
    """The warnings for the pod template at a path, on create and whenever the generation changes;
    `named`: pods are named after the object."""
    prefix = ".".join(path) + "."

    def warnings(tree: Json, old: Json | None) -> list[str]:
        if old is not None and tree["metadata"].get("generation", 0) == old["metadata"].get(
            "generation", 0
        ):
            return []
        template: Any = tree
        for step in path:
            template = template.get(step) or {}
        own = name_warnings(tree, "Pod names and hostnames") if named and old is None else ()
        return [
            *own,
            *islice(
                pod_warnings(template.get("spec") or {}, template.get("metadata") or {}, prefix),
                MAX_WARNINGS,
            ),
        ]

    return warnings


def pod_warnings(spec: Json, metadata: Json, at: str) -> Iterator[str]:
    """Warnings for the spec and metadata of a pod. `at` is the path to both, with a dot at the end."""
    for key in DEPRECATED_LABELS.keys() & (spec.get("nodeSelector") or {}).keys():
        yield f"{at}spec.nodeSelector[{key}]: {_deprecated_label(key)}"
    if "affinity" in spec:
        yield from _affinity(spec["affinity"] or {}, f"{at}spec.affinity")
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        path = f"{at}spec.topologySpreadConstraints[{position}]"
        if (key := constraint.get("topologyKey")) in DEPRECATED_LABELS:
            yield f"{path}.topologyKey: {key} is {_deprecated_label(key)}"
        if constraint.get("labelSelector") is None:
            yield f"{path}.labelSelector: {NO_SELECTOR}"
    for key in DEPRECATED_ANNOTATIONS.keys() & (metadata.get("annotations") or {}).keys():
        yield f"{at}metadata.annotations[{key}]: {DEPRECATED_ANNOTATIONS[key]}"
    for position, volume in enumerate(spec.get("volumes") or ()):
        for kind in DEPRECATED_VOLUMES.keys() & volume.keys():
            yield f"{at}spec.volumes[{position}].{kind}: {DEPRECATED_VOLUMES[kind]}"
    if "hostAliases" in spec:
        yield from _duplicates(spec["hostAliases"] or (), "ip", f"{at}spec.hostAliases")
    if "imagePullSecrets" in spec:
        path = f"{at}spec.imagePullSecrets"
        yield from _duplicates(spec["imagePullSecrets"] or (), "name", path)
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
            if env and len(env) > 1 and len({variable.get("name") for variable in env}) < len(env):
                yield from _hidden_variables(env, f"{at}.{name}[{position}].env")
            for index, port in enumerate(container.get("ports") or ()):
                ports.append((f"{at}.{name}[{position}].ports[{index}]", port))
    if len(ports) > 1:
        yield from _ports(ports)


MAX_WARNINGS, MAX_COMPARED_PORTS = 1000, 100
"""The most warnings for one pod, and how many ports of the same number a port is compared with."""


def _ports(ports: list[tuple[str, Json]]) -> Iterator[str]:
    numbers: dict[tuple[Any, Any], list[tuple[str, Json]]] = {}
    names: dict[str, str] = {}
    duplicate_names: list[str] = []
    for path, port in ports:
        same = numbers.setdefault((port.get("containerPort"), port.get("protocol")), [])
        for other_path, other in same[:MAX_COMPARED_PORTS]:
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
                duplicate_names.append(
                    f"{path}: duplicate port name {shown(name)} with {first}, {why}"
                )
    yield from duplicate_names


def _hidden_variables(env: list[Json], at: str) -> Iterator[str]:
    seen: set[str] = set()
    for position, variable in enumerate(env):
        name, value = variable.get("name") or "", variable.get("value") or ""
        itself = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == itself or itself not in value):
            yield f"{at}[{position}]: hides previous definition of {shown(name)}, which may be dropped when using apply"
        seen.add(name)


def _duplicates(items: Sequence[Json], key: str, at: str) -> Iterator[str]:
    seen: set[Any] = set()
    for position, item in enumerate(items):
        value = item.get(key) or ""
        if value in seen:
            yield f"{at}[{position}].{key}: duplicate {key} {shown(value)}"
        seen.add(value)


def _fractions(amounts: Json, at: str) -> Iterator[str]:
    """Quantities that are not a whole number of bytes."""
    for name in ("memory", "ephemeral-storage"):
        text = amounts.get(name)
        if (
            isinstance(text, str)
            and text.endswith(FRACTIONAL_SUFFIXES)
            and amount(text).nanos % 10**9
        ):
            yield f"{at}[{name}]: fractional byte value {shown(text)} is invalid, must be an integer"


def _affinity(affinity: Json, at: str) -> Iterator[str]:
    node = affinity.get("nodeAffinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = [
        (f"{at}.nodeAffinity.{required}.nodeSelectorTerms[{position}]", term)
        for position, term in enumerate((node.get(required) or {}).get("nodeSelectorTerms") or ())
    ]
    terms += [
        (f"{at}.nodeAffinity.{preferred}[{position}].preference", term.get("preference") or {})
        for position, term in enumerate(node.get(preferred) or ())
    ]
    for path, term in terms:
        for position, wanted in enumerate(term.get("matchExpressions") or ()):
            if (key := wanted.get("key")) in DEPRECATED_LABELS:
                yield f"{path}.matchExpressions[{position}].key: {key} is {_deprecated_label(key)}"
    for name in ("podAffinity", "podAntiAffinity"):
        both = affinity.get(name) or {}
        for position, term in enumerate(both.get(required) or ()):
            if term.get("labelSelector") is None:
                yield f"{at}.{name}.{required}[{position}].labelSelector: {NO_SELECTOR}"
        for position, term in enumerate(both.get(preferred) or ()):
            if (term.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{at}.{name}.{preferred}[{position}].podAffinityTerm.labelSelector: {NO_SELECTOR}"


def _deprecated_label(key: str) -> str:
    since, instead = DEPRECATED_LABELS[key]
    return f'deprecated since {since}; use "{instead}" instead'


# --- other kinds ----------------------------------------------------------------------------------


def service(tree: Json, old: Json | None) -> list[str]:
    spec, warnings = tree.get("spec") or {}, []
    kind, addresses = spec.get("type"), spec.get("externalIPs")
    if "service.kubernetes.io/topology-aware-hints" in (tree["metadata"].get("annotations") or {}):
        warnings.append(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"
        )
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            warnings.append("spec.loadBalancerIP is ignored for headless services")
        if addresses:
            warnings.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            warnings.append("spec.SessionAffinity is ignored for headless services")
    elif addresses and kind != "ExternalName":
        warnings.append(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
        )
    if kind == "ExternalName" and addresses:
        warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        warnings.append(
            'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
        )
    return warnings


def ingress(tree: Json, old: Json | None) -> list[str]:
    annotations = (tree["metadata"].get("annotations") or {}).keys()
    if (
        old is None
        and "kubernetes.io/ingress.class" in annotations
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
    """Warnings for formats in schemas that the server does not know."""
    known = _formats(old) if old is not None else []
    return [f"unrecognized format {shown(form)}" for form in _formats(tree) if form not in known]


def _formats(tree: Json) -> list[str]:
    versions = (tree.get("spec") or {}).get("versions") or ()
    return [
        form
        for version in versions
        for form in unknown_formats((version.get("schema") or {}).get("openAPIV3Schema"))
    ]


TEMPLATE = template_at("spec", "template")
NAMED_TEMPLATE = template_at("spec", "template", named=True)


def driver(tree: Json, old: Json | None) -> list[str]:
    """Warnings for a CSIDriver that did not ask for service account tokens before."""
    spec = tree.get("spec") or {}
    if (
        ((old or {}).get("spec") or {}).get("tokenRequests")
        or not spec.get("tokenRequests")
        or spec.get("serviceAccountTokenInSecrets") is not None
    ):
        return []
    why = "is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"
    return [f"spec.serviceAccountTokenInSecrets {why}"]


WARNINGS: dict[tuple[str, str], Warnings] = {
    ("", "Pod"): pod,
    ("", "ReplicationController"): NAMED_TEMPLATE,
    ("", "PodTemplate"): template_at("template"),
    ("", "Service"): service,
    **{("apps", kind): NAMED_TEMPLATE for kind in ("Deployment", "ReplicaSet")},
    **{("apps", kind): TEMPLATE for kind in ("StatefulSet", "DaemonSet")},
    ("batch", "Job"): NAMED_TEMPLATE,
    ("batch", "CronJob"): template_at("spec", "jobTemplate", "spec", "template", named=True),
    ("networking.k8s.io", "Ingress"): ingress,
    ("storage.k8s.io", "CSIDriver"): driver,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): definition,
}
"""By (group, kind)."""
