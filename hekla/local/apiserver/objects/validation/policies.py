"""The rules of admission policies and their bindings, of match conditions, and of expressions about
devices (local-cluster 6.5, 6.6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from hekla.api.text.fieldrules import Errors, one_of, selector
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
from hekla.local.apiserver.objects.expressions import Unusable, compiled, condition
from hekla.local.apiserver.objects.validation.metadata import metadata

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
MOST_CONDITIONS, MOST_ANNOTATIONS, LONGEST_VALUE = 64, 20, 5 * 1024
_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")


def conditions(found_in: Json, path: str, found: Errors, *, params: bool = False) -> None:
    """The `matchConditions` of a webhook or a policy."""
    declared = found_in.get("matchConditions") or ()
    if len(declared) > MOST_CONDITIONS:
        found.append(too_many(path, len(declared), MOST_CONDITIONS))
        return
    seen: set[str] = set()
    for position, entry in enumerate(declared):
        where = f"{path}[{position}]"
        text, name = (entry.get("expression") or "").strip(), entry.get("name") or ""
        if not text:
            found.append(required(f"{where}.expression"))
        else:
            usable(partial(condition, text, params=params), text, f"{where}.expression", found)
        if not name:
            found.append(required(f"{where}.name"))
        else:
            found += [
                invalid(f"{where}.name", name, reason) for reason in names.qualified_name(name)
            ]
            if name in seen:
                found.append(duplicate(f"{where}.name", name))
        seen.add(name)


def usable(compile: Callable[[], Any], text: str, path: str, found: Errors) -> Any:
    """What was compiled; None where it cannot be, which is then among the errors."""
    try:
        return compile()
    except Unusable as error:
        found.append(invalid(path, text, str(error)))
        return None


def validating(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    variables = _policy(spec, found)
    params = spec.get("paramKind") is not None
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        found += [required("spec.validations", why), required("spec.auditAnnotations", why)]
        return found
    for position, validation in enumerate(validations):
        _validation(validation, f"spec.validations[{position}]", params, variables, found)
    if len(annotations) > MOST_ANNOTATIONS:
        why = f"must not have more than {MOST_ANNOTATIONS} auditAnnotations"
        found.append(invalid("spec.auditAnnotations", list(annotations), why))
    seen: set[str] = set()
    for position, annotation in enumerate(annotations):
        where = f"spec.auditAnnotations[{position}]"
        _annotation(
            annotation,
            where,
            (tree.get("metadata") or {}).get("name") or "",
            params,
            variables,
            found,
        )
        if annotation.get("key") in seen:
            found.append(duplicate(f"{where}.key", annotation.get("key")))
        seen.add(annotation.get("key") or "")
    return found


def _policy(spec: Json, found: Errors) -> Json | None:
    """What both sorts of policies have; gives the types of the variables, None where there are
    none."""
    policies = ("Fail", "Ignore")
    one_of(spec.get("failurePolicy"), policies, "spec.failurePolicy", found)
    kind = spec.get("paramKind")
    if kind is not None:
        _param_kind(kind, "spec.paramKind", found)
    constraints = spec.get("matchConstraints")
    if constraints is None:
        found.append(required("spec.matchConstraints"))
    else:
        match_resources(constraints, "spec.matchConstraints", found)
        if not constraints.get("resourceRules"):
            found.append(required("spec.matchConstraints.resourceRules"))
    conditions(spec, "spec.matchConditions", found, params=kind is not None)
    types: Json = {}
    for position, variable in enumerate(spec.get("variables") or ()):
        where = f"spec.variables[{position}]"
        name, text = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            found.append(required(f"{where}.name", "name is not specified"))
        elif _IDENTIFIER.fullmatch(name) is None:
            found.append(invalid(f"{where}.name", name, "must be a valid CEL identifier"))
        if not text.strip():
            found.append(required(f"{where}.expression", "expression is not specified"))
            continue
        program = usable(
            partial(compiled, text, params=kind is not None, variables=types),
            text,
            f"{where}.expression",
            found,
        )
        if program is not None:
            types[name] = program.type
    return types if spec.get("variables") else None


def _param_kind(kind: Json, path: str, found: Errors) -> None:
    version = kind.get("apiVersion") or ""
    if not version:
        found.append(required(f"{path}.apiVersion"))
    else:
        group, _, name = version.rpartition("/")
        found += [
            invalid(f"{path}.apiVersion", group, reason)
            for reason in (names.dns_subdomain(group) if group else ())
        ]
        if not name:
            found.append(invalid(f"{path}.apiVersion", version, "version must be specified"))
        else:
            found += [
                invalid(f"{path}.apiVersion", name, reason) for reason in names.dns_1035_label(name)
            ]
    word = kind.get("kind") or ""
    if not word:
        found.append(required(f"{path}.kind"))
    else:
        start = "may have mixed case, but should otherwise match: "
        found += [
            invalid(f"{path}.kind", word, start + reason)
            for reason in names.dns_1035_label(word.lower())
        ]


def match_resources(tree: Json, path: str, found: Errors) -> None:
    one_of(tree.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", found)
    for name in ("namespaceSelector", "objectSelector"):
        selector(tree.get(name) or {}, f"{path}.{name}", found)
    for name in ("resourceRules", "excludeResourceRules"):
        for position, entry in enumerate(tree.get(name) or ()):
            _rule(entry, f"{path}.{name}[{position}]", found)


def _rule(entry: Json, where: str, found: Errors) -> None:
    for name in ("operations", "apiGroups", "apiVersions", "resources"):
        if not entry.get(name):
            found.append(required(f"{where}.{name}"))
    for index, operation in enumerate(entry.get("operations") or ()):
        if operation not in OPERATIONS:
            found.append(not_supported(f"{where}.operations[{index}]", operation, OPERATIONS))
    one_of(entry.get("scope"), ("*", "Cluster", "Namespaced"), f"{where}.scope", found)


def _validation(
    validation: Json, where: str, params: bool, variables: Json | None, found: Errors
) -> None:
    from hekla.cel.types import BOOL, STRING

    text, message = validation.get("expression") or "", validation.get("message") or ""
    said = validation.get("messageExpression") or ""
    if not text.strip():
        found.append(required(f"{where}.expression", "expression is not specified"))
    else:
        usable(
            lambda: compiled(text, (BOOL,), params=params, variables=variables),
            text,
            f"{where}.expression",
            found,
        )
    if said and not said.strip():
        found.append(invalid(f"{where}.messageExpression", said, "must be non-empty if specified"))
    elif said:
        usable(
            lambda: compiled(said, (STRING,), params=params, authorizer=False, variables=variables),
            said,
            f"{where}.messageExpression",
            found,
        )
    if message and not message.strip():
        found.append(invalid(f"{where}.message", message, "must be non-empty if specified"))
    elif "\n" in message:
        found.append(invalid(f"{where}.message", message, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None and reason not in REASONS:
        found.append(not_supported(f"{where}.reason", reason, REASONS))


def _annotation(
    annotation: Json, where: str, policy: str, params: bool, variables: Json | None, found: Errors
) -> None:
    from hekla.cel.types import NULL, STRING

    text = annotation.get("valueExpression") or ""
    key = f"{policy}/{annotation.get('key') or ''}"
    found += [invalid(f"{where}.key", key, reason) for reason in names.qualified_name(key)]
    if not text.strip():
        found.append(required(f"{where}.valueExpression", "valueExpression is not specified"))
    elif len(text.strip()) > LONGEST_VALUE:
        found.append(
            required(f"{where}.valueExpression", f"must not exceed {LONGEST_VALUE} bytes in length")
        )
    else:
        usable(
            lambda: compiled(text, (STRING, NULL), params=params, variables=variables),
            text,
            f"{where}.valueExpression",
            found,
        )


def mutating(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    variables = _policy(spec, found)
    params = spec.get("paramKind") is not None
    policies = ("IfNeeded", "Never")
    if not spec.get("reinvocationPolicy"):
        found.append(required("spec.reinvocationPolicy"))
    one_of(spec.get("reinvocationPolicy"), policies, "spec.reinvocationPolicy", found)
    if not spec.get("mutations"):
        found.append(required("spec.mutations", "mutations must contain at least one item"))
    for position, mutation in enumerate(spec.get("mutations") or ()):
        _mutation(mutation, f"spec.mutations[{position}]", params, variables, found)
    return found


_FORMS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def _mutation(
    mutation: Json, where: str, params: bool, variables: Json | None, found: Errors
) -> None:
    kind = mutation.get("patchType") or ""
    if not kind:
        found.append(required(f"{where}.patchType"))
        return
    if kind not in _FORMS:
        found.append(not_supported(f"{where}.patchType", kind, tuple(_FORMS)))
        return
    form = _FORMS[kind]
    if mutation.get(form) is None:
        found.append(required(f"{where}.{form}", f"must be specified when patchType is {kind}"))
    else:
        text = (mutation[form].get("expression") or "").strip()
        if not text:
            found.append(required(f"{where}.{form}.expression"))
        else:
            usable(
                lambda: mutation_program(kind, text, params, variables),
                text,
                f"{where}.{form}.expression",
                found,
            )
    for other in _FORMS.values():
        if other != form and mutation.get(other) is not None:
            why = f"must not be specified when patchType is {kind}"
            found.append(invalid(f"{where}.{other}", f"{{{other}}}", why))


def mutation_program(kind: str, text: str, params: bool, variables: Json | None) -> Any:
    """Raises Unusable."""
    from hekla.cel.environment import STRUCTS
    from hekla.cel.types import list_of

    wanted = STRUCTS["Object"] if kind == "ApplyConfiguration" else list_of(STRUCTS["JSONPatch"])
    return compiled(text, (wanted,), params=params, variables=variables, mutation=True)


def binding(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    name = spec.get("policyName") or ""
    if not name:
        found.append(required("spec.policyName"))
    else:
        found += [invalid("spec.policyName", name, reason) for reason in names.dns_subdomain(name)]
    reference = spec.get("paramRef")
    if reference is not None:
        _param_ref(reference, "spec.paramRef", found)
    if spec.get("matchResources") is not None:
        match_resources(spec["matchResources"], "spec.matchResources", found)
    return found


def _param_ref(reference: Json, path: str, found: Errors) -> None:
    name, by_labels = reference.get("name") or "", reference.get("selector")
    if name:
        found += [invalid(f"{path}.name", name, reason) for reason in names.path_segment(name)]
    if name and by_labels is not None:
        why = "name and selector are mutually exclusive"
        found += [forbidden(f"{path}.name", why), forbidden(f"{path}.selector", why)]
    elif by_labels is not None:
        selector(by_labels, f"{path}.selector", found)
    if not name and by_labels is None:
        found.append(required(path, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction")
    if not action:
        found.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Allow", "Deny"):
        found.append(not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))


def validating_binding(tree: Json) -> Errors:
    found = binding(tree)
    actions = (tree.get("spec") or {}).get("validationActions") or ()
    seen: set[str] = set()
    for position, action in enumerate(actions):
        where = f"spec.validationActions[{position}]"
        if action not in ("Audit", "Deny", "Warn"):
            found.append(not_supported(where, action, ("Audit", "Deny", "Warn")))
        if action in seen:
            found.append(duplicate(where, action))
        seen.add(action)
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers "
            "serves no purpose)"
        )
        found.append(invalid("spec.validationActions", list(actions), why))
    if not actions:
        found.append(
            required("spec.validationActions", "at least one validation action is required")
        )
    return found


def update_of(create: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    """An update that leaves the spec alone is let be, whatever an older server accepted."""

    def update(new: Json, old: Json) -> Errors:
        return metadata(new) if new.get("spec") == old.get("spec") else create(new)

    return update


# --- devices --------------------------------------------------------------------------------------

MOST_SELECTORS, LONGEST_SELECTOR = 32, 10 * 1024


def device_class(tree: Json) -> Errors:
    found = metadata(tree)
    device_selectors((tree.get("spec") or {}).get("selectors") or (), "spec.selectors", found)
    return found


def device_selectors(selectors: Any, path: str, found: Errors) -> None:
    if len(selectors) > MOST_SELECTORS:
        found.append(too_many(path, len(selectors), MOST_SELECTORS))
    for position, entry in enumerate(selectors):
        where = f"{path}[{position}].cel"
        if entry.get("cel") is None:
            found.append(required(where))
            continue
        text = entry["cel"].get("expression") or ""
        if len(text) > LONGEST_SELECTOR:
            found.append(
                invalid(
                    f"{where}.expression", text, f"may not be longer than {LONGEST_SELECTOR} bytes"
                )
            )
            continue
        from hekla.cel.devices import Selector
        from hekla.cel.devices import Unusable as UnusableSelector

        try:
            Selector(text)
        except UnusableSelector as error:
            found.append(invalid(f"{where}.expression", text, str(error)))


CREATE = {
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): validating,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): validating_binding,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): mutating,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): binding,
    ("resource.k8s.io", "DeviceClass"): device_class,
}
UPDATE = {key: update_of(create) for key, create in CREATE.items()}
