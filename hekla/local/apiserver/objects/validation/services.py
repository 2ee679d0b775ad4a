"""The rules of services and of what stands behind them: endpoints and their slices (local-cluster
5.5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hekla.api.text import addresses
from hekla.api.text.fieldrules import Errors, label_key, label_value, labels, one_of
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import (
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
EXTERNAL = ("LoadBalancer", "NodePort")
LONGEST_AFFINITY = 86400
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def service(tree: Json) -> Errors:
    found = metadata(tree)
    _service(tree, None, found)
    return found


def service_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        _addresses_change(spec, before, found)
    if spec.get("type") == before.get("type") == "LoadBalancer":
        kind = spec.get("loadBalancerClass")
        if kind != before.get("loadBalancerClass"):
            found.append(invalid("spec.loadBalancerClass", kind, "may not change once set"))
    _load_balancer_class(spec, found)
    checked = _needs_health_check(spec) and _needs_health_check(before)
    if checked and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        found.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    _service(new, old, found)
    return found


def _headless(spec: Json) -> bool:
    return "None" in (spec.get("clusterIPs") or [spec.get("clusterIP")])[:1]


def _addresses_change(spec: Json, before: Json, found: Errors) -> None:
    """The first address stays, and so does its family; a second one may come and go."""
    ours, theirs = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    single = spec.get("ipFamilyPolicy") == "SingleStack"
    if not (_headless(spec) and _headless(before)):
        path = "spec.clusterIPs[0]"
        if len(ours) == len(theirs):
            for position, address in enumerate(theirs):
                if address != ours[position]:
                    found.append(
                        invalid(f"spec.clusterIPs[{position}]", ours, "may not change once set")
                    )
        else:
            if not ours:
                found.append(invalid(path, None, "primary clusterIP can not be unset"))
            elif theirs and ours[0] != theirs[0]:
                found.append(invalid(path, ours, "may not change once set"))
            if len(theirs) > len(ours) == 1 and not single:
                why = "must be set to 'SingleStack' when releasing the secondary clusterIP"
                found.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why))
    if _headless(spec) or _headless(before):
        return
    families, previous = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    path = "spec.ipFamilies[0]"
    if len(families) == len(previous):
        for position, family in enumerate(previous):
            if family != families[position]:
                found.append(invalid(path, families, "may not change once set"))
        return
    if len(previous) > len(families) and not ours:
        found.append(invalid(path, families or None, "primary ipFamily can not be unset"))
    if families and previous and families[0] != previous[0]:
        found.append(invalid(path, ours, "may not change once set"))
    if len(previous) > len(families) == 1 and not single:
        why = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        found.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why))


MOST_SERVICE_PORTS = 1000
"""A port is a listener of each node's network and seven variables of each pod beside it, and a
process's variables are bounded."""


def _service(tree: Json, old: Json | None, found: Errors) -> None:
    spec, before = tree.get("spec") or {}, (old or {}).get("spec") or {}
    kind, ports = spec.get("type") or "", spec.get("ports") or ()
    notes = (tree.get("metadata") or {}).get("annotations") or {}
    if _MODE in notes and _HINTS in notes and notes[_MODE] != notes[_HINTS]:
        why = f"must match annotations[{_HINTS}] when both are specified"
        found.append(invalid(f"metadata.annotations[{_MODE}]", notes[_MODE], why))
    if not ports and not _headless(spec) and kind != "ExternalName":
        found.append(required("spec.ports"))
    if kind in EXTERNAL and _headless(spec):
        found.append(
            invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
        )
    if kind == "ExternalName":
        _external_name(spec, found)
    if len(ports) > MOST_SERVICE_PORTS and len(ports) > len(before.get("ports") or ()):
        found.append(too_many("spec.ports", len(ports), MOST_SERVICE_PORTS))
        return  # a word for each of them would be no help
    _service_ports(ports, found)
    labels(spec.get("selector"), "spec.selector", found)
    _affinity(spec, found)
    if kind != "ExternalName":
        _cluster_addresses(spec, frozenset(before.get("clusterIPs") or ()), found)
    external = frozenset(before.get("externalIPs") or ())
    for position, address in enumerate(spec.get("externalIPs") or ()):
        path, known = f"spec.externalIPs[{position}]", len(found)
        addresses.address(address, path, found, external)
        if len(found) == known:
            addresses.reachable(address, path, found)
    one_of(kind, TYPES, "spec.type", found, needed=True)
    _taken_ports(kind, ports, found)
    _source_ranges(spec, notes, before, (old or {}).get("metadata") or {}, found)
    if kind != "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not None:
        found.append(
            forbidden(
                "spec.allocateLoadBalancerNodePorts",
                "may only be used when `type` is 'LoadBalancer'",
            )
        )
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is None:
        found.append(required("allocateLoadBalancerNodePorts"))
    if old is None:
        _load_balancer_class(spec, found)
    _traffic(spec, found)


def _external_name(spec: Json, found: Errors) -> None:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            found.append(forbidden(f"spec.{name}", "may not be set for ExternalName services"))
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        found.append(required("spec.externalName"))
    else:
        found += [
            invalid("spec.externalName", name, reason) for reason in names.dns_subdomain(name)
        ]


def _service_ports(ports: Sequence[Json], found: Errors) -> None:
    seen: set[str] = set()
    for position, port in enumerate(ports):
        where, name = f"spec.ports[{position}]", port.get("name") or ""
        if name:
            found += [invalid(f"{where}.name", name, reason) for reason in names.dns_label(name)]
            if name in seen:
                found.append(duplicate(f"{where}.name", name))
            seen.add(name)
        elif len(ports) > 1:
            found.append(required(f"{where}.name"))
        number = port.get("port") or 0
        found += [invalid(f"{where}.port", number, reason) for reason in names.port_number(number)]
        one_of(port.get("protocol"), PROTOCOLS, f"{where}.protocol", found, needed=True)
        target = port.get("targetPort")
        reasons = (
            names.port_name(target) if isinstance(target, str) else names.port_number(target or 0)
        )
        found += [invalid(f"{where}.targetPort", target, reason) for reason in reasons]
        if port.get("appProtocol") is not None:
            found += [
                invalid(f"{where}.appProtocol", port["appProtocol"], reason)
                for reason in label_key(port["appProtocol"])
            ]


def _taken_ports(kind: str, ports: Sequence[Json], found: Errors) -> None:
    """No port twice, neither on the service nor on the nodes."""
    on_nodes: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        path, given = (
            f"spec.ports[{position}].nodePort",
            (port.get("protocol"), port.get("nodePort")),
        )
        if port.get("nodePort") and kind == "ClusterIP":
            found.append(forbidden(path, "may not be used when `type` is 'ClusterIP'"))
        if port.get("nodePort") and given in on_nodes:
            found.append(duplicate(path, port["nodePort"]))
        on_nodes.add(given)
    seen: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            found.append(
                duplicate(
                    f"spec.ports[{position}]",
                    {"port": port.get("port"), "protocol": port.get("protocol")},
                )
            )
        seen.add(key)


def _affinity(spec: Json, found: Errors) -> None:
    kind, config, path = (
        spec.get("sessionAffinity"),
        spec.get("sessionAffinityConfig"),
        "spec.sessionAffinityConfig",
    )
    one_of(kind, ("ClientIP", "None"), "spec.sessionAffinity", found, needed=True)
    if kind == "None" and config is not None:
        found.append(forbidden(path, "must not be set when session affinity is None"))
    if kind != "ClientIP":
        return
    why = "when session affinity type is ClientIP"
    client = (config or {}).get("clientIP")
    seconds = (client or {}).get("timeoutSeconds")
    if config is None:
        found.append(required(path, why))
    elif client is None:
        found.append(required(f"{path}.clientIP", why))
    elif seconds is None:
        found.append(required(f"{path}.clientIP.timeoutSeconds", why))
    elif not 0 < seconds <= LONGEST_AFFINITY:
        why = f"must be greater than 0 and less than {LONGEST_AFFINITY}"
        found.append(invalid(f"{path}.clientIP.timeoutSeconds", seconds, why))


def _cluster_addresses(spec: Json, known: Collection[str], found: Errors) -> None:
    first, given, path = (
        spec.get("clusterIP") or "",
        spec.get("clusterIPs") or [],
        "spec.clusterIPs",
    )
    if first and not given:
        found.append(required(path))
    elif first and given[0] != first:
        found.append(invalid(path, given, "first value must match `clusterIP`"))
    elif not first and given:
        found.append(invalid(path, given, "must be empty when `clusterIP` is not specified"))
    families = spec.get("ipFamilies") or []
    seen: set[str] = set()
    for position, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            found.append(not_supported(f"spec.ipFamilies[{position}]", family, ("IPv4", "IPv6")))
        if family in seen:
            found.append(duplicate(f"spec.ipFamilies[{position}]", family))
        seen.add(family)
    policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
    one_of(
        spec.get("ipFamilyPolicy"),
        policies,
        "spec.ipFamilyPolicy",
        found,
        known=spec.get("ipFamilyPolicy") == "",
    )
    read, wrong = [], False
    for position, text in enumerate(given):
        if position == 0 and text == "None":
            if len(given) > 1:
                wrong = True
                found.append(invalid(path, given, "'None' must be the first and only value"))
            continue
        before = len(found)
        address = addresses.address(text, f"{path}[{position}]", found, known)
        wrong = wrong or len(found) > before
        if address is not None:
            read.append(address)
    if len(given) > 2:
        found.append(invalid(path, given, "may only hold up to 2 values"))
    if wrong:
        return
    if len(given) > 1 and (len(given) != 2 or len(addresses.families(read)) != 2):
        found.append(invalid(path, given, "may specify no more than one IP for each IP family"))
    if not _headless(spec):
        for position, (family, address) in enumerate(zip(families, read, strict=False)):
            if family in ("IPv4", "IPv6") and f"IPv{address.version}" != family:
                why = f"expected an {family} value as indicated by `ipFamilies[{position}]`"
                found.append(invalid(f"{path}[{position}]", given[position], why))


def _source_ranges(spec: Json, notes: Json, before: Json, old: Json, found: Errors) -> None:
    ranges, kind = spec.get("loadBalancerSourceRanges") or (), spec.get("type")
    rule = "may only be used when `type` is 'LoadBalancer'"
    if ranges:
        path, known = (
            "spec.LoadBalancerSourceRanges",
            {text.strip() for text in before.get("loadBalancerSourceRanges") or ()},
        )
        if kind != "LoadBalancer":
            found.append(forbidden(path, rule))
        for position, text in enumerate(ranges):
            addresses.network(text.strip(), f"{path}[{position}]", found, known)
    elif _RANGES in notes:
        path = f"metadata.annotations[{_RANGES}]"
        if kind != "LoadBalancer":
            found.append(forbidden(path, rule))
        if (old.get("annotations") or {}).get(_RANGES) != notes[_RANGES] and notes[_RANGES].strip():
            for text in notes[_RANGES].split(","):
                addresses.network(text.strip(), path, found)


def _load_balancer_class(spec: Json, found: Errors) -> None:
    name = spec.get("loadBalancerClass")
    if name is None:
        return
    if spec.get("type") == "LoadBalancer":
        found += [invalid("spec.loadBalancerClass", name, reason) for reason in label_key(name)]
    else:
        found.append(
            forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'")
        )


def _needs_health_check(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _traffic(spec: Json, found: Errors) -> None:
    kind = spec.get("type")
    policy, path = spec.get("externalTrafficPolicy") or "", "spec.externalTrafficPolicy"
    if kind in EXTERNAL or (kind == "ClusterIP" and spec.get("externalIPs")):
        one_of(policy, ("Cluster", "Local"), path, found, needed=True)
    elif policy:
        found.append(invalid(path, policy, "may only be set for externally-accessible services"))
    port, path = spec.get("healthCheckNodePort") or 0, "spec.healthCheckNodePort"
    if not _needs_health_check(spec):
        if port:
            why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            found.append(invalid(path, port, why))
    elif not port:
        found.append(required(path))
    else:
        found += [invalid(path, port, reason) for reason in names.port_number(port)]
    inside, path = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    if inside is None and kind in ("ClusterIP", *EXTERNAL):
        found.append(required(path))
    elif inside is not None and inside not in ("Cluster", "Local"):
        found.append(not_supported(path, inside, ("Cluster", "Local")))
    spread = spec.get("trafficDistribution")
    ways = ("PreferClose", "PreferSameZone", "PreferSameNode")
    if spread is not None and spread not in ways:
        found.append(not_supported("spec.trafficDistribution", spread, ways, plain=True))


def service_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    entries = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if entries and (new.get("spec") or {}).get("type") != "LoadBalancer":
        found.append(
            forbidden(
                "status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'"
            )
        )
        return found
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = {entry["ip"] for entry in before if entry.get("ip")}
    for position, entry in enumerate(entries):
        path, address, mode = (
            f"status.loadBalancer.ingress[{position}]",
            entry.get("ip") or "",
            entry.get("ipMode"),
        )
        if address:
            addresses.address(address, f"{path}.ip", found, known)
        if mode is None and address:
            found.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
        elif mode is not None and not address:
            found.append(forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set"))
        elif mode is not None and mode not in ("Proxy", "VIP"):
            found.append(not_supported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
        if entry.get("hostname"):
            addresses.hostname(entry["hostname"], f"{path}.hostname", found)
    return found


# --- endpoints ------------------------------------------------------------------------------------


def is_of_pod(endpoint: Json) -> bool:
    """Whether an endpoint says which pod it is: where pods share the machine's network, that has a
    loopback address perhaps.

    Whether it is that pod's is for admission to see, which has the pods before it.
    """
    reference = endpoint.get("targetRef") or {}
    return reference.get("kind") == "Pod" and bool(reference.get("name"))


def endpoints(tree: Json) -> Errors:
    found = metadata(tree)
    given = tree.get("metadata") or {}
    own = (given.get("namespace"), given.get("name")) == ("default", "kubernetes")
    for position, subset in enumerate(tree.get("subsets") or ()):
        path = f"subsets[{position}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            found.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(name) or ()):
                _endpoint(
                    address, f"{path}.{name}[{index}]", found, loopback=own or is_of_pod(address)
                )
        ports = subset.get("ports") or ()
        for index, port in enumerate(ports):
            _endpoint_port(port, f"{path}.ports[{index}]", len(ports) > 1, found)
    return found


def endpoints_update(new: Json, old: Json) -> Errors:
    """What is there may stay as it is."""
    return (
        metadata(new)
        if (new.get("subsets") or []) == (old.get("subsets") or [])
        else endpoints(new)
    )


def _endpoint(address: Json, path: str, found: Errors, *, loopback: bool) -> None:
    text = address.get("ip") or ""
    addresses.address(text, f"{path}.ip", found)
    if address.get("hostname"):
        found += [
            invalid(f"{path}.hostname", address["hostname"], reason)
            for reason in names.dns_label(address["hostname"])
        ]
    if address.get("nodeName") is not None:
        found += [
            invalid(f"{path}.nodeName", address["nodeName"], reason)
            for reason in names.dns_subdomain(address["nodeName"])
        ]
    addresses.reachable(text, f"{path}.ip", found, loopback=loopback)


def _endpoint_port(port: Json, path: str, named: bool, found: Errors) -> None:
    name, number = port.get("name") or "", port.get("port") or 0
    if name:
        found += [invalid(f"{path}.name", name, reason) for reason in names.dns_label(name)]
    elif named:
        found.append(required(f"{path}.name"))
    found += [invalid(f"{path}.port", number, reason) for reason in names.port_number(number)]
    one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol", found, needed=True)
    if port.get("appProtocol") is not None:
        found += [
            invalid(f"{path}.appProtocol", port["appProtocol"], reason)
            for reason in label_key(port["appProtocol"])
        ]


# --- slices ---------------------------------------------------------------------------------------

MOST_ENDPOINTS, MOST_ADDRESSES, MOST_PORTS, MOST_HINTS, MOST_LABELS = 1000, 100, 20000, 8, 16


def endpoint_slice(tree: Json) -> Errors:
    found = metadata(tree)
    one_of(tree.get("addressType"), ("FQDN", "IPv4", "IPv6"), "addressType", found, needed=True)
    _slice_ports(tree.get("ports") or (), found)
    return found + _slice_endpoints(tree)


def _slice_ports(ports: Sequence[Json], found: Errors) -> None:
    if len(ports) > MOST_PORTS:
        found.append(too_many("ports", len(ports), MOST_PORTS))
        return
    seen: set[str] = set()
    for position, port in enumerate(ports):
        path, name = f"ports[{position}]", port.get("name") or ""
        if name:
            found += [invalid(f"{path}.name", name, reason) for reason in names.dns_label(name)]
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
        one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol", found, needed=True)
        if port.get("appProtocol") is not None:
            found += [
                invalid(f"{path}.appProtocol", port["appProtocol"], reason)
                for reason in label_key(port["appProtocol"])
            ]


def _slice_endpoints(tree: Json) -> Errors:
    found: Errors = []
    entries, kind, about = (
        tree.get("endpoints") or (),
        tree.get("addressType"),
        tree.get("metadata") or {},
    )
    own = (about.get("namespace"), about.get("name")) == ("default", "kubernetes")
    if len(entries) > MOST_ENDPOINTS:
        return [too_many("endpoints", len(entries), MOST_ENDPOINTS)]
    for position, endpoint in enumerate(entries):
        path, given = f"endpoints[{position}]", endpoint.get("addresses") or ()
        if not given:
            found.append(required(f"{path}.addresses", "must contain at least 1 address"))
        elif len(given) > MOST_ADDRESSES:
            found.append(too_many(f"{path}.addresses", len(given), MOST_ADDRESSES))
        for index, address in enumerate(given):
            _slice_address(
                address,
                kind,
                f"{path}.addresses",
                index,
                found,
                loopback=own or is_of_pod(endpoint),
            )
        if endpoint.get("nodeName") is not None:
            name = endpoint["nodeName"]
            found += [
                invalid(f"{path}.nodeName", name, reason) for reason in names.dns_subdomain(name)
            ]
        topology = endpoint.get("deprecatedTopology") or {}
        if len(topology) > MOST_LABELS:
            found.append(too_many(f"{path}.deprecatedTopology", len(topology), MOST_LABELS))
        labels(topology, f"{path}.deprecatedTopology", found)
        if endpoint.get("hostname") is not None:
            host = endpoint["hostname"]
            found += [invalid(f"{path}.hostname", host, reason) for reason in names.dns_label(host)]
        _hints(endpoint.get("hints") or {}, f"{path}.hints", found)
    return found


def _slice_address(
    address: str, kind: Any, path: str, index: int, found: Errors, *, loopback: bool
) -> None:
    where, before = f"{path}[{index}]", len(found)
    if kind == "FQDN":
        addresses.full_name(address, where, found)
    elif kind in ("IPv4", "IPv6"):
        read = addresses.address if kind == "IPv4" else addresses.canonical
        given = read(address, where, found)
        if len(found) > before or given is None:
            return
        if f"IPv{given.version}" != kind:
            found.append(invalid(path, address, f"must be an {kind} address"))
        addresses.reachable(address, where, found, loopback=loopback)


def _hints(hints: Json, path: str, found: Errors) -> None:
    for name, rule in (("forZones", label_value), ("forNodes", names.dns_subdomain)):
        entries = hints.get(name) or ()
        if len(entries) > MOST_HINTS:
            found.append(too_many(f"{path}.{name}", len(entries), MOST_HINTS))
            return
        seen: set[str] = set()
        for position, entry in enumerate(entries):
            where, text = f"{path}.{name}[{position}].name", entry.get("name") or ""
            if text in seen:
                found.append(duplicate(where, text))
            seen.add(text)
            found += [invalid(where, text, reason) for reason in rule(text)]


def endpoint_slice_update(new: Json, old: Json) -> Errors:
    found = endpoint_slice(new)
    if (new.get("endpoints") or []) == (old.get("endpoints") or []):
        found = [error for error in found if not error.field.startswith("endpoints")]
    immutable(new.get("addressType") or "", old.get("addressType") or "", "addressType", found)
    return found


CREATE = {
    ("", "Service"): service,
    ("", "Endpoints"): endpoints,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice,
}
UPDATE = {
    ("", "Service"): service_update,
    ("", "Endpoints"): endpoints_update,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice_update,
}
STATUS = {("", "Service"): service_status}
