"""The walk through a pod's spec, in the order in which Kubernetes reports errors."""

from __future__ import annotations

from functools import lru_cache

from hekla.api.text.fieldrules import Errors, Tree, check_annotations, label_key, labels, one_of
from hekla.api.text.syntax import dns_label, dns_subdomain
from hekla.podrules import (
    containers,
    environment,
    hosting,
    placement,
    profiles,
    resources,
    security,
    systems,
    volumes,
)
from hekla.podrules.options import Options
from hekla.podrules.walking import containers_of

RESTART = ("Always", "OnFailure", "Never")
DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION = ("PreemptLowerPriority", "Never")
LARGEST_DEADLINE = 2**31 - 1


def template(value: Tree, path: str, options: Options, found: Errors) -> None:
    """Check a PodTemplateSpec."""
    meta, spec = value.get("metadata") or {}, value.get("spec") or {}
    given = meta.get("annotations") or {}
    labels(meta.get("labels"), f"{path}.labels", found)
    check_annotations(given, f"{path}.annotations", found)
    profiles.annotated(given, spec, f"{path}.annotations", found)
    pod_spec(spec, f"{path}.spec", options, found)
    profiles.agreement(given, spec, f"{path}.spec", found)
    if spec.get("ephemeralContainers"):
        found.forbidden(
            f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template"
        )


def around(metadata: Tree, spec: Tree, found: Errors) -> None:
    """Check the metadata of a new pod against its spec."""
    given = metadata.get("annotations")
    if given and "kubernetes.io/" in "".join(given):
        profiles.annotated(given, spec, "metadata.annotations", found)
        if profiles.STATIC in given and spec.get("resourceClaims"):
            found.forbidden("", "static pods do not support resource claims")
        profiles.agreement(given, spec, "spec", found, inherited=False)
    for volume in spec.get("volumes") or ():
        if "ephemeral" in volume:
            volumes.made_for(metadata.get("name") or "", spec["volumes"], "spec.volumes", found)
            break


def pod_spec(spec: Tree, path: str, options: Options, found: Errors) -> None:
    """Check a PodSpec."""
    mounted = volumes.sound(spec.get("volumes") or (), f"{path}.volumes", options, found)
    if spec.get("resourceClaims"):
        resources.pod_claims(spec["resourceClaims"], f"{path}.resourceClaims", found)
    containers.check(spec, mounted, path, options, found)
    if options.resources and spec.get("resources") is not None:
        resources.of_pod(spec, f"{path}.resources", found)
    if spec.get("hostNetwork"):
        hosting.ports(spec, path, found)
    if spec.get("restartPolicy") not in RESTART:
        one_of(spec.get("restartPolicy"), RESTART, f"{path}.restartPolicy", found)
    if spec.get("dnsPolicy") not in DNS:
        one_of(spec.get("dnsPolicy"), DNS, f"{path}.dnsPolicy", found)
    if spec.get("nodeSelector"):
        labels(spec["nodeSelector"], f"{path}.nodeSelector", found)
    if spec.get("securityContext") or spec.get("shareProcessNamespace"):
        security.pod(spec, f"{path}.securityContext", options, found)
    if spec.get("affinity"):
        placement.affinity(spec["affinity"], f"{path}.affinity", found)
    if spec.get("dnsConfig") is not None or spec.get("dnsPolicy") == "None":
        hosting.lookups(
            spec.get("dnsConfig"), spec.get("dnsPolicy"), f"{path}.dnsConfig", options, found
        )
    if "schedulingGates" in spec or "readinessGates" in spec:
        _gates(spec, path, found)
    if spec.get("topologySpreadConstraints"):
        placement.topology_spread(
            spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints", options, found
        )
    if systems.has_options(spec):
        systems.host_processes(spec, path, found)
    if spec.get("hostUsers") is False:
        _own_users(spec, path, found)
    if spec.get("hostnameOverride") is not None:
        hosting.hostname(spec, f"{path}.hostnameOverride", found)
    _names(spec, path, found)
    if spec.get("overhead"):
        resources.of_container({"limits": spec["overhead"]}, (), f"{path}.overhead", found)
    if spec.get("os") is not None:
        systems.check(spec, path, found)
    if spec.get("schedulingGroup") is not None and not options.features:
        _group(spec["schedulingGroup"], f"{path}.schedulingGroup.podGroupName", found)
    if environment.reads_files(spec):
        environment.files(spec, path, found)


def _gates(spec: Tree, path: str, found: Errors) -> None:
    for position, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        found.malformed(f"{path}.readinessGates[{position}].conditionType", kind, label_key(kind))
    seen: set[str] = set()
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        name, where = gate.get("name") or "", f"{path}.schedulingGates[{position}]"
        found.malformed(where, name, label_key(name))
        containers.unique(name, seen, where, found)


def _own_users(spec: Tree, path: str, found: Errors) -> None:
    """A pod in a user namespace cannot share the namespaces of its node."""
    for field, shown in (
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ):
        if spec.get(field):
            found.forbidden(f"{path}.{shown}", "when `hostUsers` is false")
    for container, where in containers_of(spec, path):
        if container.get("volumeDevices"):
            found.forbidden(f"{where}.volumeDevices", "when `hostUsers` is false")


_subdomain = lru_cache(maxsize=4096)(dns_subdomain)
"""Of names that many pods share."""


def _names(spec: Tree, path: str, found: Errors) -> None:
    for field in ("serviceAccountName", "nodeName"):
        if spec.get(field):
            found.malformed(f"{path}.{field}", spec[field], _subdomain(spec[field]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= LARGEST_DEADLINE:
        why = f"must be between 1 and {LARGEST_DEADLINE}, inclusive"
        found.invalid(f"{path}.activeDeadlineSeconds", deadline, why)
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            found.malformed(f"{path}.{field}", spec[field], dns_label(spec[field]))
    if spec.get("tolerations"):
        placement.tolerations(spec["tolerations"], f"{path}.tolerations", found)
    if spec.get("hostAliases"):
        hosting.aliases(spec["hostAliases"], f"{path}.hostAliases", found)
    rank = spec.get("priorityClassName")
    runtime = spec.get("runtimeClassName")
    preemption = spec.get("preemptionPolicy")
    if rank:
        found.malformed(f"{path}.priorityClassName", rank, _subdomain(rank))
    if runtime is not None:
        found.malformed(f"{path}.runtimeClassName", runtime, _subdomain(runtime))
    if preemption is not None and preemption not in PREEMPTION:
        one_of(preemption, PREEMPTION, f"{path}.preemptionPolicy", found, needed=True)


def _group(group: Tree, path: str, found: Errors) -> None:
    name = group.get("podGroupName")
    if name is None:
        found.invalid(path, None, "must specify one of: `podGroupName`")
    else:
        found.malformed(path, name, dns_subdomain(name))


def pods_alone(spec: Tree, path: str, found: Errors) -> None:
    """Check what is refused in pods and accepted in templates: blanks around an image, and the
    token of an account that is not named."""
    if not spec.get("serviceAccountName"):
        for position, volume in enumerate(spec.get("volumes") or ()):
            for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    where = (
                        f"{path}.volumes[{position}].projected.sources[{index}].serviceAccountToken"
                    )
                    found.forbidden(
                        where, "must not be specified when serviceAccountName is not set"
                    )
    images(spec, path, found)


def images(spec: Tree, path: str, found: Errors) -> None:
    for name in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(name) or ()):
            containers.image(container, f"{path}.{name}[{position}]", found)
