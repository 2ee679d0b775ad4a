"""The rules of network policies, ingresses and the registers of addresses (local-cluster 5.9)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from hekla.api.text import addresses
from hekla.api.text.fieldrules import Errors, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import (
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from hekla.local.apiserver.objects.validation.metadata import fixed_text, immutable, metadata

LONGEST_CONTROLLER = 250
_WILDCARD = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_is_wildcard = re.compile(_WILDCARD).fullmatch
_IN_NO_PATH = ("//", "/./", "/../", "%2f", "%2F")
_ENDS_NO_PATH = ("/..", "/.")


# --- policies -------------------------------------------------------------------------------------


def network_policy(tree: Json) -> Errors:
    return _policy(tree, ())


def network_policy_update(new: Json, old: Json) -> Errors:
    return _policy(new, tuple(_ranges(old)))


def _ranges(tree: Json) -> Iterator[str]:
    spec = tree.get("spec") or {}
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                yield from (block.get("cidr") or "", *(block.get("except") or ()))


def _policy(tree: Json, known: Collection[str]) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    selector(spec.get("podSelector"), "spec.podSelector", found)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{position}]"
            for index, port in enumerate(rule.get("ports") or ()):
                _policy_port(port, f"{path}.ports[{index}]", found)
            for index, peer in enumerate(rule.get(peers) or ()):
                _peer(peer, f"{path}.{peers}[{index}]", known, found)
    kinds = spec.get("policyTypes") or ()
    if len(kinds) > 2:
        found.append(
            invalid("spec.policyTypes", list(kinds), "may not specify more than two policyTypes")
        )
        return found
    for position, kind in enumerate(kinds):
        if kind not in ("Ingress", "Egress"):
            found.append(
                not_supported(f"spec.policyTypes[{position}]", kind, ("Ingress", "Egress"))
            )
    return found


def _policy_port(port: Json, path: str, found: Errors) -> None:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in ("TCP", "UDP", "SCTP"):
        found.append(not_supported(f"{path}.protocol", protocol, ("TCP", "UDP", "SCTP")))
    if number is None:
        if end is not None:
            found.append(
                invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified")
            )
    elif isinstance(number, str):
        if end is not None:
            found.append(
                invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric")
            )
        found += [invalid(f"{path}.port", number, reason) for reason in names.port_name(number)]
    else:
        found += [invalid(f"{path}.port", number, reason) for reason in names.port_number(number)]
        if end is not None:
            if end < number:
                found.append(
                    invalid(f"{path}.endPort", number, "must be greater than or equal to `port`")
                )
            found += [invalid(f"{path}.endPort", end, reason) for reason in names.port_number(end)]


def _peer(peer: Json, path: str, known: Collection[str], found: Errors) -> None:
    given = [
        name
        for name in ("podSelector", "namespaceSelector", "ipBlock")
        if peer.get(name) is not None
    ]
    for name in given:
        if name == "ipBlock":
            _block(peer["ipBlock"], f"{path}.ipBlock", known, found)
        else:
            selector(peer[name], f"{path}.{name}", found)
    if not given:
        found.append(required(path, "must specify a peer"))
    elif len(given) > 1 and "ipBlock" in given:
        found.append(forbidden(path, "may not specify both ipBlock and another peer"))


def _block(block: Json, path: str, known: Collection[str], found: Errors) -> None:
    if not block.get("cidr"):
        found.append(required(f"{path}.cidr"))
        return
    whole = addresses.network(block["cidr"], f"{path}.cidr", found, known)
    if whole is None:
        return
    for position, text in enumerate(block.get("except") or ()):
        where = f"{path}.except[{position}]"
        part = addresses.network(text, where, found, known)
        if part is not None and (
            part.version != whole.version
            or part.network_address not in whole
            or part.prefixlen <= whole.prefixlen
        ):
            found.append(invalid(where, text, "must be a strict subset of `cidr`"))


# --- ingresses ------------------------------------------------------------------------------------

_CLASS = "kubernetes.io/ingress.class"


def new_ingress(tree: Json) -> Errors:
    found = ingress(tree)
    said = ((tree.get("metadata") or {}).get("annotations") or {}).get(_CLASS)
    name = (tree.get("spec") or {}).get("ingressClassName")
    if said is not None and name is not None and said != name:
        found.append(
            invalid(
                f"annotations.{_CLASS}",
                said,
                "must match `ingressClassName` when both are specified",
            )
        )
    return found


def ingress(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    rules, fallback = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and fallback is None:
        found.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if fallback is not None:
        _backend(fallback, "spec.defaultBackend", found)
    for position, rule in enumerate(rules):
        path = f"spec.rules[{position}]"
        if rule.get("host"):
            if addresses.read(rule["host"]) is not None:
                found.append(
                    invalid(f"{path}.host", rule["host"], "must be a DNS name, not an IP address")
                )
            _host(rule["host"], f"{path}.host", found)
        if rule.get("http") is not None:
            if not rule["http"].get("paths"):
                found.append(required(f"{path}.http.paths"))
            for index, entry in enumerate(rule["http"].get("paths") or ()):
                _path(entry, f"{path}.http.paths[{index}]", found)
    for position, certificate in enumerate(spec.get("tls") or ()):
        for index, host in enumerate(certificate.get("hosts") or ()):
            _host(host, f"spec.tls[{position}].hosts[{index}]", found)
        name = certificate.get("secretName") or ""
        if name:
            found += [
                invalid(f"spec.tls[{position}].secretName", name, reason)
                for reason in names.dns_subdomain(name)
            ]
    name = spec.get("ingressClassName")
    if name is not None:
        found += [
            invalid("spec.ingressClassName", name, reason) for reason in names.dns_subdomain(name)
        ]
    return found


def _host(host: str, path: str, found: Errors) -> None:
    if "*" not in host:
        found += [invalid(path, host, reason) for reason in names.dns_subdomain(host)]
        return
    if len(host) > 253:
        found.append(invalid(path, host, "must be no more than 253 characters"))
    if _is_wildcard(host) is None:
        why = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case "
        why += "alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
        found.append(invalid(path, host, f"{why}regex used for validation is '{_WILDCARD}')"))


def _path(entry: Json, path: str, found: Errors) -> None:
    kind, text = entry.get("pathType"), entry.get("path") or ""
    if kind is None:
        found.append(required(f"{path}.pathType", "pathType must be specified"))
        return
    if kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            found.append(invalid(f"{path}.path", text, "must be an absolute path"))
        found += [
            invalid(f"{path}.path", text, f"must not contain '{part}'")
            for part in _IN_NO_PATH
            if part in text
        ]
        found += [
            invalid(f"{path}.path", text, f"cannot end with '{part}'")
            for part in _ENDS_NO_PATH
            if text.endswith(part)
        ]
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            found.append(invalid(f"{path}.path", text, "must be an absolute path"))
    else:
        found.append(
            not_supported(f"{path}.pathType", kind, ("Exact", "ImplementationSpecific", "Prefix"))
        )
    _backend(entry.get("backend") or {}, f"{path}.backend", found)


def _backend(backend: Json, path: str, found: Errors) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        found.append(invalid(path, "", "resource or service backend is required"))
    elif service is not None and resource is not None:
        found.append(invalid(path, "", "cannot set both resource and service backends"))
    elif service is None:
        reference(resource or {}, f"{path}.resource", found)
    else:
        name, port = service.get("name") or "", service.get("port") or {}
        if not name:
            found.append(required(f"{path}.service.name"))
        else:
            found += [
                invalid(f"{path}.service.name", name, reason) for reason in names.dns_label(name)
            ]
        if port.get("name") and port.get("number"):
            found.append(invalid(path, "", "cannot set both port name & port number"))
        elif port.get("name"):
            found += [
                invalid(f"{path}.service.port.name", port["name"], reason)
                for reason in names.port_name(port["name"])
            ]
        elif port.get("number"):
            found += [
                invalid(f"{path}.service.port.number", port["number"], why)
                for why in names.port_number(port["number"])
            ]
        else:
            found.append(required(path, "port name or number is required"))


def reference(value: Json, path: str, found: Errors) -> None:
    """Names an object of some kind."""
    if value.get("apiGroup") is not None:
        found += [
            invalid(f"{path}.apiGroup", value["apiGroup"], reason)
            for reason in names.dns_subdomain(value["apiGroup"])
        ]
    for name in ("kind", "name"):
        if not value.get(name):
            found.append(required(f"{path}.{name}"))
        else:
            found += [
                invalid(f"{path}.{name}", value[name], reason)
                for reason in names.path_segment(value[name])
            ]


def ingress_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
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
            addresses.address(entry["ip"], f"{path}.ip", found, known)
        if entry.get("hostname"):
            addresses.hostname(entry["hostname"], f"{path}.hostname", found)
    return found


def ingress_class(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    controller = spec.get("controller") or ""
    if len(controller.encode()) > LONGEST_CONTROLLER:
        found.append(too_long("spec.controller", LONGEST_CONTROLLER))
    addresses.domain_path(controller, "spec.controller", found)
    parameters, path = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return found
    reference(parameters, path, found)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        found.append(required(f"{path}.scope"))
    elif scope not in ("Cluster", "Namespace"):
        found.append(not_supported(f"{path}.scope", scope, ("Cluster", "Namespace"), plain=True))
    elif scope == "Namespace":
        if namespace is None:
            found.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            found += [
                invalid(f"{path}.namespace", namespace, reason)
                for reason in names.dns_label(namespace)
            ]
    elif namespace is not None:
        found.append(forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    return found


def ingress_class_update(new: Json, old: Json) -> Errors:
    found = ingress_class(new)
    fixed_text(new.get("spec") or {}, old.get("spec") or {}, "controller", "spec.controller", found)
    return found


# --- registers of addresses -----------------------------------------------------------------------


def ip_address(tree: Json) -> Errors:
    found = metadata(tree)
    addresses.canonical((tree.get("metadata") or {}).get("name") or "", "metadata.name", found)
    parent, path = (tree.get("spec") or {}).get("parentRef"), "spec.parentRef"
    if parent is None:
        found.append(required(path))
        return found
    if parent.get("group"):
        found += [
            invalid(f"{path}.group", parent["group"], reason)
            for reason in names.dns_subdomain(parent["group"])
        ]
    for name in ("resource", "name", "namespace"):
        if parent.get(name):
            found += [
                invalid(f"{path}.{name}", parent[name], reason)
                for reason in names.path_segment(parent[name])
            ]
        elif name != "namespace":
            found.append(required(f"{path}.{name}"))
    return found


def ip_address_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    immutable(spec.get("parentRef"), before.get("parentRef"), "spec.parentRef", found)
    return found


def service_cidr(tree: Json) -> Errors:
    found = metadata(tree)
    _cidrs((tree.get("spec") or {}).get("cidrs") or [], found)
    return found


def _cidrs(ranges: list[str], found: Errors) -> None:
    if not ranges:
        found.append(required("spec.cidrs", "at least one CIDR required"))
        return
    if len(ranges) > 2:
        found.append(invalid("spec.cidrs", {"cidrs": ranges}, "may only hold up to 2 values"))
        return
    given = []
    for position, text in enumerate(ranges):
        network = addresses.network(text, f"spec.cidrs[{position}]", found)
        if network is not None:
            given.append(network)
            if str(network) != text and str(network.network_address) == text.partition("/")[0]:
                found.append(
                    invalid(
                        f"spec.cidrs[{position}]", text, f'must be in canonical form ("{network}")'
                    )
                )
    if len(given) == 2 and given[0].version == given[1].version:
        why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        found.append(invalid("spec.cidrs", ranges, why))


def service_cidr_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    ranges, before = (
        (new.get("spec") or {}).get("cidrs") or [],
        (old.get("spec") or {}).get("cidrs") or [],
    )
    if len(ranges) == len(before) or (len(before) == 1 and len(ranges) == 2):
        for position, text in enumerate(before):
            immutable(ranges[position], text, f"spec.cidrs[{position}]", found)
        if len(ranges) != len(before):
            _cidrs(ranges, found)
    else:
        immutable(ranges, before, "spec.cidrs", found)
    return found


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
    ("networking.k8s.io", "IngressClass"): ingress_class_update,
    ("networking.k8s.io", "IPAddress"): ip_address_update,
    ("networking.k8s.io", "ServiceCIDR"): service_cidr_update,
}
STATUS = {("networking.k8s.io", "Ingress"): ingress_status}
