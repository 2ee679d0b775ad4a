"""The rules of kinds that a cluster keeps for others: ingresses, address registers, drivers, runtimes, certificates, request flows.

Nothing here acts on them; what is checked is what their clients rely on (local-cluster 5.9).
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from typing import Any

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import duplicate, forbidden, invalid, not_supported, required
from hekla.local.apiserver.objects.validation.metadata import Errors, immutable, metadata, one_of, selector
from hekla.local.apiserver.objects.validation.resources import amounts

Json = dict[str, Any]


# --- networking ----------------------------------------------------------------------------------------------------------


def ingress(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    rules, backend = spec.get("rules") or (), spec.get("defaultBackend")
    if not rules and backend is None:
        found.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        _backend(backend, "spec.defaultBackend", found)
    for position, rule in enumerate(rules):
        path = f"spec.rules[{position}]"
        host = rule.get("host") or ""
        if host:
            reasons = names.dns_subdomain(host.removeprefix("*."))
            found += [invalid(f"{path}.host", host, reason) for reason in reasons]
        paths = (rule.get("http") or {}).get("paths")
        if rule.get("http") is not None and not paths:
            found.append(required(f"{path}.http.paths"))
        for index, entry in enumerate(paths or ()):
            where = f"{path}.http.paths[{index}]"
            kinds = ("Exact", "ImplementationSpecific", "Prefix")
            if entry.get("pathType") is None:
                found.append(required(f"{where}.pathType", "pathType must be specified"))
            else:
                one_of(entry["pathType"], kinds, f"{where}.pathType", found, needed=True)
            if entry.get("pathType") in ("Exact", "Prefix") and not (entry.get("path") or "").startswith("/"):
                found.append(invalid(f"{where}.path", entry.get("path", ""), "must be an absolute path"))
            _backend(entry.get("backend") or {}, f"{where}.backend", found)
    name = spec.get("ingressClassName")
    if name is not None:
        found += [invalid("spec.ingressClassName", name, reason) for reason in names.dns_subdomain(name)]
    return found


def _backend(backend: Json, path: str, found: Errors) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is None and resource is None:
        found.append(invalid(path, "", "resource or service backend is required"))
    elif service is not None and resource is not None:
        found.append(invalid(path, "", "cannot set both resource and service backends"))
    elif service is not None:
        if not service.get("name"):
            found.append(required(f"{path}.service.name"))
        port = service.get("port") or {}
        if port.get("name") and port.get("number"):
            found.append(invalid(path, "", "cannot set both port name & port number"))
        elif not port.get("name") and not port.get("number"):
            found.append(required(path, "port name or number is required"))


def ingress_class(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    controller = spec.get("controller") or ""
    if not controller:
        found.append(required("spec.controller"))
    elif "/" not in controller:
        found.append(invalid("spec.controller", controller, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    parameters = spec.get("parameters")
    if parameters is not None:
        for name in ("kind", "name"):
            if not parameters.get(name):
                found.append(required(f"spec.parameters.{name}"))
        scope = parameters.get("scope")
        one_of(scope, ("Cluster", "Namespace"), "spec.parameters.scope", found)
        if scope == "Namespace" and not parameters.get("namespace"):
            found.append(required("spec.parameters.namespace", "`parameters.scope` is set to 'Namespace'"))
        if scope == "Cluster" and parameters.get("namespace"):
            found.append(forbidden("spec.parameters.namespace", "`parameters.scope` is set to 'Cluster'"))
    return found


def ingress_class_update(new: Json, old: Json) -> Errors:
    found = ingress_class(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    immutable(spec.get("controller"), before.get("controller"), "spec.controller", found)
    return found


def ip_address(tree: Json) -> Errors:
    found = metadata(tree)
    name = (tree.get("metadata") or {}).get("name") or ""
    if not _canonical_address(name):
        found.append(invalid("metadata.name", name, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
    parent = (tree.get("spec") or {}).get("parentRef")
    if not parent:
        found.append(required("spec.parentRef"))
    else:
        for part in ("resource", "name"):
            if not parent.get(part):
                found.append(required(f"spec.parentRef.{part}"))
    return found


def _canonical_address(text: str) -> bool:
    try:
        return str(ipaddress.ip_address(text)) == text
    except ValueError:
        return False


def ip_address_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    immutable(spec.get("parentRef"), before.get("parentRef"), "spec.parentRef", found)
    return found


def service_cidr(tree: Json) -> Errors:
    found = metadata(tree)
    ranges = (tree.get("spec") or {}).get("cidrs") or ()
    if not ranges:
        found.append(required("spec.cidrs", "at least one CIDR required"))
    if len(ranges) > 2:
        found.append(invalid("spec", {"cidrs": list(ranges)}, "may only hold up to 2 values"))
    for position, text in enumerate(ranges):
        try:
            good = str(ipaddress.ip_network(text)) == text
        except ValueError:
            good = False
        if not good:
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            found.append(invalid(f"spec.cidrs[{position}]", text, why))
    return found


def service_cidr_update(new: Json, old: Json) -> Errors:
    found = metadata(new)
    ranges, before = (new.get("spec") or {}).get("cidrs") or [], (old.get("spec") or {}).get("cidrs") or []
    if ranges[: len(before)] != before:
        immutable(ranges, before, "spec.cidrs", found)
    return found


# --- storage -------------------------------------------------------------------------------------------------------------


def csi_node(tree: Json) -> Errors:
    found = metadata(tree)
    seen: set[str] = set()
    for position, driver in enumerate((tree.get("spec") or {}).get("drivers") or ()):
        path = f"spec.drivers[{position}]"
        name = driver.get("name") or ""
        _driver_name(name, f"{path}.name", found)
        if name in seen:
            found.append(duplicate(f"{path}.name", name))
        seen.add(name)
        if not driver.get("nodeID"):
            found.append(required(f"{path}.nodeID"))
    return found


def _driver_name(name: str, path: str, found: Errors) -> None:
    if not name:
        found.append(required(path))
    elif len(name) > 63:
        found.append(invalid(path, name, "must be no more than 63 characters"))
    else:
        found += [invalid(path, name, reason) for reason in names.dns_subdomain(name.lower())]


def csi_driver(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in ("Ephemeral", "Persistent"):
            found.append(not_supported("spec.volumeLifecycleModes", mode, ("Ephemeral", "Persistent")))
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    one_of(spec.get("fsGroupPolicy"), policies, "spec.fsGroupPolicy", found)
    return found


def csi_driver_update(new: Json, old: Json) -> Errors:
    found = csi_driver(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    # The first one is spelled so in Kubernetes' message.
    for name, shown in (("attachRequired", "attachedRequired"), *((name, name) for name in ("fsGroupPolicy", "volumeLifecycleModes"))):
        immutable(spec.get(name), before.get(name), f"spec.{shown}", found)
    return found


def csi_storage_capacity(tree: Json) -> Errors:
    found = metadata(tree)
    name = tree.get("storageClassName") or ""
    found += [invalid("storageClassName", name, reason) for reason in names.dns_subdomain(name)]
    selector(tree.get("nodeTopology"), "nodeTopology", found)
    return found


def csi_storage_capacity_update(new: Json, old: Json) -> Errors:
    found = csi_storage_capacity(new)
    immutable(new.get("nodeTopology"), old.get("nodeTopology"), "nodeTopology", found)
    immutable(new.get("storageClassName") or "", old.get("storageClassName") or "", "storageClassName", found)
    return found


def volume_attachment(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    if not spec.get("attacher"):
        found.append(required("spec.attacher"))
    else:
        _driver_name(spec["attacher"], "spec.attacher", found)
    source = spec.get("source") or {}
    name = source.get("persistentVolumeName") or ""
    if name:
        found += [invalid("spec.source.persistentVolumeName", name, reason) for reason in names.dns_subdomain(name)]
    if not source.get("persistentVolumeName") and not source.get("inlineVolumeSpec"):
        found.append(required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    node = spec.get("nodeName") or ""
    found += [invalid("spec.nodeName", node, reason) for reason in names.dns_subdomain(node)]
    return found


def volume_attachment_update(new: Json, old: Json) -> Errors:
    found = volume_attachment(new)
    immutable(new.get("spec"), old.get("spec"), "spec", found)
    return found


def attributes_class(tree: Json) -> Errors:
    found = metadata(tree)
    _driver_name(tree.get("driverName") or "", "driverName", found)
    if not tree.get("parameters"):
        found.append(required("parameters", "must contain at least one key/value pair"))
    return found


def attributes_class_update(new: Json, old: Json) -> Errors:
    found = attributes_class(new)
    for name in ("driverName", "parameters"):
        if new.get(name) != old.get(name):
            found.append(forbidden(name, "updates to " + name + " are forbidden."))
    return found


# --- runtimes, registrations ---------------------------------------------------------------------------------------------


def runtime_class(tree: Json) -> Errors:
    found = metadata(tree)
    handler = tree.get("handler") or ""
    if not handler:
        found.append(required("handler"))
    else:
        found += [invalid("handler", handler, reason) for reason in names.dns_label(handler)]
    amounts((tree.get("overhead") or {}).get("podFixed"), "overhead.podFixed", found)
    return found


def runtime_class_update(new: Json, old: Json) -> Errors:
    found = runtime_class(new)
    immutable(new.get("handler"), old.get("handler"), "handler", found)
    return found


def controller_revision(tree: Json) -> Errors:
    found = _revision(tree)
    if tree.get("data") is None:
        found.append(required("data", "data is mandatory"))
    elif not isinstance(tree["data"], dict):
        found.append(required("data", "data must be a valid JSON object"))
    return found


def _revision(tree: Json) -> Errors:
    found = metadata(tree)
    if (tree.get("revision") or 0) < 0:
        found.append(invalid("revision", tree["revision"], "must be greater than or equal to 0"))
    return found


def controller_revision_update(new: Json, old: Json) -> Errors:
    found = _revision(new)
    immutable(new.get("data"), old.get("data"), "data", found)
    return found


def api_service(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    name = (tree.get("metadata") or {}).get("name") or ""
    wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
    if name != wanted:
        found.append(invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"'))
    for field in ("groupPriorityMinimum", "versionPriority"):
        limit = 20000 if field == "groupPriorityMinimum" else 1000
        if not 0 < (spec.get(field) or 0) <= limit:
            found.append(invalid(f"spec.{field}", spec.get(field) or 0, f"must be positive and less than {limit}"))
    return found


# --- certificates --------------------------------------------------------------------------------------------------------

_USAGES = frozenset(
    {
        "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment", "cert sign",
        "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing", "email protection",
        "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing", "microsoft sgc", "netscape sgc",
    }
)  # fmt: skip
SHORTEST_CERTIFICATE = 600


def certificate_request(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    if not _is_request(spec.get("request") or ""):
        found.append(invalid("spec.request", spec.get("request") or None, "PEM block type must be CERTIFICATE REQUEST"))
    if not spec.get("usages"):
        found.append(required("spec.usages"))
    for position, usage in enumerate(spec.get("usages") or ()):
        if usage not in _USAGES:
            found.append(not_supported(f"spec.usages[{position}]", usage, sorted(_USAGES)))
    signer = spec.get("signerName") or ""
    domain, _, path = signer.partition("/")
    if not signer:
        found.append(required("spec.signerName"))
    elif not path or names.dns_subdomain(domain) or "." not in domain:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        found.append(invalid("spec.signerName", signer, why))
    elif signer == "kubernetes.io/legacy-unknown":
        found.append(invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version"))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < SHORTEST_CERTIFICATE:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        found.append(invalid("spec.expirationSeconds", seconds, why))
    return found


def _is_request(text: str) -> bool:
    try:
        return base64.b64decode(text).lstrip().startswith(b"-----BEGIN CERTIFICATE REQUEST-----")
    except (binascii.Error, ValueError):
        return False


def certificate_request_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    conditions = (new.get("status") or {}).get("conditions") or ()
    types = [condition.get("type") for condition in conditions]
    if "Approved" in types and "Denied" in types:
        found.append(invalid("status.conditions", list(conditions), "Approved and Denied conditions are mutually exclusive"))
    return found


# --- flows of requests ---------------------------------------------------------------------------------------------------


def flow_schema(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    precedence = spec.get("matchingPrecedence") or 0
    if not 1 <= precedence <= 10000:
        text = "must be a value between 1 and 10000, both inclusive"
        found.append(invalid("spec.matchingPrecedence", precedence, text))
    path, level = "spec.priorityLevelConfiguration.name", (spec.get("priorityLevelConfiguration") or {}).get("name") or ""
    found += [invalid(path, level, reason) for reason in names.dns_subdomain(level)] if level else []
    if not level:
        found.append(required(path, "must reference a priority level"))
    method = spec.get("distinguisherMethod")
    if method is not None:
        one_of(method.get("type"), ("ByNamespace", "ByUser"), "spec.distinguisherMethod", found, needed=True)
    for position, rule in enumerate(spec.get("rules") or ()):
        path = f"spec.rules[{position}]"
        if not rule.get("subjects"):
            found.append(required(f"{path}.subjects", "subjects must contain at least one value"))
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            found.append(required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    return found


def priority_level(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    kind = spec.get("type") or ""
    one_of(kind or "", ("Exempt", "Limited"), "spec.type", found, known=True)
    limited = spec.get("limited")
    if kind == "Exempt" and limited is not None:
        found.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
    if kind == "Limited":
        if limited is None:
            found.append(required("spec.limited", "must not be empty when type is Limited"))
        else:
            response = limited.get("limitResponse") or {}
            one_of(response.get("type"), ("Queue", "Reject"), "spec.limited.limitResponse.type", found, known=True)
            if response.get("type") == "Reject" and response.get("queuing") is not None:
                found.append(forbidden("spec.limited.limitResponse.queuing", "must be nil if limited.limitResponse.type is not Limited"))
    return found


CREATE = {
    ("networking.k8s.io", "Ingress"): ingress,
    ("networking.k8s.io", "IngressClass"): ingress_class,
    ("networking.k8s.io", "IPAddress"): ip_address,
    ("networking.k8s.io", "ServiceCIDR"): service_cidr,
    ("storage.k8s.io", "CSINode"): csi_node,
    ("storage.k8s.io", "CSIDriver"): csi_driver,
    ("storage.k8s.io", "CSIStorageCapacity"): csi_storage_capacity,
    ("storage.k8s.io", "VolumeAttachment"): volume_attachment,
    ("storage.k8s.io", "VolumeAttributesClass"): attributes_class,
    ("node.k8s.io", "RuntimeClass"): runtime_class,
    ("apps", "ControllerRevision"): controller_revision,
    ("apiregistration.k8s.io", "APIService"): api_service,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificate_request,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): flow_schema,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): priority_level,
}
UPDATE = {
    ("networking.k8s.io", "IngressClass"): ingress_class_update,
    ("networking.k8s.io", "IPAddress"): ip_address_update,
    ("networking.k8s.io", "ServiceCIDR"): service_cidr_update,
    ("storage.k8s.io", "CSIDriver"): csi_driver_update,
    ("storage.k8s.io", "CSIStorageCapacity"): csi_storage_capacity_update,
    ("storage.k8s.io", "VolumeAttachment"): volume_attachment_update,
    ("storage.k8s.io", "VolumeAttributesClass"): attributes_class_update,
    ("node.k8s.io", "RuntimeClass"): runtime_class_update,
    ("apps", "ControllerRevision"): controller_revision_update,
}
STATUS = {
    ("certificates.k8s.io", "CertificateSigningRequest"): certificate_request_status,
}
