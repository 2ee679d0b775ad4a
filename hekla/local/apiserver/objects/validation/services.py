"""The rules of services, endpoints and endpoint slices (local-cluster 5.5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hekla.api.text import addresses
from hekla.api.text.fieldrules import Errors, label_key, label_value, labels, named, one_of
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
EXTERNALLY_ACCESSIBLE_TYPES = ("LoadBalancer", "NodePort")
MAX_AFFINITY_TIMEOUT_SECONDS = 86400
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def service(tree: Json) -> Errors:
    errors = metadata(tree)
    _service(tree, None, errors)
    return errors


def service_update(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        _addresses_change(spec, before, errors)
    if spec.get("type") == before.get("type") == "LoadBalancer":
        kind = spec.get("loadBalancerClass")
        if kind != before.get("loadBalancerClass"):
            errors.invalid("spec.loadBalancerClass", kind, "may not change once set")
    _load_balancer_class(spec, errors)
    checked = _needs_health_check(spec) and _needs_health_check(before)
    if checked and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
        errors.forbidden("spec.healthCheckNodePort", "field is immutable")
    _service(new, old, errors)
    return errors


def _headless(spec: Json) -> bool:
    return "None" in (spec.get("clusterIPs") or [spec.get("clusterIP")])[:1]


def _addresses_change(spec: Json, before: Json, errors: Errors) -> None:
    """The first cluster IP and its family may not change; a second one may be added and removed."""
    ours, theirs = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    single = spec.get("ipFamilyPolicy") == "SingleStack"
    if not (_headless(spec) and _headless(before)):
        path = "spec.clusterIPs[0]"
        if len(ours) == len(theirs):
            for position, address in enumerate(theirs):
                if address != ours[position]:
                    errors.invalid(f"spec.clusterIPs[{position}]", ours, "may not change once set")
        else:
            if not ours:
                errors.invalid(path, None, "primary clusterIP can not be unset")
            elif theirs and ours[0] != theirs[0]:
                errors.invalid(path, ours, "may not change once set")
            if len(theirs) > len(ours) == 1 and not single:
                why = "must be set to 'SingleStack' when releasing the secondary clusterIP"
                errors.invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why)
    if _headless(spec) or _headless(before):
        return
    families, previous = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    path = "spec.ipFamilies[0]"
    if len(families) == len(previous):
        for position, family in enumerate(previous):
            if family != families[position]:
                errors.invalid(path, families, "may not change once set")
        return
    if len(previous) > len(families) and not ours:
        errors.invalid(path, families or None, "primary ipFamily can not be unset")
    if families and previous and families[0] != previous[0]:
        errors.invalid(path, ours, "may not change once set")
    if len(previous) > len(families) == 1 and not single:
        why = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        errors.invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), why)


MAX_SERVICE_PORTS = 1000
"""A bound of ours: each port is a listener in the network of every node, and seven environment
variables in every pod of the namespace; the environment of a process is bounded."""


def _service(tree: Json, old: Json | None, errors: Errors) -> None:
    spec, before = tree.get("spec") or {}, (old or {}).get("spec") or {}
    kind, ports = spec.get("type") or "", spec.get("ports") or ()
    notes = (tree.get("metadata") or {}).get("annotations") or {}
    if _MODE in notes and _HINTS in notes and notes[_MODE] != notes[_HINTS]:
        why = f"must match annotations[{_HINTS}] when both are specified"
        errors.invalid(f"metadata.annotations[{_MODE}]", notes[_MODE], why)
    if not ports and not _headless(spec) and kind != "ExternalName":
        errors.required("spec.ports")
    if kind in EXTERNALLY_ACCESSIBLE_TYPES and _headless(spec):
        errors.invalid(
            "spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"
        )
    if kind == "ExternalName":
        _external_name(spec, errors)
    if len(ports) > MAX_SERVICE_PORTS and len(ports) > len(before.get("ports") or ()):
        errors.too_many("spec.ports", len(ports), MAX_SERVICE_PORTS)
        return  # an error for each of them would not help
    _service_ports(ports, errors)
    labels(spec.get("selector"), "spec.selector", errors)
    _affinity(spec, errors)
    if kind != "ExternalName":
        _cluster_addresses(spec, frozenset(before.get("clusterIPs") or ()), errors)
    external = frozenset(before.get("externalIPs") or ())
    for position, address in enumerate(spec.get("externalIPs") or ()):
        path, known = f"spec.externalIPs[{position}]", len(errors)
        addresses.address(address, path, errors, external)
        if len(errors) == known:
            addresses.reachable(address, path, errors)
    one_of(kind, TYPES, "spec.type", errors, needed=True)
    _duplicate_ports(kind, ports, errors)
    _source_ranges(spec, notes, before, (old or {}).get("metadata") or {}, errors)
    if kind != "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not None:
        errors.forbidden(
            "spec.allocateLoadBalancerNodePorts", "may only be used when `type` is 'LoadBalancer'"
        )
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is None:
        errors.required("allocateLoadBalancerNodePorts")
    if old is None:
        _load_balancer_class(spec, errors)
    _traffic(spec, errors)


def _external_name(spec: Json, errors: Errors) -> None:
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            errors.forbidden(f"spec.{name}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    named(name, names.dns_subdomain, "spec.externalName", errors)


def _service_ports(ports: Sequence[Json], errors: Errors) -> None:
    seen: set[str] = set()
    for position, port in enumerate(ports):
        where, name = f"spec.ports[{position}]", port.get("name") or ""
        if name:
            errors.malformed(f"{where}.name", name, names.dns_label(name))
            if name in seen:
                errors.duplicate(f"{where}.name", name)
            seen.add(name)
        elif len(ports) > 1:
            errors.required(f"{where}.name")
        number = port.get("port") or 0
        errors.malformed(f"{where}.port", number, names.port_number(number))
        one_of(port.get("protocol"), PROTOCOLS, f"{where}.protocol", errors, needed=True)
        target = port.get("targetPort")
        reasons = (
            names.port_name(target) if isinstance(target, str) else names.port_number(target or 0)
        )
        errors.malformed(f"{where}.targetPort", target, reasons)
        if port.get("appProtocol") is not None:
            errors.malformed(
                f"{where}.appProtocol", port["appProtocol"], label_key(port["appProtocol"])
            )


def _duplicate_ports(kind: str, ports: Sequence[Json], errors: Errors) -> None:
    """No port and no node port may appear twice."""
    on_nodes: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        path = f"spec.ports[{position}].nodePort"
        given = (port.get("protocol"), port.get("nodePort"))
        if port.get("nodePort") and kind == "ClusterIP":
            errors.forbidden(path, "may not be used when `type` is 'ClusterIP'")
        if port.get("nodePort") and given in on_nodes:
            errors.duplicate(path, port["nodePort"])
        on_nodes.add(given)
    seen: set[tuple[Any, Any]] = set()
    for position, port in enumerate(ports):
        key = (port.get("protocol"), port.get("port"))
        if key in seen:
            errors.duplicate(
                f"spec.ports[{position}]",
                {"port": port.get("port"), "protocol": port.get("protocol")},
            )
        seen.add(key)


def _affinity(spec: Json, errors: Errors) -> None:
    kind = spec.get("sessionAffinity")
    config = spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    one_of(kind, ("ClientIP", "None"), "spec.sessionAffinity", errors, needed=True)
    if kind == "None" and config is not None:
        errors.forbidden(path, "must not be set when session affinity is None")
    if kind != "ClientIP":
        return
    why = "when session affinity type is ClientIP"
    client = (config or {}).get("clientIP")
    seconds = (client or {}).get("timeoutSeconds")
    if config is None:
        errors.required(path, why)
    elif client is None:
        errors.required(f"{path}.clientIP", why)
    elif seconds is None:
        errors.required(f"{path}.clientIP.timeoutSeconds", why)
    elif not 0 < seconds <= MAX_AFFINITY_TIMEOUT_SECONDS:
        why = f"must be greater than 0 and less than {MAX_AFFINITY_TIMEOUT_SECONDS}"
        errors.invalid(f"{path}.clientIP.timeoutSeconds", seconds, why)


def _cluster_addresses(spec: Json, known: Collection[str], errors: Errors) -> None:
    first = spec.get("clusterIP") or ""
    given = spec.get("clusterIPs") or []
    path = "spec.clusterIPs"
    if first and not given:
        errors.required(path)
    elif first and given[0] != first:
        errors.invalid(path, given, "first value must match `clusterIP`")
    elif not first and given:
        errors.invalid(path, given, "must be empty when `clusterIP` is not specified")
    families = spec.get("ipFamilies") or []
    seen: set[str] = set()
    for position, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            errors.not_supported(f"spec.ipFamilies[{position}]", family, ("IPv4", "IPv6"))
        if family in seen:
            errors.duplicate(f"spec.ipFamilies[{position}]", family)
        seen.add(family)
    policies = ("PreferDualStack", "RequireDualStack", "SingleStack")
    one_of(
        spec.get("ipFamilyPolicy"),
        policies,
        "spec.ipFamilyPolicy",
        errors,
        known=spec.get("ipFamilyPolicy") == "",
    )
    read, wrong = [], False
    for position, text in enumerate(given):
        if position == 0 and text == "None":
            if len(given) > 1:
                wrong = True
                errors.invalid(path, given, "'None' must be the first and only value")
            continue
        before = len(errors)
        address = addresses.address(text, f"{path}[{position}]", errors, known)
        wrong = wrong or len(errors) > before
        if address is not None:
            read.append(address)
    if len(given) > 2:
        errors.invalid(path, given, "may only hold up to 2 values")
    if wrong:
        return
    if len(given) > 1 and (len(given) != 2 or len(addresses.families(read)) != 2):
        errors.invalid(path, given, "may specify no more than one IP for each IP family")
    if not _headless(spec):
        for position, (family, address) in enumerate(zip(families, read, strict=False)):
            if family in ("IPv4", "IPv6") and f"IPv{address.version}" != family:
                why = f"expected an {family} value as indicated by `ipFamilies[{position}]`"
                errors.invalid(f"{path}[{position}]", given[position], why)


def _source_ranges(spec: Json, notes: Json, before: Json, old: Json, errors: Errors) -> None:
    ranges, kind = spec.get("loadBalancerSourceRanges") or (), spec.get("type")
    rule = "may only be used when `type` is 'LoadBalancer'"
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        known = {text.strip() for text in before.get("loadBalancerSourceRanges") or ()}
        if kind != "LoadBalancer":
            errors.forbidden(path, rule)
        for position, text in enumerate(ranges):
            addresses.network(text.strip(), f"{path}[{position}]", errors, known)
    elif _RANGES in notes:
        path = f"metadata.annotations[{_RANGES}]"
        if kind != "LoadBalancer":
            errors.forbidden(path, rule)
        if (old.get("annotations") or {}).get(_RANGES) != notes[_RANGES] and notes[_RANGES].strip():
            for text in notes[_RANGES].split(","):
                addresses.network(text.strip(), path, errors)


def _load_balancer_class(spec: Json, errors: Errors) -> None:
    name = spec.get("loadBalancerClass")
    if name is None:
        return
    if spec.get("type") == "LoadBalancer":
        errors.malformed("spec.loadBalancerClass", name, label_key(name))
    else:
        errors.forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'")


def _needs_health_check(spec: Json) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _traffic(spec: Json, errors: Errors) -> None:
    kind = spec.get("type")
    policy, path = spec.get("externalTrafficPolicy") or "", "spec.externalTrafficPolicy"
    if kind in EXTERNALLY_ACCESSIBLE_TYPES or (kind == "ClusterIP" and spec.get("externalIPs")):
        one_of(policy, ("Cluster", "Local"), path, errors, needed=True)
    elif policy:
        errors.invalid(path, policy, "may only be set for externally-accessible services")
    port, path = spec.get("healthCheckNodePort") or 0, "spec.healthCheckNodePort"
    if not _needs_health_check(spec):
        if port:
            why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errors.invalid(path, port, why)
    elif not port:
        errors.required(path)
    else:
        errors.malformed(path, port, names.port_number(port))
    inside, path = spec.get("internalTrafficPolicy"), "spec.internalTrafficPolicy"
    if inside is None and kind in ("ClusterIP", *EXTERNALLY_ACCESSIBLE_TYPES):
        errors.required(path)
    elif inside is not None and inside not in ("Cluster", "Local"):
        errors.not_supported(path, inside, ("Cluster", "Local"))
    spread = spec.get("trafficDistribution")
    ways = ("PreferClose", "PreferSameZone", "PreferSameNode")
    if spread is not None and spread not in ways:
        errors.not_supported("spec.trafficDistribution", spread, ways, plain=True)


def service_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    entries = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    if entries and (new.get("spec") or {}).get("type") != "LoadBalancer":
        errors.forbidden(
            "status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'"
        )
        return errors
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = {entry["ip"] for entry in before if entry.get("ip")}
    for position, entry in enumerate(entries):
        path = f"status.loadBalancer.ingress[{position}]"
        address = entry.get("ip") or ""
        mode = entry.get("ipMode")
        if address:
            addresses.address(address, f"{path}.ip", errors, known)
        if mode is None and address:
            errors.required(f"{path}.ipMode", "must be specified when `ip` is set")
        elif mode is not None and not address:
            errors.forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
        elif mode is not None and mode not in ("Proxy", "VIP"):
            errors.not_supported(f"{path}.ipMode", mode, ("Proxy", "VIP"))
        if entry.get("hostname"):
            addresses.hostname(entry["hostname"], f"{path}.hostname", errors)
    return errors


# --- endpoints ------------------------------------------------------------------------------------


def is_of_pod(endpoint: Json) -> bool:
    """Whether an endpoint refers to a pod. Where pods share the machine's network such an endpoint
    may have a loopback address.

    Admission, which knows the pods, checks that the address is that pod's.
    """
    reference = endpoint.get("targetRef") or {}
    return reference.get("kind") == "Pod" and bool(reference.get("name"))


def endpoints(tree: Json) -> Errors:
    errors = metadata(tree)
    given = tree.get("metadata") or {}
    own = (given.get("namespace"), given.get("name")) == ("default", "kubernetes")
    for position, subset in enumerate(tree.get("subsets") or ()):
        path = f"subsets[{position}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.required(path, "must specify `addresses` or `notReadyAddresses`")
        for name in ("addresses", "notReadyAddresses"):
            for index, address in enumerate(subset.get(name) or ()):
                _endpoint(
                    address, f"{path}.{name}[{index}]", errors, loopback=own or is_of_pod(address)
                )
        ports = subset.get("ports") or ()
        for index, port in enumerate(ports):
            _endpoint_port(port, f"{path}.ports[{index}]", len(ports) > 1, errors)
    return errors


def endpoints_update(new: Json, old: Json) -> Errors:
    """Addresses that were there before are not checked again."""
    return (
        metadata(new)
        if (new.get("subsets") or []) == (old.get("subsets") or [])
        else endpoints(new)
    )


def _endpoint(address: Json, path: str, errors: Errors, *, loopback: bool) -> None:
    text = address.get("ip") or ""
    addresses.address(text, f"{path}.ip", errors)
    if address.get("hostname"):
        errors.malformed(
            f"{path}.hostname", address["hostname"], names.dns_label(address["hostname"])
        )
    if address.get("nodeName") is not None:
        errors.malformed(
            f"{path}.nodeName", address["nodeName"], names.dns_subdomain(address["nodeName"])
        )
    addresses.reachable(text, f"{path}.ip", errors, loopback=loopback)


def _endpoint_port(port: Json, path: str, named: bool, errors: Errors) -> None:
    name, number = port.get("name") or "", port.get("port") or 0
    if name:
        errors.malformed(f"{path}.name", name, names.dns_label(name))
    elif named:
        errors.required(f"{path}.name")
    errors.malformed(f"{path}.port", number, names.port_number(number))
    one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol", errors, needed=True)
    if port.get("appProtocol") is not None:
        errors.malformed(f"{path}.appProtocol", port["appProtocol"], label_key(port["appProtocol"]))


# --- slices ---------------------------------------------------------------------------------------

MAX_ENDPOINTS, MAX_ADDRESSES, MAX_PORTS, MAX_HINTS, MAX_TOPOLOGY_LABELS = 1000, 100, 20000, 8, 16


def endpoint_slice(tree: Json) -> Errors:
    errors = metadata(tree)
    one_of(tree.get("addressType"), ("FQDN", "IPv4", "IPv6"), "addressType", errors, needed=True)
    _slice_ports(tree.get("ports") or (), errors)
    _slice_endpoints(tree, errors)
    return errors


def _slice_ports(ports: Sequence[Json], errors: Errors) -> None:
    if len(ports) > MAX_PORTS:
        errors.too_many("ports", len(ports), MAX_PORTS)
        return
    seen: set[str] = set()
    for position, port in enumerate(ports):
        path, name = f"ports[{position}]", port.get("name") or ""
        if name:
            errors.malformed(f"{path}.name", name, names.dns_label(name))
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)
        one_of(port.get("protocol"), PROTOCOLS, f"{path}.protocol", errors, needed=True)
        if port.get("appProtocol") is not None:
            errors.malformed(
                f"{path}.appProtocol", port["appProtocol"], label_key(port["appProtocol"])
            )


def _slice_endpoints(tree: Json, errors: Errors) -> None:
    entries = tree.get("endpoints") or ()
    kind = tree.get("addressType")
    about = tree.get("metadata") or {}
    own = (about.get("namespace"), about.get("name")) == ("default", "kubernetes")
    if len(entries) > MAX_ENDPOINTS:
        errors.too_many("endpoints", len(entries), MAX_ENDPOINTS)
        return
    for position, endpoint in enumerate(entries):
        path, given = f"endpoints[{position}]", endpoint.get("addresses") or ()
        if not given:
            errors.required(f"{path}.addresses", "must contain at least 1 address")
        elif len(given) > MAX_ADDRESSES:
            errors.too_many(f"{path}.addresses", len(given), MAX_ADDRESSES)
        for index, address in enumerate(given):
            _slice_address(
                address,
                kind,
                f"{path}.addresses",
                index,
                errors,
                loopback=own or is_of_pod(endpoint),
            )
        if endpoint.get("nodeName") is not None:
            name = endpoint["nodeName"]
            errors.malformed(f"{path}.nodeName", name, names.dns_subdomain(name))
        topology = endpoint.get("deprecatedTopology") or {}
        if len(topology) > MAX_TOPOLOGY_LABELS:
            errors.too_many(f"{path}.deprecatedTopology", len(topology), MAX_TOPOLOGY_LABELS)
        labels(topology, f"{path}.deprecatedTopology", errors)
        if endpoint.get("hostname") is not None:
            host = endpoint["hostname"]
            errors.malformed(f"{path}.hostname", host, names.dns_label(host))
        _hints(endpoint.get("hints") or {}, f"{path}.hints", errors)


def _slice_address(
    address: str, kind: Any, path: str, index: int, errors: Errors, *, loopback: bool
) -> None:
    where, before = f"{path}[{index}]", len(errors)
    if kind == "FQDN":
        addresses.full_name(address, where, errors)
    elif kind in ("IPv4", "IPv6"):
        read = addresses.address if kind == "IPv4" else addresses.canonical
        given = read(address, where, errors)
        if len(errors) > before or given is None:
            return
        if f"IPv{given.version}" != kind:
            errors.invalid(path, address, f"must be an {kind} address")
        addresses.reachable(address, where, errors, loopback=loopback)


def _hints(hints: Json, path: str, errors: Errors) -> None:
    for name, rule in (("forZones", label_value), ("forNodes", names.dns_subdomain)):
        entries = hints.get(name) or ()
        if len(entries) > MAX_HINTS:
            errors.too_many(f"{path}.{name}", len(entries), MAX_HINTS)
            return
        seen: set[str] = set()
        for position, entry in enumerate(entries):
            where, text = f"{path}.{name}[{position}].name", entry.get("name") or ""
            if text in seen:
                errors.duplicate(where, text)
            seen.add(text)
            errors.malformed(where, text, rule(text))


def endpoint_slice_update(new: Json, old: Json) -> Errors:
    errors = endpoint_slice(new)
    if (new.get("endpoints") or []) == (old.get("endpoints") or []):
        errors = Errors(error for error in errors if not error.field.startswith("endpoints"))
    immutable(new.get("addressType") or "", old.get("addressType") or "", "addressType", errors)
    return errors


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
