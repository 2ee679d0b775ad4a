"""The rules of admission policies and their bindings, of match conditions, and of CEL selectors of
devices (local-cluster 6.5, 6.6)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from hekla.api.text.fielderrors import forbidden, invalid, required
from hekla.api.text.fieldrules import Errors, named, one_of, selector
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.expressions import (
    Unusable,
    compile_admission_expression,
    compile_match_condition,
)
from hekla.local.apiserver.objects.validation.metadata import metadata

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
MAX_MATCH_CONDITIONS, MAX_AUDIT_ANNOTATIONS, MAX_VALUE_EXPRESSION_LENGTH = 64, 20, 5 * 1024
_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")


def conditions(found_in: Json, path: str, errors: Errors, *, params: bool = False) -> None:
    """The `matchConditions` of a webhook or a policy."""
    declared = found_in.get("matchConditions") or ()
    if len(declared) > MAX_MATCH_CONDITIONS:
        errors.too_many(path, len(declared), MAX_MATCH_CONDITIONS)
        return
    seen: set[str] = set()
    for position, entry in enumerate(declared):
        where = f"{path}[{position}]"
        text, name = (entry.get("expression") or "").strip(), entry.get("name") or ""
        if not text:
            errors.required(f"{where}.expression")
        else:
            usable(
                partial(compile_match_condition, text, params=params),
                text,
                f"{where}.expression",
                errors,
            )
        if not name:
            errors.required(f"{where}.name")
        else:
            errors.malformed(f"{where}.name", name, names.qualified_name(name))
            if name in seen:
                errors.duplicate(f"{where}.name", name)
        seen.add(name)


def usable(compile: Callable[[], Any], text: str, path: str, errors: Errors) -> Any:
    """Compile an expression; if it cannot be compiled, add the reason to the errors and return
    None."""
    try:
        return compile()
    except Unusable as error:
        errors.invalid(path, text, str(error))
        return None


def validating(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    variables = _policy(spec, errors)
    params = spec.get("paramKind") is not None
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        errors += [required("spec.validations", why), required("spec.auditAnnotations", why)]
        return errors
    for position, validation in enumerate(validations):
        _validation(validation, f"spec.validations[{position}]", params, variables, errors)
    if len(annotations) > MAX_AUDIT_ANNOTATIONS:
        why = f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"
        errors.invalid("spec.auditAnnotations", list(annotations), why)
    seen: set[str] = set()
    for position, annotation in enumerate(annotations):
        where = f"spec.auditAnnotations[{position}]"
        _annotation(
            annotation,
            where,
            (tree.get("metadata") or {}).get("name") or "",
            params,
            variables,
            errors,
        )
        if annotation.get("key") in seen:
            errors.duplicate(f"{where}.key", annotation.get("key"))
        seen.add(annotation.get("key") or "")
    return errors


def _policy(spec: Json, errors: Errors) -> Json | None:
    """The rules that validating and mutating policies share. Returns the types of the variables,
    None if there are none."""
    policies = ("Fail", "Ignore")
    one_of(spec.get("failurePolicy"), policies, "spec.failurePolicy", errors)
    kind = spec.get("paramKind")
    if kind is not None:
        _param_kind(kind, "spec.paramKind", errors)
    constraints = spec.get("matchConstraints")
    if constraints is None:
        errors.required("spec.matchConstraints")
    else:
        match_resources(constraints, "spec.matchConstraints", errors)
        if not constraints.get("resourceRules"):
            errors.required("spec.matchConstraints.resourceRules")
    conditions(spec, "spec.matchConditions", errors, params=kind is not None)
    types: Json = {}
    for position, variable in enumerate(spec.get("variables") or ()):
        where = f"spec.variables[{position}]"
        name, text = variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            errors.required(f"{where}.name", "name is not specified")
        elif _IDENTIFIER.fullmatch(name) is None:
            errors.invalid(f"{where}.name", name, "must be a valid CEL identifier")
        if not text.strip():
            errors.required(f"{where}.expression", "expression is not specified")
            continue
        program = usable(
            partial(compile_admission_expression, text, params=kind is not None, variables=types),
            text,
            f"{where}.expression",
            errors,
        )
        if program is not None:
            types[name] = program.type
    return types if spec.get("variables") else None


def _param_kind(kind: Json, path: str, errors: Errors) -> None:
    version = kind.get("apiVersion") or ""
    if not version:
        errors.required(f"{path}.apiVersion")
    else:
        group, _, name = version.rpartition("/")
        errors.malformed(f"{path}.apiVersion", group, names.dns_subdomain(group) if group else ())
        if not name:
            errors.invalid(f"{path}.apiVersion", version, "version must be specified")
        else:
            errors.malformed(f"{path}.apiVersion", name, names.dns_1035_label(name))
    word = kind.get("kind") or ""
    if not word:
        errors.required(f"{path}.kind")
    else:
        start = "may have mixed case, but should otherwise match: "
        errors += [
            invalid(f"{path}.kind", word, start + reason)
            for reason in names.dns_1035_label(word.lower())
        ]


def match_resources(tree: Json, path: str, errors: Errors) -> None:
    one_of(tree.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", errors)
    for name in ("namespaceSelector", "objectSelector"):
        selector(tree.get(name) or {}, f"{path}.{name}", errors)
    for name in ("resourceRules", "excludeResourceRules"):
        for position, entry in enumerate(tree.get(name) or ()):
            _rule(entry, f"{path}.{name}[{position}]", errors)


def _rule(entry: Json, where: str, errors: Errors) -> None:
    for name in ("operations", "apiGroups", "apiVersions", "resources"):
        if not entry.get(name):
            errors.required(f"{where}.{name}")
    for index, operation in enumerate(entry.get("operations") or ()):
        if operation not in OPERATIONS:
            errors.not_supported(f"{where}.operations[{index}]", operation, OPERATIONS)
    one_of(entry.get("scope"), ("*", "Cluster", "Namespaced"), f"{where}.scope", errors)


def _validation(
    validation: Json, where: str, params: bool, variables: Json | None, errors: Errors
) -> None:
    from hekla.cel.types import BOOL, STRING

    text, message = validation.get("expression") or "", validation.get("message") or ""
    message_expression = validation.get("messageExpression") or ""
    if not text.strip():
        errors.required(f"{where}.expression", "expression is not specified")
    else:
        usable(
            lambda: compile_admission_expression(text, (BOOL,), params=params, variables=variables),
            text,
            f"{where}.expression",
            errors,
        )
    if message_expression and not message_expression.strip():
        errors.invalid(
            f"{where}.messageExpression", message_expression, "must be non-empty if specified"
        )
    elif message_expression:
        usable(
            lambda: compile_admission_expression(
                message_expression, (STRING,), params=params, authorizer=False, variables=variables
            ),
            message_expression,
            f"{where}.messageExpression",
            errors,
        )
    if message and not message.strip():
        errors.invalid(f"{where}.message", message, "must be non-empty if specified")
    elif "\n" in message:
        errors.invalid(f"{where}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in REASONS:
        errors.not_supported(f"{where}.reason", reason, REASONS)


def _annotation(
    annotation: Json, where: str, policy: str, params: bool, variables: Json | None, errors: Errors
) -> None:
    from hekla.cel.types import NULL, STRING

    text = annotation.get("valueExpression") or ""
    key = f"{policy}/{annotation.get('key') or ''}"
    errors.malformed(f"{where}.key", key, names.qualified_name(key))
    if not text.strip():
        errors.required(f"{where}.valueExpression", "valueExpression is not specified")
    elif len(text.strip()) > MAX_VALUE_EXPRESSION_LENGTH:
        why = f"must not exceed {MAX_VALUE_EXPRESSION_LENGTH} bytes in length"
        errors.required(f"{where}.valueExpression", why)
    else:
        usable(
            lambda: compile_admission_expression(
                text, (STRING, NULL), params=params, variables=variables
            ),
            text,
            f"{where}.valueExpression",
            errors,
        )


def mutating(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    variables = _policy(spec, errors)
    params = spec.get("paramKind") is not None
    policies = ("IfNeeded", "Never")
    if not spec.get("reinvocationPolicy"):
        errors.required("spec.reinvocationPolicy")
    one_of(spec.get("reinvocationPolicy"), policies, "spec.reinvocationPolicy", errors)
    if not spec.get("mutations"):
        errors.required("spec.mutations", "mutations must contain at least one item")
    for position, mutation in enumerate(spec.get("mutations") or ()):
        _mutation(mutation, f"spec.mutations[{position}]", params, variables, errors)
    return errors


_FORMS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def _mutation(
    mutation: Json, where: str, params: bool, variables: Json | None, errors: Errors
) -> None:
    kind = mutation.get("patchType") or ""
    if not kind:
        errors.required(f"{where}.patchType")
        return
    if kind not in _FORMS:
        errors.not_supported(f"{where}.patchType", kind, tuple(_FORMS))
        return
    form = _FORMS[kind]
    if mutation.get(form) is None:
        errors.required(f"{where}.{form}", f"must be specified when patchType is {kind}")
    else:
        text = (mutation[form].get("expression") or "").strip()
        if not text:
            errors.required(f"{where}.{form}.expression")
        else:
            usable(
                lambda: mutation_program(kind, text, params, variables),
                text,
                f"{where}.{form}.expression",
                errors,
            )
    for other in _FORMS.values():
        if other != form and mutation.get(other) is not None:
            why = f"must not be specified when patchType is {kind}"
            errors.invalid(f"{where}.{other}", f"{{{other}}}", why)


def mutation_program(kind: str, text: str, params: bool, variables: Json | None) -> Any:
    """Compile the expression of a mutation. Raises Unusable."""
    from hekla.cel.environment import STRUCTS
    from hekla.cel.types import list_of

    wanted = STRUCTS["Object"] if kind == "ApplyConfiguration" else list_of(STRUCTS["JSONPatch"])
    return compile_admission_expression(
        text, (wanted,), params=params, variables=variables, mutation=True
    )


def binding(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    name = spec.get("policyName") or ""
    named(name, names.dns_subdomain, "spec.policyName", errors)
    reference = spec.get("paramRef")
    if reference is not None:
        _param_ref(reference, "spec.paramRef", errors)
    if spec.get("matchResources") is not None:
        match_resources(spec["matchResources"], "spec.matchResources", errors)
    return errors


def _param_ref(reference: Json, path: str, errors: Errors) -> None:
    name, by_labels = reference.get("name") or "", reference.get("selector")
    if name:
        errors.malformed(f"{path}.name", name, names.path_segment(name))
    if name and by_labels is not None:
        why = "name and selector are mutually exclusive"
        errors += [forbidden(f"{path}.name", why), forbidden(f"{path}.selector", why)]
    elif by_labels is not None:
        selector(by_labels, f"{path}.selector", errors)
    if not name and by_labels is None:
        errors.required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    if not action:
        errors.required(f"{path}.parameterNotFoundAction")
    elif action not in ("Allow", "Deny"):
        errors.not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))


def validating_binding(tree: Json) -> Errors:
    errors = binding(tree)
    actions = (tree.get("spec") or {}).get("validationActions") or ()
    seen: set[str] = set()
    for position, action in enumerate(actions):
        where = f"spec.validationActions[{position}]"
        if action not in ("Audit", "Deny", "Warn"):
            errors.not_supported(where, action, ("Audit", "Deny", "Warn"))
        if action in seen:
            errors.duplicate(where, action)
        seen.add(action)
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers "
            "serves no purpose)"
        )
        errors.invalid("spec.validationActions", list(actions), why)
    if not actions:
        errors.required("spec.validationActions", "at least one validation action is required")
    return errors


def update_of(create: Callable[[Json], Errors]) -> Callable[[Json, Json], Errors]:
    """The check of an update. An unchanged spec is not checked again: an older server may have
    accepted more."""

    def update(new: Json, old: Json) -> Errors:
        return metadata(new) if new.get("spec") == old.get("spec") else create(new)

    return update


# --- devices --------------------------------------------------------------------------------------

MAX_CEL_SELECTORS, MAX_SELECTOR_EXPRESSION_LENGTH = 32, 10 * 1024


def device_class(tree: Json) -> Errors:
    errors = metadata(tree)
    device_selectors((tree.get("spec") or {}).get("selectors") or (), "spec.selectors", errors)
    return errors


def device_selectors(selectors: Any, path: str, errors: Errors) -> None:
    """The CEL selectors of a device class or a device request."""
    if len(selectors) > MAX_CEL_SELECTORS:
        errors.too_many(path, len(selectors), MAX_CEL_SELECTORS)
    for position, entry in enumerate(selectors):
        where = f"{path}[{position}].cel"
        if entry.get("cel") is None:
            errors.required(where)
            continue
        text = entry["cel"].get("expression") or ""
        if len(text) > MAX_SELECTOR_EXPRESSION_LENGTH:
            why = f"may not be longer than {MAX_SELECTOR_EXPRESSION_LENGTH} bytes"
            errors.invalid(f"{where}.expression", text, why)
            continue
        from hekla.cel.devices import Selector
        from hekla.cel.devices import Unusable as UnusableSelector

        try:
            Selector(text)
        except UnusableSelector as error:
            errors.invalid(f"{where}.expression", text, str(error))


CREATE = {
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): validating,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): validating_binding,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): mutating,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): binding,
    ("resource.k8s.io", "DeviceClass"): device_class,
}
UPDATE = {key: update_of(create) for key, create in CREATE.items()}
