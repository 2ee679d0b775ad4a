"""The rules of policy, networking, access, webhook and device kinds (local-cluster 5.9, 6.2)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from hekla.api.text.fieldrules import Errors, named, one_of, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.validation import policies
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata, with_fixed

RBAC = "rbac.authorization.k8s.io"
HIGHEST_USER_DEFINABLE_PRIORITY = 1_000_000_000


def priority_class(tree: Json) -> Errors:
    errors = metadata(tree)
    name = (tree.get("metadata") or {}).get("name") or ""
    value = tree.get("value") or 0
    if name.startswith("system-"):
        if (name, value) not in (
            ("system-cluster-critical", 2000000000),
            ("system-node-critical", 2000001000),
        ):
            known = _SYSTEM.get(name)
            error = (
                f"value of {name} PriorityClass must be {known}"
                if known
                else f"{name} is not a known system priority class"
            )
            why = "priority class names with 'system-' prefix are reserved for system use only. error: "
            errors.forbidden("metadata.name", why + error)
    elif value > HIGHEST_USER_DEFINABLE_PRIORITY:
        why = (
            f"maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}"
        )
        errors.forbidden("value", why)
    one_of(
        tree.get("preemptionPolicy"), ("PreemptLowerPriority", "Never"), "preemptionPolicy", errors
    )
    return errors


_SYSTEM = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


def priority_class_update(new: Json, old: Json) -> Errors:
    errors = metadata(new)
    if (new.get("value") or 0) != (old.get("value") or 0):
        errors.forbidden("value", "may not be changed in an update.")
    immutable(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy", errors)
    return errors


# --- access ---------------------------------------------------------------------------------------


def role(tree: Json, *, namespaced: bool = False) -> Errors:
    errors = metadata(tree)
    for position, rule in enumerate(tree.get("rules") or ()):
        path = f"rules[{position}]"
        if not rule.get("verbs"):
            errors.required(f"{path}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            if namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                errors.invalid(f"{path}.nonResourceURLs", urls, why)
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                errors.invalid(f"{path}.nonResourceURLs", urls, why)
            continue
        if not rule.get("apiGroups"):
            errors.required(
                f"{path}.apiGroups", "resource rules must supply at least one api group"
            )
        if not rule.get("resources"):
            errors.required(f"{path}.resources", "resource rules must supply at least one resource")
    return errors


def cluster_role(tree: Json) -> Errors:
    errors = role(tree)
    rule = tree.get("aggregationRule")
    if rule is not None:
        selectors = rule.get("clusterRoleSelectors") or ()
        if not selectors:
            why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.required("aggregationRule.clusterRoleSelectors", why)
        for position, each in enumerate(selectors):
            path, before = f"aggregationRule.clusterRoleSelectors[{position}]", len(errors)
            selector(each, path, errors)
            if len(errors) > before:
                errors.invalid(path, None, "invalid label selector.")
    return errors


def namespaced_role(tree: Json) -> Errors:
    return role(tree, namespaced=True)


def role_binding(tree: Json) -> Errors:
    return _binding(tree, ("Role", "ClusterRole"), namespaced=True)


def cluster_role_binding(tree: Json) -> Errors:
    return _binding(tree, ("ClusterRole",), namespaced=False)


def _binding(tree: Json, kinds: tuple[str, ...], *, namespaced: bool) -> Errors:
    errors = metadata(tree)
    reference = tree.get("roleRef") or {}
    if reference.get("apiGroup") != RBAC:
        errors.not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (RBAC,), plain=True)
    if reference.get("kind") not in kinds:
        errors.not_supported("roleRef.kind", reference.get("kind", ""), kinds, plain=True)
    named(reference.get("name"), names.path_segment, "roleRef.name", errors)
    for position, subject in enumerate(tree.get("subjects") or ()):
        path = f"subjects[{position}]"
        kind = subject.get("kind", "")
        if not subject.get("name"):
            errors.required(f"{path}.name")
        if kind == "ServiceAccount":
            if subject.get("name"):
                errors.malformed(
                    f"{path}.name", subject["name"], names.dns_subdomain(subject["name"])
                )
            if subject.get("apiGroup"):
                errors.not_supported(f"{path}.apiGroup", subject["apiGroup"], ("",), plain=True)
            if not namespaced and not subject.get("namespace"):
                errors.required(f"{path}.namespace")
        elif kind not in ("User", "Group"):
            errors.not_supported(
                f"{path}.kind", kind, ("ServiceAccount", "User", "Group"), plain=True
            )
        elif subject.get("apiGroup") != RBAC:
            errors.not_supported(
                f"{path}.apiGroup", subject.get("apiGroup", ""), (RBAC,), plain=True
            )
    return errors


def binding_update(check: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    def update(new: Json, old: Json) -> Errors:
        errors = check(new)
        if new.get("roleRef") != old.get("roleRef"):
            errors.invalid("roleRef", new.get("roleRef"), "cannot change roleRef")
        return errors

    return update


# --- webhooks -------------------------------------------------------------------------------------

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def webhooks(tree: Json) -> Errors:
    errors = metadata(tree)
    seen: set[str] = set()
    for position, hook in enumerate(tree.get("webhooks") or ()):
        path = f"webhooks[{position}]"
        name = hook.get("name") or ""
        reasons = names.dns_subdomain(name)
        if not name:
            errors.required(f"{path}.name")
        elif reasons:
            errors.malformed(f"{path}.name", name, reasons)
        elif name.count(".") < 2:
            why = "should be a domain with at least three segments separated by dots"
            errors.invalid(f"{path}.name", name, why)
        if name in seen:
            errors.duplicate(f"{path}.name", name)
        seen.add(name)
        _webhook(hook, path, errors)
    return errors


def _webhook(hook: Json, path: str, errors: Errors) -> None:
    versions = hook.get("admissionReviewVersions") or ()
    if not versions:
        errors.required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
    seen: set[str] = set()
    for position, version in enumerate(versions):
        where = f"{path}.admissionReviewVersions[{position}]"
        if version in seen:
            errors.invalid(where, version, "duplicate version")
        else:
            seen.add(version)
            errors.malformed(where, version, names.dns_1035_label(version))
    if versions and not {"v1", "v1beta1"} & set(versions):
        why = "must include at least one of v1, v1beta1"
        errors.invalid(f"{path}.admissionReviewVersions", list(versions), why)
    effects = hook.get("sideEffects")
    if effects is None:
        errors.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif effects not in ("None", "NoneOnDryRun"):
        errors.not_supported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    one_of(hook.get("failurePolicy"), ("Fail", "Ignore"), f"{path}.failurePolicy", errors)
    one_of(hook.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", errors)
    one_of(
        hook.get("reinvocationPolicy"), ("IfNeeded", "Never"), f"{path}.reinvocationPolicy", errors
    )
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        errors.invalid(
            f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds"
        )
    selector(hook.get("namespaceSelector"), f"{path}.namespaceSelector", errors)
    selector(hook.get("objectSelector"), f"{path}.objectSelector", errors)
    config = hook.get("clientConfig") or {}
    if (config.get("url") is None) == (config.get("service") is None):
        errors.required(f"{path}.clientConfig", "exactly one of url or service is required")
    if config.get("url") is not None:
        _url(config["url"], f"{path}.clientConfig.url", errors)
    service = config.get("service")
    if service is not None:
        for name in ("name", "namespace"):
            if not service.get(name):
                errors.required(f"{path}.clientConfig.service.{name}")
    policies.conditions(hook, f"{path}.matchConditions", errors)
    for position, rule in enumerate(hook.get("rules") or ()):
        where = f"{path}.rules[{position}]"
        if not rule.get("operations"):
            errors.required(f"{where}.operations")
        for index, operation in enumerate(rule.get("operations") or ()):
            if operation not in _OPERATIONS:
                errors.not_supported(f"{where}.operations[{index}]", operation, _OPERATIONS)
        for name in ("apiGroups", "apiVersions", "resources"):
            if not rule.get(name):
                errors.required(f"{where}.{name}")
        one_of(rule.get("scope"), ("*", "Cluster", "Namespaced"), f"{where}.scope", errors)


def _url(text: str, path: str, errors: Errors) -> None:
    parts = urlsplit(text)
    form = "desired format: https://host[/path]"
    if parts.scheme != "https":
        errors.invalid(path, parts.scheme, f"'https' is the only allowed URL scheme; {form}")
    if not parts.netloc:
        errors.invalid(path, parts.netloc, f"host must be specified; {form}")
    if parts.username is not None:
        errors.invalid(
            path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL"
        )
    if parts.fragment:
        errors.invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        errors.invalid(path, parts.query, "query parameters are not permitted in the URL")


# --- devices --------------------------------------------------------------------------------------


CREATE = {
    ("scheduling.k8s.io", "PriorityClass"): priority_class,
    (RBAC, "Role"): namespaced_role,
    (RBAC, "ClusterRole"): cluster_role,
    (RBAC, "RoleBinding"): role_binding,
    (RBAC, "ClusterRoleBinding"): cluster_role_binding,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): webhooks,
}
UPDATE = {
    ("scheduling.k8s.io", "PriorityClass"): priority_class_update,
    (RBAC, "RoleBinding"): binding_update(role_binding),
    (RBAC, "ClusterRoleBinding"): binding_update(cluster_role_binding),
    ("certificates.k8s.io", "CertificateSigningRequest"): with_fixed(metadata, "spec"),
}
