"""A task's pod template, judged as the API server will judge the pods made from it.

Reference: api-and-admission 5.3.5.  A template that would give refused pods is refused with the Job, where its author still
sees it.  The walk is Kubernetes' own: names and labels, then volumes, containers, and what the pod says about placement.
Defaults of the API server are taken as given, never written back.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from hekla.admission import containers, placement, podresources, podvolumes, security
from hekla.admission.fielderrors import duplicate, forbidden, invalid, required, unsupported
from hekla.admission.resources import is_whole
from hekla.admission.review import Tree
from hekla.admission.syntax import dns_label, dns_subdomain, qualified_name
from hekla.api.quantity import Quantity

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
SYSTEMS = ("linux", "windows")
MOST_NAMESERVERS, MOST_SEARCHES, LONGEST_SEARCHES = 3, 32, 2048
LARGEST_DEADLINE = 2**31 - 1
ANNOTATIONS_LIMIT = 256 * 1024
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"

LARGEST_REMEMBERED, MOST_REMEMBERED = 16 * 1024, 256
"""Bytes of a template, and how many of them."""
_known: dict[tuple[bytes, str, bool], list[str]] = {}

# Names that the pod spec may carry, and the grammar that each must follow.
NAME_FIELDS: tuple[tuple[str, Callable[[str], list[str]]], ...] = (
    ("serviceAccountName", dns_subdomain),
    ("nodeName", dns_subdomain),
    ("hostname", dns_label),
    ("subdomain", dns_label),
    ("priorityClassName", dns_subdomain),
    ("runtimeClassName", dns_subdomain),
)

_COST = re.compile(r"-?(?:0|[1-9][0-9]*)")


def problems(template: Tree, name: str, pod_level_resources: bool) -> list[str]:
    """Everything against a template, as field errors; paths begin with `template`, the object is named after its task.

    Jobs come by the thousand from a few templates, so what was found is remembered by the template's bytes.  Not to be changed.
    """
    key = msgspec.json.encode(template), name, pod_level_resources
    found = _known.get(key)
    if found is None:
        found = _problems(template, name, pod_level_resources)
        if len(key[0]) <= LARGEST_REMEMBERED:
            if len(_known) >= MOST_REMEMBERED:
                _known.clear()
            _known[key] = found
    return found


def _problems(template: Tree, name: str, pod_level_resources: bool) -> list[str]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    return [
        *_object_name(name),
        *placement.labels(metadata.get("labels") or {}, "template.labels"),
        *_annotations(metadata.get("annotations") or {}, "template.annotations"),
        *_spec(spec, "template.spec", pod_level_resources),
    ]


def is_whole_cpu(amount: Any) -> bool:
    """Whether an amount of cpu is a whole number other than zero."""
    value = Quantity.parse(amount)
    return is_whole(value) and value > podresources.ZERO


def _object_name(name: str) -> Iterator[str]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from (invalid("metadata.name", name, reason) for reason in dns_subdomain(name))


def _annotations(annotations: Tree, path: str) -> Iterator[str]:
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        for reason in qualified_name(key.lower()):
            yield invalid(path, key, reason)
    if size > ANNOTATIONS_LIMIT:
        yield f"{path}: Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (_COST.fullmatch(cost) and -(2**31) <= int(cost[:20]) < 2**31):
        yield invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")


def _spec(spec: Tree, path: str, pod_level_resources: bool) -> Iterator[str]:
    volumes, against = podvolumes.judged(spec.get("volumes") or [], f"{path}.volumes")
    yield from against
    yield from containers.problems(spec, volumes, path)
    if pod_level_resources:
        yield from podresources.pod_problems(spec, f"{path}.resources")
    yield from _choices(spec, path)
    yield from placement.labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    yield from security.pod_problems(spec.get("securityContext") or {}, f"{path}.securityContext")
    yield from containers.host_network_problems(spec, path)
    yield from _host(spec, path)
    yield from placement.affinity_problems(spec.get("affinity") or {}, f"{path}.affinity")
    yield from _names(spec.get("dnsConfig") or {}, spec.get("dnsPolicy"), f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates") or []):
        kind = gate.get("conditionType") or ""
        yield from (invalid(f"{path}.readinessGates[{index}].conditionType", kind, reason) for reason in qualified_name(kind))
    yield from _gates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    yield from placement.spread(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    for field, grammar in NAME_FIELDS:
        value = spec.get(field)
        if value:
            yield from (invalid(f"{path}.{field}", value, reason) for reason in grammar(value))
    yield from _limits(spec, path)
    yield from placement.tolerations(spec.get("tolerations") or [], f"{path}.tolerations")
    yield from _aliases(spec.get("hostAliases") or [], f"{path}.hostAliases")
    yield from _others(spec, path)


def _choices(spec: Tree, path: str) -> Iterator[str]:
    for field, choices in (("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)):
        value = spec.get(field)
        if value and value not in choices:
            yield unsupported(f"{path}.{field}", value, choices)


def _host(spec: Tree, path: str) -> Iterator[str]:
    """What a pod shares with its node."""
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.securityContext.shareProcessNamespace", True, text)
    if spec.get("hostUsers") is False:
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                yield forbidden(f"{path}.{field}", "when `hostUsers` is false")


def _names(config: Tree, policy: str | None, path: str) -> Iterator[str]:
    """How names are resolved inside the pod."""
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if policy == "None" and not config:
        yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
    elif policy == "None" and not servers:
        yield required(f"{path}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
    if len(servers) > MOST_NAMESERVERS:
        yield invalid(f"{path}.nameservers", servers, f"must not have more than {MOST_NAMESERVERS} nameservers")
    for index, server in enumerate(servers):
        if not is_address(server):
            yield invalid(f"{path}.nameservers[{index}]", server, ADDRESS)
    if len(searches) > MOST_SEARCHES:
        yield invalid(f"{path}.searches", searches, f"must not have more than {MOST_SEARCHES} search paths")
    if len(" ".join(searches)) > LONGEST_SEARCHES:
        text = f"must not have more than {LONGEST_SEARCHES} characters (including spaces) in the search list"
        yield invalid(f"{path}.searches", searches, text)
    for index, search in enumerate(searches):
        # One dot at the end means that nothing is to be added.
        yield from (invalid(f"{path}.searches[{index}]", search, reason) for reason in dns_subdomain(search.removesuffix(".")))
    for index, option in enumerate(config.get("options") or []):
        if not option.get("name"):
            yield required(f"{path}.options[{index}]", "must not be empty")


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _limits(spec: Tree, path: str) -> Iterator[str]:
    grace, deadline = spec.get("terminationGracePeriodSeconds"), spec.get("activeDeadlineSeconds")
    if grace is not None and grace < 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
    if deadline is not None and not 1 <= deadline <= LARGEST_DEADLINE:
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {LARGEST_DEADLINE}, inclusive")


def _aliases(aliases: list[Tree], path: str) -> Iterator[str]:
    for index, alias in enumerate(aliases):
        address = alias.get("ip") or ""
        if not is_address(address):
            yield invalid(f"{path}[{index}].ip", address, ADDRESS)
        for place, name in enumerate(alias.get("hostnames") or []):
            yield from (invalid(f"{path}[{index}].hostnames[{place}]", name, reason) for reason in dns_subdomain(name))


def _others(spec: Tree, path: str) -> Iterator[str]:
    policy, system = spec.get("preemptionPolicy"), spec.get("os")
    if policy is not None and policy not in PREEMPTION_POLICIES:
        yield unsupported(f"{path}.preemptionPolicy", policy, PREEMPTION_POLICIES)
    name = (system or {}).get("name") or ""
    if system is not None and not name:
        yield required(f"{path}.os.name")
    elif name and name not in SYSTEMS:
        yield unsupported(f"{path}.os", name, SYSTEMS)
    if spec.get("ephemeralContainers"):
        yield forbidden(f"{path}.ephemeralContainers", "ephemeral containers not allowed in pod template")


def _gates(gates: list[Tree], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        yield from (invalid(f"{path}[{index}]", name, reason) for reason in qualified_name(name))
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)
