"""The rules of what steers a pod to a node: affinity, tolerations, spreading, taints."""

from __future__ import annotations

from typing import Any

from hekla.local.apiserver.objects.errors import forbidden, invalid, not_supported, required
from hekla.local.apiserver.objects.validation.metadata import Errors, label_key, label_value, selector

Json = dict[str, Any]
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(value: Json, path: str, found: Errors) -> None:
    node = value.get("nodeAffinity") or {}
    if node.get(_HARD) is not None:
        node_selector(node[_HARD], f"{path}.nodeAffinity.{_HARD}", found)
    for position, term in enumerate(node.get(_SOFT) or ()):
        where = f"{path}.nodeAffinity.{_SOFT}[{position}]"
        _weight(term, where, found)
        _node_term(term.get("preference") or {}, f"{where}.preference", found)
    for name in ("podAffinity", "podAntiAffinity"):
        terms = value.get(name) or {}
        for position, term in enumerate(terms.get(_HARD) or ()):
            _pod_term(term, f"{path}.{name}.{_HARD}[{position}]", found)
        for position, term in enumerate(terms.get(_SOFT) or ()):
            where = f"{path}.{name}.{_SOFT}[{position}]"
            _weight(term, where, found)
            _pod_term(term.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", found)


def node_selector(value: Json, path: str, found: Errors) -> None:
    terms = value.get("nodeSelectorTerms") or ()
    if not terms:
        found.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
    for position, term in enumerate(terms):
        _node_term(term, f"{path}.nodeSelectorTerms[{position}]", found)


def _node_term(term: Json, path: str, found: Errors) -> None:
    for position, wanted in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{position}]"
        operator, values = wanted.get("operator", ""), wanted.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                found.append(required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                found.append(forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                found.append(required(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
        else:
            found.append(invalid(f"{where}.operator", operator, "not a valid selector operator"))
        key = wanted.get("key", "")
        found += [invalid(f"{where}.key", key, reason) for reason in label_key(key)]
    for position, wanted in enumerate(term.get("matchFields") or ()):
        where = f"{path}.matchFields[{position}]"
        if wanted.get("key") != "metadata.name":
            found.append(invalid(f"{where}.key", wanted.get("key", ""), "not a valid field selector key"))
        if len(wanted.get("values") or ()) != 1:
            found.append(required(f"{where}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))


def _weight(term: Json, path: str, found: Errors) -> None:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        found.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def _pod_term(term: Json, path: str, found: Errors) -> None:
    key = term.get("topologyKey") or ""
    if not key:
        found.append(required(f"{path}.topologyKey", "can not be empty"))
    found += [invalid(f"{path}.topologyKey", key, reason) for reason in label_key(key)]
    selector(term.get("labelSelector"), f"{path}.labelSelector", found)
    selector(term.get("namespaceSelector"), f"{path}.namespaceSelector", found)


def tolerations(values: list[Json], path: str, found: Errors) -> None:
    for position, toleration in enumerate(values):
        where = f"{path}[{position}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        effect, value = toleration.get("effect") or "", toleration.get("value") or ""
        if key:
            found += [invalid(f"{where}.key", key, reason) for reason in label_key(key)]
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid(f"{where}.operator", operator, why))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            found.append(invalid(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
        if operator in ("", "Equal"):
            found += [invalid(f"{where}.operator", value, reason) for reason in label_value(value)]
        elif operator == "Exists":
            if value:
                found.append(invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'"))
        elif operator not in ("Lt", "Gt"):
            found.append(not_supported(f"{where}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in EFFECTS:
            found.append(not_supported(f"{where}.effect", effect, EFFECTS))


def topology_spread(values: list[Json], path: str, found: Errors) -> None:
    for position, constraint in enumerate(values):
        where = f"{path}[{position}]"
        skew = constraint.get("maxSkew") or 0
        if skew <= 0:
            found.append(invalid(f"{where}.maxSkew", skew, "must be greater than zero"))
        key = constraint.get("topologyKey") or ""
        if not key:
            found.append(required(f"{where}.topologyKey", "can not be empty"))
        else:
            found += [invalid(f"{where}.topologyKey", key, reason) for reason in label_key(key)]
        action = constraint.get("whenUnsatisfiable") or ""
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            found.append(not_supported(f"{where}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        domains = constraint.get("minDomains")
        if domains is not None and domains <= 0:
            found.append(invalid(f"{where}.minDomains", domains, "must be greater than zero"))
        selector(constraint.get("labelSelector"), f"{where}.labelSelector", found)


def taints(values: Any, path: str, found: Errors) -> None:
    seen = set()
    for position, taint in enumerate(values or ()):
        where = f"{path}[{position}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        found += [invalid(f"{where}.key", key, reason) for reason in label_key(key)]
        found += [invalid(f"{where}.value", taint.get("value", ""), reason) for reason in label_value(taint.get("value") or "")]
        if not effect:
            found.append(required(f"{where}.effect"))
        elif effect not in EFFECTS:
            found.append(not_supported(f"{where}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            found.append(invalid(where, taint, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
