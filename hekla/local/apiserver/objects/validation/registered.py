"""The rules of kinds that the API server stores without acting on them: runtime classes, controller
revisions, API services, certificate requests, flow schemas and priority levels (local-cluster 5.9).
"""

from __future__ import annotations

import base64
import binascii

from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors, named, one_of
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.merging.patch import same
from hekla.local.apiserver.objects.validation.metadata import metadata, with_fixed
from hekla.local.apiserver.objects.validation.resources import amounts
from hekla.podrules.signers import signer_name

# --- runtimes, registrations ----------------------------------------------------------------------


def runtime_class(tree: Json) -> Errors:
    errors = metadata(tree)
    handler = tree.get("handler") or ""
    named(handler, names.dns_label, "handler", errors)
    amounts((tree.get("overhead") or {}).get("podFixed"), "overhead.podFixed", errors)
    return errors


def controller_revision(tree: Json) -> Errors:
    errors = _revision(tree)
    if tree.get("data") is None:
        errors.required("data", "data is mandatory")
    elif not isinstance(tree["data"], dict):
        errors.required("data", "data must be a valid JSON object")
    return errors


def _revision(tree: Json) -> Errors:
    errors = metadata(tree)
    if (tree.get("revision") or 0) < 0:
        errors.invalid("revision", tree["revision"], "must be greater than or equal to 0")
    return errors


def controller_revision_update(new: Json, old: Json) -> Errors:
    errors = _revision(new)
    if not same(new.get("data"), old.get("data")):
        errors.invalid("data", new.get("data"), "field is immutable")
    return errors


def api_service(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    name = (tree.get("metadata") or {}).get("name") or ""
    wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
    if name != wanted:
        errors.invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')
    for field in ("groupPriorityMinimum", "versionPriority"):
        limit = 20000 if field == "groupPriorityMinimum" else 1000
        if not 0 < (spec.get(field) or 0) <= limit:
            errors.invalid(
                f"spec.{field}", spec.get(field) or 0, f"must be positive and less than {limit}"
            )
    return errors


# --- certificates ---------------------------------------------------------------------------------

_USAGES = frozenset(
    {
        "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment", "cert sign",
        "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing", "email protection",
        "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing", "microsoft sgc", "netscape sgc",
    }
)  # fmt: skip
MIN_EXPIRATION_SECONDS = 600


def certificate_request(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    if not _is_request(spec.get("request") or ""):
        why = "PEM block type must be CERTIFICATE REQUEST"
        errors.invalid("spec.request", spec.get("request") or None, why)
    if not spec.get("usages"):
        errors.required("spec.usages")
    for position, usage in enumerate(spec.get("usages") or ()):
        if usage not in _USAGES:
            errors.not_supported(f"spec.usages[{position}]", usage, sorted(_USAGES))
    signer = spec.get("signerName") or ""
    signer_name(signer, "spec.signerName", errors)
    if signer == "kubernetes.io/legacy-unknown":
        errors.invalid(
            "spec.signerName", signer, "the legacy signerName is not allowed via this API version"
        )
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_EXPIRATION_SECONDS:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.invalid("spec.expirationSeconds", seconds, why)
    return errors


def _is_request(text: str) -> bool:
    try:
        return base64.b64decode(text).lstrip().startswith(b"-----BEGIN CERTIFICATE REQUEST-----")
    except (binascii.Error, ValueError):
        return False


def certificate_request_status(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    conditions = (new.get("status") or {}).get("conditions") or ()
    types = [condition.get("type") for condition in conditions]
    if "Approved" in types and "Denied" in types:
        why = "Approved and Denied conditions are mutually exclusive"
        errors.invalid("status.conditions", list(conditions), why)
    return errors


# --- flows of requests ----------------------------------------------------------------------------


def flow_schema(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    precedence = spec.get("matchingPrecedence") or 0
    if precedence <= 0:
        errors.invalid("spec.matchingPrecedence", precedence, "must be a positive value")
    if precedence > 10000:
        errors.invalid("spec.matchingPrecedence", precedence, "must not be greater than 10000")
    if precedence == 1 and (tree.get("metadata") or {}).get("name") != "exempt":
        why = "only the schema named 'exempt' may have matchingPrecedence 1"
        errors.invalid("spec.matchingPrecedence", precedence, why)
    path = "spec.priorityLevelConfiguration.name"
    level = (spec.get("priorityLevelConfiguration") or {}).get("name") or ""
    errors += (
        [invalid(path, level, reason) for reason in names.dns_subdomain(level)] if level else []
    )
    if not level:
        errors.required(path, "must reference a priority level")
    method = spec.get("distinguisherMethod")
    if method is not None:
        one_of(
            method.get("type"),
            ("ByNamespace", "ByUser"),
            "spec.distinguisherMethod",
            errors,
            needed=True,
        )
    for position, rule in enumerate(spec.get("rules") or ()):
        path = f"spec.rules[{position}]"
        if not rule.get("subjects"):
            errors.required(f"{path}.subjects", "subjects must contain at least one value")
        if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
            errors.required(
                path, "at least one of resourceRules and nonResourceRules has to be non-empty"
            )
    return errors


def priority_level(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    kind = spec.get("type") or ""
    one_of(kind or "", ("Exempt", "Limited"), "spec.type", errors, known=True)
    limited = spec.get("limited")
    if kind == "Exempt" and limited is not None:
        errors.forbidden("spec.limited", "must be nil if the type is not Limited")
    if kind == "Limited":
        if limited is None:
            errors.required("spec.limited", "must not be empty when type is Limited")
        else:
            response = limited.get("limitResponse") or {}
            one_of(
                response.get("type"),
                ("Queue", "Reject"),
                "spec.limited.limitResponse.type",
                errors,
                known=True,
            )
            if response.get("type") == "Reject" and response.get("queuing") is not None:
                why = "must be nil if limited.limitResponse.type is not Limited"
                errors.forbidden("spec.limited.limitResponse.queuing", why)
    return errors


CREATE = {
    ("node.k8s.io", "RuntimeClass"): runtime_class,
    ("apps", "ControllerRevision"): controller_revision,
    ("apiregistration.k8s.io", "APIService"): api_service,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificate_request,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): flow_schema,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): priority_level,
}
UPDATE = {
    ("node.k8s.io", "RuntimeClass"): with_fixed(runtime_class, "handler", texts=("handler",)),
    ("apps", "ControllerRevision"): controller_revision_update,
}
STATUS = {("certificates.k8s.io", "CertificateSigningRequest"): certificate_request_status}
