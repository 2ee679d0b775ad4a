"""The rules of policy, networking, access, webhook and device kinds (local-cluster 5.9, 6.2)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import duplicate, forbidden, invalid, not_supported, required, too_many
from hekla.local.apiserver.objects.validation import policies
from hekla.local.apiserver.objects.validation.metadata import Errors, immutable, label_key, metadata, one_of, selector

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
HIGHEST_PRIORITY = 1_000_000_000


def priority_class(tree: Json) -> Errors:
    found = metadata(tree)
    name = (tree.get("metadata") or {}).get("name") or ""
    value = tree.get("value") or 0
    if name.startswith("system-"):
        if (name, value) not in (("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000)):
            known = _SYSTEM.get(name)
            error = f"value of {name} PriorityClass must be {known}" if known else f"{name} is not a known system priority class"
            why = "priority class names with 'system-' prefix are reserved for system use only. error: "
            found.append(forbidden("metadata.name", why + error))
    elif value > HIGHEST_PRIORITY:
        found.append(forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"))
    one_of(tree.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"), "preemptionPolicy", found)
    return found


_SYSTEM = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


def priority_class_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    if (new.get("value") or 0) != (old.get("value") or 0):
        found.append(forbidden("value", "may not be changed in an update."))
    immutable(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy", found)
    return found


def storage_class(tree: Json) -> Errors:
    found = metadata(tree)
    provisioner = tree.get("provisioner") or ""
    if not provisioner:
        found.append(required("provisioner"))
    else:
        lower = provisioner.lower()
        found += [invalid("provisioner", lower, reason) for reason in label_key(lower)]
    one_of(tree.get("reclaimPolicy"), ("Delete", "Retain"), "reclaimPolicy", found)
    one_of(tree.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"), "volumeBindingMode", found, needed=True)
    return found


def storage_class_update(new: Json, old: Json) -> Errors:
    found = storage_class(new)
    for name in ("parameters", "reclaimPolicy", "volumeBindingMode"):
        immutable(new.get(name), old.get(name), name, found)
    immutable(new.get("provisioner") or "", old.get("provisioner") or "", "provisioner", found)
    return found


def network_policy(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    selector(spec.get("podSelector"), "spec.podSelector", found)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{position}]"
            for index, port in enumerate(rule.get("ports") or ()):
                number = port.get("port")
                if number is not None:
                    reasons = names.port_name(number) if isinstance(number, str) else names.port_number(number)
                    found += [invalid(f"{path}.ports[{index}].port", number, reason) for reason in reasons]
                one_of(port.get("protocol"), ("TCP", "UDP", "SCTP"), f"{path}.ports[{index}].protocol", found)
            for index, peer in enumerate(rule.get(peers) or ()):
                _peer(peer, f"{path}.{peers}[{index}]", found)
    for position, kind in enumerate(spec.get("policyTypes") or ()):
        if kind not in ("Ingress", "Egress"):
            found.append(not_supported(f"spec.policyTypes[{position}]", kind, ("Egress", "Ingress")))
    return found


def _peer(peer: Json, path: str, found: Errors) -> None:
    if not peer:
        found.append(required(path, "must specify a peer"))
    selector(peer.get("podSelector"), f"{path}.podSelector", found)
    selector(peer.get("namespaceSelector"), f"{path}.namespaceSelector", found)
    block = peer.get("ipBlock")
    if block is not None:
        if len(peer) > 1:
            found.append(forbidden(path, "may not specify both ipBlock and another peer"))
        if not block.get("cidr"):
            found.append(required(f"{path}.ipBlock.cidr"))
        else:
            try:
                ipaddress.ip_network(block["cidr"], strict=False)
            except ValueError:
                why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
                found.append(invalid(f"{path}.ipBlock.cidr", block["cidr"], why))


def endpoint_slice(tree: Json) -> Errors:
    found = metadata(tree)
    kinds = ("FQDN", "IPv4", "IPv6")
    one_of(tree.get("addressType"), kinds, "addressType", found, needed=True)
    _slice_ports(tree.get("ports") or (), found)
    return found + _slice_endpoints(tree)


def _slice_ports(ports: Sequence[Json], found: Errors) -> None:
    if len(ports) > 20000:
        found.append(too_many("ports", len(ports), 20000))
        return
    seen: set[str] = set()
    for position, port in enumerate(ports):
        path, name = f"ports[{position}]", port.get("name") or ""
        if name:
            found += [invalid(f"{path}.name", name, reason) for reason in names.dns_label(name)]
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
        one_of(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{path}.protocol", found, needed=True)
        if port.get("appProtocol") is not None:
            found += [invalid(f"{path}.appProtocol", port["appProtocol"], reason) for reason in label_key(port["appProtocol"])]


def _slice_endpoints(tree: Json) -> Errors:
    found: Errors = []
    endpoints, kind = tree.get("endpoints") or (), tree.get("addressType")
    if len(endpoints) > 1000:
        return [too_many("endpoints", len(endpoints), 1000)]
    for position, endpoint in enumerate(endpoints):
        path, addresses = f"endpoints[{position}].addresses", endpoint.get("addresses") or ()
        if not addresses:
            found.append(required(path, "must contain at least 1 address"))
        elif len(addresses) > 100:
            found.append(too_many(path, len(addresses), 100))
        for index, address in enumerate(addresses):
            if kind in ("IPv4", "IPv6"):
                _slice_address(address, kind, path, index, found)
            elif kind == "FQDN":
                _whole_name(address.removesuffix("."), f"{path}[{index}]", found)
        name = endpoint.get("nodeName")
        if name is not None:
            found += [invalid(f"endpoints[{position}].nodeName", name, reason) for reason in names.dns_subdomain(name)]
        if endpoint.get("hostname") is not None:
            host = endpoint["hostname"]
            found += [invalid(f"endpoints[{position}].hostname", host, reason) for reason in names.dns_label(host)]
    return found


def _whole_name(name: str, path: str, found: Errors) -> None:
    reasons = names.dns_subdomain(name)
    if not reasons and "." not in name:
        reasons = ("should be a domain with at least two segments separated by dots",)
    found += [invalid(path, name, reason) for reason in reasons]


_REACHABLE = (
    ("is_unspecified", "may not be unspecified ({})"), ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
    ("is_multicast", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
)  # fmt: skip


def _slice_address(address: str, kind: str, path: str, index: int, found: Errors) -> None:
    where = f"{path}[{index}]"
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        found.append(invalid(where, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
        return
    if f"IPv{known.version}" != kind:
        found.append(invalid(path, address, f"must be an {kind} address"))
    local = known in (_LOCAL_MULTICAST if known.version == 4 else _LOCAL_MULTICAST_6)
    for test, why in _REACHABLE:
        if test == "is_loopback" and known.version == 4:
            continue  # pods without a network of their own have their addresses there
        if getattr(known, test, False) if test != "is_multicast" else local:
            found.append(invalid(where, address, why.format(address)))


_LOCAL_MULTICAST, _LOCAL_MULTICAST_6 = ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16")


def endpoint_slice_update(new: Json, old: Json) -> Errors:
    found = endpoint_slice(new)
    if (new.get("endpoints") or []) == (old.get("endpoints") or []):
        found = [error for error in found if not error.field.startswith("endpoints")]
    immutable(new.get("addressType") or "", old.get("addressType") or "", "addressType", found)
    return found


# --- access --------------------------------------------------------------------------------------------------------------


def role(tree: Json) -> Errors:
    found = metadata(tree)
    for position, rule in enumerate(tree.get("rules") or ()):
        path = f"rules[{position}]"
        if not rule.get("verbs"):
            found.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        urls = rule.get("nonResourceURLs")
        if urls:
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, why))
            continue
        if not rule.get("apiGroups"):
            found.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            found.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return found


def namespaced_role(tree: Json) -> Errors:
    found = role(tree)
    for position, rule in enumerate(tree.get("rules") or ()):
        if rule.get("nonResourceURLs"):
            why = "namespaced rules cannot apply to non-resource URLs"
            found.append(invalid(f"rules[{position}].nonResourceURLs", rule["nonResourceURLs"], why))
    return found


def role_binding(tree: Json) -> Errors:
    return _binding(tree, ("Role", "ClusterRole"), namespaced=True)


def cluster_role_binding(tree: Json) -> Errors:
    return _binding(tree, ("ClusterRole",), namespaced=False)


def _binding(tree: Json, kinds: tuple[str, ...], *, namespaced: bool) -> Errors:
    found = metadata(tree)
    reference = tree.get("roleRef") or {}
    if reference.get("apiGroup") != RBAC:
        found.append(not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (RBAC,)))
    if reference.get("kind") not in kinds:
        found.append(not_supported("roleRef.kind", reference.get("kind", ""), kinds))
    if not reference.get("name"):
        found.append(required("roleRef.name"))
    for position, subject in enumerate(tree.get("subjects") or ()):
        path = f"subjects[{position}]"
        kind = subject.get("kind", "")
        if not subject.get("name"):
            found.append(required(f"{path}.name"))
        if kind == "ServiceAccount":
            if subject.get("apiGroup"):
                found.append(not_supported(f"{path}.apiGroup", subject["apiGroup"], ("",)))
            if not namespaced and not subject.get("namespace"):
                found.append(required(f"{path}.namespace"))
        elif kind not in ("User", "Group"):
            found.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
    return found


def binding_update(check: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    def update(new: Json, old: Json) -> Errors:
        found = check(new)
        if new.get("roleRef") != old.get("roleRef"):
            found.append(invalid("roleRef", new.get("roleRef"), "cannot change roleRef"))
        return found

    return update


# --- webhooks ------------------------------------------------------------------------------------------------------------

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def webhooks(tree: Json) -> Errors:
    found = metadata(tree)
    seen: set[str] = set()
    for position, hook in enumerate(tree.get("webhooks") or ()):
        path = f"webhooks[{position}]"
        name = hook.get("name") or ""
        reasons = names.dns_subdomain(name)
        if not name:
            found.append(required(f"{path}.name"))
        elif reasons:
            found += [invalid(f"{path}.name", name, reason) for reason in reasons]
        elif name.count(".") < 2:
            found.append(invalid(f"{path}.name", name, "should be a domain with at least three segments separated by dots"))
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
        _webhook(hook, path, found)
    return found


def _webhook(hook: Json, path: str, found: Errors) -> None:
    versions = hook.get("admissionReviewVersions") or ()
    if not versions:
        found.append(required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"))
    elif not {"v1", "v1beta1"} & set(versions):
        why = "must include at least one of v1, v1beta1"
        found.append(invalid(f"{path}.admissionReviewVersions", list(versions), why))
    effects = hook.get("sideEffects")
    if effects is None:
        found.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif effects not in ("None", "NoneOnDryRun"):
        found.append(not_supported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun")))
    one_of(hook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy", found)
    one_of(hook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", found)
    one_of(hook.get("reinvocationPolicy"), ("IfNeeded", "Never"), f"{path}.reinvocationPolicy", found)
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        found.append(invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds"))
    selector(hook.get("namespaceSelector"), f"{path}.namespaceSelector", found)
    selector(hook.get("objectSelector"), f"{path}.objectSelector", found)
    config = hook.get("clientConfig") or {}
    if (config.get("url") is None) == (config.get("service") is None):
        found.append(required(f"{path}.clientConfig", "exactly one of url or service is required"))
    if config.get("url") is not None:
        _url(config["url"], f"{path}.clientConfig.url", found)
    service = config.get("service")
    if service is not None:
        for name in ("name", "namespace"):
            if not service.get(name):
                found.append(required(f"{path}.clientConfig.service.{name}"))
    policies.conditions(hook, f"{path}.matchConditions", found)
    for position, rule in enumerate(hook.get("rules") or ()):
        where = f"{path}.rules[{position}]"
        if not rule.get("operations"):
            found.append(required(f"{where}.operations"))
        for index, operation in enumerate(rule.get("operations") or ()):
            if operation not in _OPERATIONS:
                found.append(not_supported(f"{where}.operations[{index}]", operation, _OPERATIONS))
        for name in ("apiGroups", "apiVersions", "resources"):
            if not rule.get(name):
                found.append(required(f"{where}.{name}"))
        one_of(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{where}.scope", found)


def _url(text: str, path: str, found: Errors) -> None:
    parts = urlsplit(text)
    form = "desired format: https://host[/path]"
    if parts.scheme != "https":
        found.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme; {form}"))
    if not parts.netloc:
        found.append(invalid(path, parts.netloc, f"host must be specified; {form}"))
    if parts.username is not None:
        found.append(invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL"))
    if parts.fragment:
        found.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        found.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))


# --- devices -------------------------------------------------------------------------------------------------------------


def resource_claim(tree: Json) -> Errors:
    found = metadata(tree)
    _devices((tree.get("spec") or {}).get("devices") or {}, "spec.devices", found)
    return found


def resource_claim_template(tree: Json) -> Errors:
    found = metadata(tree)
    _devices(((tree.get("spec") or {}).get("spec") or {}).get("devices") or {}, "spec.spec.devices", found)
    return found


def _devices(devices: Json, path: str, found: Errors) -> None:
    for position, request in enumerate(devices.get("requests") or ()):
        where = f"{path}.requests[{position}]"
        name = request.get("name") or ""
        if not name:
            found.append(required(f"{where}.name"))
        else:
            found += [invalid(f"{where}.name", name, reason) for reason in names.dns_label(name)]
        rule = "exactly one of `exactly` or `firstAvailable` is required"
        exactly, options = request.get("exactly"), request.get("firstAvailable")
        if exactly is None and not options:
            found.append(required(where, rule))
        elif exactly is not None and options:
            found.append(invalid(where, None, f"{rule}, but multiple fields are set"))
        for index, option in enumerate(options or ()):
            policies.device_selectors(option.get("selectors") or (), f"{where}.firstAvailable[{index}].selectors", found)
        if exactly:
            policies.device_selectors(exactly.get("selectors") or (), f"{where}.exactly.selectors", found)
        for at, asked in (
            [(f"{where}.exactly", exactly)]
            if exactly
            else [(f"{where}.firstAvailable[{index}]", option) for index, option in enumerate(options or ())]
        ):
            if not asked.get("deviceClassName"):
                found.append(required(f"{at}.deviceClassName"))
            modes = ("All", "ExactCount")
            one_of(asked.get("allocationMode"), modes, f"{at}.allocationMode", found)
            if asked.get("allocationMode") == "ExactCount" and (asked.get("count") or 0) <= 0:
                found.append(invalid(f"{at}.count", asked.get("count", 0), "must be greater than zero"))


def resource_claim_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    immutable(new.get("spec"), old.get("spec"), "spec", found)
    return found


def resource_claim_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    reserved = (new.get("status") or {}).get("reservedFor") or ()
    if len(reserved) > 256:
        found.append(too_many("status.reservedFor", len(reserved), 256))
    return found


def resource_slice(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    given = [name for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(name)]
    rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not spec.get("driver"):
        found.append(required("spec.driver"))
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        found.append(required("spec.pool.name"))
    if (pool.get("resourceSliceCount") or 0) <= 0:
        found.append(invalid("spec.pool.resourceSliceCount", pool.get("resourceSliceCount") or 0, "must be greater than zero"))
    if not given:
        found.append(required("spec", rule))
    elif len(given) > 1:
        found.append(invalid("spec", {name: spec[name] for name in given}, rule))
    for position, device in enumerate(spec.get("devices") or ()):
        name = device.get("name") or ""
        found += [invalid(f"spec.devices[{position}].name", name, reason) for reason in names.dns_label(name)]
    return found


def certificate_request_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    immutable(new.get("spec"), old.get("spec"), "spec", found)
    return found


def autoscaler(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        found.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most == 0:
        found.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif most < 0:
        found.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
    if least is not None and most < least:
        found.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    for name in ("kind", "name"):
        value = target.get(name) or ""
        if not value:
            found.append(required(f"spec.scaleTargetRef.{name}"))
        else:
            found += [invalid(f"spec.scaleTargetRef.{name}", value, reason) for reason in names.path_segment(value)]
    version = target.get("apiVersion") or ""
    if version.count("/") > 1:
        found.append(invalid("spec.scaleTargetRef.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    elif not version.partition("/")[1]:
        found.append(invalid("spec.scaleTargetRef.apiVersion", version, "apiVersion must specify API group"))
    return found


CREATE = {
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaler,
    ("scheduling.k8s.io", "PriorityClass"): priority_class,
    ("storage.k8s.io", "StorageClass"): storage_class,
    ("networking.k8s.io", "NetworkPolicy"): network_policy,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice,
    (RBAC, "Role"): namespaced_role,
    (RBAC, "ClusterRole"): role,
    (RBAC, "RoleBinding"): role_binding,
    (RBAC, "ClusterRoleBinding"): cluster_role_binding,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): webhooks,
    ("resource.k8s.io", "ResourceClaim"): resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): resource_claim_template,
    ("resource.k8s.io", "ResourceSlice"): resource_slice,
}
UPDATE = {
    ("scheduling.k8s.io", "PriorityClass"): priority_class_update,
    ("storage.k8s.io", "StorageClass"): storage_class_update,
    ("discovery.k8s.io", "EndpointSlice"): endpoint_slice_update,
    (RBAC, "RoleBinding"): binding_update(role_binding),
    (RBAC, "ClusterRoleBinding"): binding_update(cluster_role_binding),
    ("resource.k8s.io", "ResourceClaim"): resource_claim_update,
    ("resource.k8s.io", "ResourceClaimTemplate"): resource_claim_update,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificate_request_update,
}
