"""The rules of network policies, ingresses, IP addresses and service CIDRs (local-cluster 5.9)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from hekla.api.text import addresses
from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors, named, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata, with_fixed

MAX_CONTROLLER_LENGTH = 250
_WILDCARD = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_is_wildcard = re.compile(_WILDCARD).fullmatch
_INVALID_PATH_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_INVALID_PATH_SUFFIXES = ("/..", "/.")


# --- policies -------------------------------------------------------------------------------------


def network_policy(tree: Json) -> Errors:
    return _policy(tree, ())


def network_policy_update(new: Json, old: Json) -> Errors:
    return _policy(new, frozenset(_ranges(old)))


def _ranges(tree: Json) -> Iterator[str]:
    spec = tree.get("spec") or {}
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                yield from (block.get("cidr") or "", *(block.get("except") or ()))


def _policy(tree: Json, known: Collection[str]) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    selector(spec.get("podSelector"), "spec.podSelector", errors)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{position}]"
            for index, port in enumerate(rule.get("ports") or ()):
                _policy_port(port, f"{path}.ports[{index}]", errors)
            for index, peer in enumerate(rule.get(peers) or ()):
                _peer(peer, f"{path}.{peers}[{index}]", known, errors)
    kinds = spec.get("policyTypes") or ()
    if len(kinds) > 2:
        errors.invalid("spec.policyTypes", list(kinds), "may not specify more than two policyTypes")
        return errors
    for position, kind in enumerate(kinds):
        if kind not in ("Ingress", "Egress"):
            errors.not_supported(f"spec.policyTypes[{position}]", kind, ("Ingress", "Egress"))
    return errors


def _policy_port(port: Json, path: str, errors: Errors) -> None:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in ("TCP", "UDP", "SCTP"):
        errors.not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP"))
    if number is None:
        if end is not None:
            errors.invalid(
                f"{path}.endPort", end, "may not be specified when `port` is not specified"
            )
    elif isinstance(number, str):
        if end is not None:
            errors.invalid(
                f"{path}.endPort", end, "may not be specified when `port` is non-numeric"
            )
        errors.malformed(f"{path}.port", number, names.port_name(number))
    else:
        errors.malformed(f"{path}.port", number, names.port_number(number))
        if end is not None:
            if end < number:
                errors.invalid(f"{path}.endPort", number, "must be greater than or equal to `port`")
            errors.malformed(f"{path}.endPort", end, names.port_number(end))


def _peer(peer: Json, path: str, known: Collection[str], errors: Errors) -> None:
    given = [
        name
        for name in ("podSelector", "namespaceSelector", "ipBlock")
        if peer.get(name) is not None
    ]
    for name in given:
        if name == "ipBlock":
            _block(peer["ipBlock"], f"{path}.ipBlock", known, errors)
        else:
            selector(peer[name], f"{path}.{name}", errors)
    if not given:
        errors.required(path, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in given:
        errors.forbidden(path, "may not specify both ipBlock and another peer")


def _block(block: Json, path: str, known: Collection[str], errors: Errors) -> None:
    if not block.get("cidr"):
        errors.required(f"{path}.cidr")
        return
    whole = addresses.network(block["cidr"], f"{path}.cidr", errors, known)
    if whole is None:
        return
    for position, text in enumerate(block.get("except") or ()):
        where = f"{path}.except[{position}]"
        part = addresses.network(text, where, errors, known)
        if part is not None and (
            part.version != whole.version
            or part.network_address not in whole
            or part.prefixlen <= whole.prefixlen
        ):
            errors.invalid(where, text, "must be a strict subset of `cidr`")


# --- ingresses ------------------------------------------------------------------------------------

_CLASS = "kubernetes.io/ingress.class"


def new_ingress(tree: Json) -> Errors:
    errors = ingress(tree)
    annotation = ((tree.get("metadata") or {}).get("annotations") or {}).get(_CLASS)
    name = (tree.get("spec") or {}).get("ingressClassName")
    if annotation is not None and name is not None and annotation != name:
        why = "must match `ingressClassName` when both are specified"
        errors.invalid(f"annotations.{_CLASS}", annotation, why)
    return errors


def ingress(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    rules, fallback = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and fallback is None:
        errors.invalid("spec", None, "either `defaultBackend` or `rules` must be specified")
    if fallback is not None:
        _backend(fallback, "spec.defaultBackend", errors)
    for position, rule in enumerate(rules):
        path = f"spec.rules[{position}]"
        if rule.get("host"):
            if addresses.read(rule["host"]) is not None:
                errors.invalid(
                    f"{path}.host", rule["host"], "must be a DNS name, not an IP address"
                )
            _host(rule["host"], f"{path}.host", errors)
        if rule.get("http") is not None:
            if not rule["http"].get("paths"):
                errors.required(f"{path}.http.paths")
            for index, entry in enumerate(rule["http"].get("paths") or ()):
                _path(entry, f"{path}.http.paths[{index}]", errors)
    for position, certificate in enumerate(spec.get("tls") or ()):
        for index, host in enumerate(certificate.get("hosts") or ()):
            _host(host, f"spec.tls[{position}].hosts[{index}]", errors)
        name = certificate.get("secretName") or ""
        if name:
            errors.malformed(f"spec.tls[{position}].secretName", name, names.dns_subdomain(name))
    name = spec.get("ingressClassName")
    if name is not None:
        errors.malformed("spec.ingressClassName", name, names.dns_subdomain(name))
    return errors


def _host(host: str, path: str, errors: Errors) -> None:
    if "*" not in host:
        errors.malformed(path, host, names.dns_subdomain(host))
        return
    if len(host) > 253:
        errors.invalid(path, host, "must be no more than 253 characters")
    if _is_wildcard(host) is None:
        why = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case "
        why += "alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
        errors.invalid(path, host, f"{why}regex used for validation is '{_WILDCARD}')")


def _path(entry: Json, path: str, errors: Errors) -> None:
    kind, text = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        errors.required(f"{path}.pathType", "pathType must be specified")
        return
    if kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            errors.invalid(f"{path}.path", text, "must be an absolute path")
        errors += [
            invalid(f"{path}.path", text, f"must not contain '{part}'")
            for part in _INVALID_PATH_SEQUENCES
            if part in text
        ]
        errors += [
            invalid(f"{path}.path", text, f"cannot end with '{part}'")
            for part in _INVALID_PATH_SUFFIXES
            if text.endswith(part)
        ]
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            errors.invalid(f"{path}.path", text, "must be an absolute path")
    else:
        errors.not_supported(
            f"{path}.pathType", kind, ("Exact", "ImplementationSpecific", "Prefix")
        )
    _backend(entry.get("backend") or {}, f"{path}.backend", errors)


def _backend(backend: Json, path: str, errors: Errors) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        errors.invalid(path, "", "resource or service backend is required")
    elif service is not None and resource is not None:
        errors.invalid(path, "", "cannot set both resource and service backends")
    elif service is None:
        reference(resource or {}, f"{path}.resource", errors)
    else:
        name, port = service.get("name") or "", service.get("port") or {}
        named(name, names.dns_label, f"{path}.service.name", errors)
        if port.get("name") and port.get("number"):
            errors.invalid(path, "", "cannot set both port name & port number")
        elif port.get("name"):
            errors.malformed(
                f"{path}.service.port.name", port["name"], names.port_name(port["name"])
            )
        elif port.get("number"):
            errors.malformed(
                f"{path}.service.port.number", port["number"], names.port_number(port["number"])
            )
        else:
            errors.required(path, "port name or number is required")


def reference(value: Json, path: str, errors: Errors) -> None:
    """A reference to an object by group, kind and name."""
    if value.get("apiGroup") is not None:
        errors.malformed(
            f"{path}.apiGroup", value["apiGroup"], names.dns_subdomain(value["apiGroup"])
        )
    for name in ("kind", "name"):
        named(value.get(name), names.path_segment, f"{path}.{name}", errors)


def ingress_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    known = {
        entry["ip"]
        for entry in ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        if entry.get("ip")
    }
    for position, entry in enumerate(
        ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    ):
        path = f"status.loadBalancer.ingress[{position}]"
        if entry.get("ip"):
            addresses.address(entry["ip"], f"{path}.ip", errors, known)
        if entry.get("hostname"):
            addresses.hostname(entry["hostname"], f"{path}.hostname", errors)
    return errors


def ingress_class(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    controller = spec.get("controller") or ""
    if len(controller.encode()) > MAX_CONTROLLER_LENGTH:
        errors.too_long("spec.controller", MAX_CONTROLLER_LENGTH)
    addresses.domain_path(controller, "spec.controller", errors)
    parameters, path = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return errors
    reference(parameters, path, errors)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errors.required(f"{path}.scope")
    elif scope not in ("Cluster", "Namespace"):
        errors.not_supported(f"{path}.scope", scope, ("Cluster", "Namespace"), plain=True)
    elif scope == "Namespace":
        if namespace is None:
            errors.required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            errors.malformed(f"{path}.namespace", namespace, names.dns_label(namespace))
    elif namespace is not None:
        errors.forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    return errors


# --- registers of addresses -----------------------------------------------------------------------


def ip_address(tree: Json) -> Errors:
    errors = metadata(tree)
    addresses.canonical((tree.get("metadata") or {}).get("name") or "", "metadata.name", errors)
    parent, path = (tree.get("spec") or {}).get("parentRef"), "spec.parentRef"
    if parent is None:
        errors.required(path)
        return errors
    if parent.get("group"):
        errors.malformed(f"{path}.group", parent["group"], names.dns_subdomain(parent["group"]))
    for name in ("resource", "name", "namespace"):
        if parent.get(name):
            errors.malformed(f"{path}.{name}", parent[name], names.path_segment(parent[name]))
        elif name != "namespace":
            errors.required(f"{path}.{name}")
    return errors


def service_cidr(tree: Json) -> Errors:
    errors = metadata(tree)
    _cidrs((tree.get("spec") or {}).get("cidrs") or [], errors)
    return errors


def _cidrs(ranges: list[str], errors: Errors) -> None:
    if not ranges:
        errors.required("spec.cidrs", "at least one CIDR required")
        return
    if len(ranges) > 2:
        errors.invalid("spec.cidrs", {"cidrs": ranges}, "may only hold up to 2 values")
        return
    given = []
    for position, text in enumerate(ranges):
        network = addresses.network(text, f"spec.cidrs[{position}]", errors)
        if network is not None:
            given.append(network)
            if str(network) != text and str(network.network_address) == text.partition("/")[0]:
                errors.invalid(
                    f"spec.cidrs[{position}]", text, f'must be in canonical form ("{network}")'
                )
    if len(given) == 2 and given[0].version == given[1].version:
        why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.invalid("spec.cidrs", ranges, why)


def service_cidr_update(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    ranges = (new.get("spec") or {}).get("cidrs") or []
    before = (old.get("spec") or {}).get("cidrs") or []
    if len(ranges) == len(before) or (len(before) == 1 and len(ranges) == 2):
        for position, text in enumerate(before):
            immutable(ranges[position], text, f"spec.cidrs[{position}]", errors)
        if len(ranges) != len(before):
            _cidrs(ranges, errors)
    else:
        immutable(ranges, before, "spec.cidrs", errors)
    return errors


CREATE = {
    ("networking.k8s.io", "NetworkPolicy"): network_policy,
    ("networking.k8s.io", "Ingress"): new_ingress,
    ("networking.k8s.io", "IngressClass"): ingress_class,
    ("networking.k8s.io", "IPAddress"): ip_address,
    ("networking.k8s.io", "ServiceCIDR"): service_cidr,
}
UPDATE = {
    ("networking.k8s.io", "NetworkPolicy"): network_policy_update,
    ("networking.k8s.io", "Ingress"): lambda new, old: ingress(new),
    ("networking.k8s.io", "IngressClass"): with_fixed(
        ingress_class, "spec.controller", texts=("spec.controller",)
    ),
    ("networking.k8s.io", "IPAddress"): with_fixed(metadata, "spec.parentRef"),
    ("networking.k8s.io", "ServiceCIDR"): service_cidr_update,
}
STATUS = {("networking.k8s.io", "Ingress"): ingress_status}
