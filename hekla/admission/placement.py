"""What a pod template says about where it may run: labels, selectors, affinity, tolerations, spread.

Reference: api-and-admission 5.3.5.  Only the syntax is judged; whether such a node exists is the scheduler's to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from hekla.admission.fielderrors import duplicate, forbidden, invalid, required, unsupported
from hekla.admission.review import Tree
from hekla.admission.syntax import dns_label, dns_subdomain, label_value, qualified_name

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TOLERATION_OPERATORS = ("Equal", "Exists", "Lt", "Gt")
LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
NODE_POLICIES = ("Honor", "Ignore")
REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def labels(values: Tree, path: str) -> Iterator[str]:
    for key, value in values.items():
        yield from (invalid(path, key, reason) for reason in qualified_name(key))
        yield from (invalid(path, value, reason) for reason in label_value(value))


def affinity_problems(affinity: Tree, path: str) -> Iterator[str]:
    yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.nodeAffinity")
    for field in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(field) or {}, f"{path}.{field}")


def tolerations(given: list[Tree], path: str) -> Iterator[str]:
    for index, toleration in enumerate(given):
        where, key, operator = f"{path}[{index}]", toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            yield from (invalid(f"{where}.key", key, reason) for reason in qualified_name(key))
        elif operator != "Exists":
            yield invalid(
                f"{where}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield invalid(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("", "Equal"):
            errors = label_value(value)
            if errors:
                yield invalid(f"{where}.operator", value, ";".join(errors))
        elif operator == "Exists":
            if value:
                yield invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'")
        else:  # two that only a feature takes that is off; they are named with the others all the same
            named = TOLERATION_OPERATORS if operator in TOLERATION_OPERATORS else TOLERATION_OPERATORS[:2]
            yield unsupported(f"{where}.operator", operator, named)
        if effect and effect not in EFFECTS:
            yield unsupported(f"{where}.effect", effect, EFFECTS)


def _node_affinity(affinity: Tree, path: str) -> Iterator[str]:
    needed = affinity.get(REQUIRED)
    if needed is not None:
        terms = needed.get("nodeSelectorTerms") or []
        if not terms:
            yield required(f"{path}.{REQUIRED}.nodeSelectorTerms", "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_term(term, f"{path}.{REQUIRED}.nodeSelectorTerms[{index}]")
    for index, preferred in enumerate(affinity.get(PREFERRED) or []):
        where = f"{path}.{PREFERRED}[{index}]"
        yield from _weight(preferred, where)
        yield from _node_term(preferred.get("preference") or {}, f"{where}.preference")


def _weight(term: Tree, where: str) -> Iterator[str]:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid(f"{where}.weight", weight, "must be in the range 1-100")


def _node_term(term: Tree, path: str) -> Iterator[str]:
    for index, requirement in enumerate(term.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        yield from _requirement(requirement, where, NODE_OPERATORS)
        for place, value in enumerate(requirement.get("values") or []):
            yield from (invalid(f"{where}.values[{place}]", value, reason) for reason in label_value(value))
    for index, requirement in enumerate(term.get("matchFields") or []):
        yield from _field_requirement(requirement, f"{path}.matchFields[{index}]")


def _field_requirement(requirement: Tree, where: str) -> Iterator[str]:
    """A node is known by one field: its name."""
    key, operator, values = requirement.get("key") or "", requirement.get("operator") or "", requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield invalid(f"{where}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(f"{where}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if key != "metadata.name":
        yield invalid(f"{where}.key", key, "not a valid field selector key")
        return
    for place, value in enumerate(values):
        yield from (invalid(f"{where}.values[{place}]", value, reason) for reason in dns_subdomain(value))


def _requirement(requirement: Tree, where: str, operators: tuple[str, ...]) -> Iterator[str]:
    key, operator, values = requirement.get("key") or "", requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in operators:
        if len(values) != 1:
            yield required(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(f"{where}.operator", operator, "not a valid selector operator")
    yield from (invalid(f"{where}.key", key, reason) for reason in qualified_name(key))


def _selector(selector: Tree | None, path: str) -> Iterator[str]:
    if selector is None:
        return
    yield from labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or []):
        where = f"{path}.matchExpressions[{index}]"
        yield from _requirement(requirement, where, LABEL_OPERATORS)
        for place, value in enumerate(requirement.get("values") or []):
            yield from (invalid(f"{where}.values[{place}]", value, reason) for reason in label_value(value))


def _pod_affinity(affinity: Tree, path: str) -> Iterator[str]:
    for index, term in enumerate(affinity.get(REQUIRED) or []):
        yield from _pod_term(term, f"{path}.{REQUIRED}[{index}]")
    for index, preferred in enumerate(affinity.get(PREFERRED) or []):
        where = f"{path}.{PREFERRED}[{index}]"
        yield from _weight(preferred, where)
        yield from _pod_term(preferred.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")


def _pod_term(term: Tree, path: str) -> Iterator[str]:
    yield from _selector(term.get("labelSelector"), f"{path}.labelSelector")
    yield from _selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for namespace in term.get("namespaces") or []:
        yield from (invalid(f"{path}.namespace", namespace, reason) for reason in dns_label(namespace))
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        yield from _label_keys(term, field, path)
    key = term.get("topologyKey") or ""
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from (invalid(f"{path}.topologyKey", key, reason) for reason in qualified_name(key))


def _label_keys(term: Tree, field: str, path: str) -> Iterator[str]:
    keys = term.get(field) or []
    if keys and term.get("labelSelector") is None:
        yield forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        yield from (invalid(f"{path}.{field}[{index}]", key, reason) for reason in qualified_name(key))


def spread(constraints: list[Tree], path: str) -> Iterator[str]:
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        skew, key, otherwise = (
            constraint.get("maxSkew") or 0,
            constraint.get("topologyKey") or "",
            constraint.get("whenUnsatisfiable") or "",
        )
        if skew <= 0:
            yield invalid(f"{where}.maxSkew", skew, "must be greater than zero")
        if not key:
            yield required(f"{where}.topologyKey", "can not be empty")
        else:
            yield from (invalid(f"{where}.topologyKey", key, reason) for reason in qualified_name(key))
        if otherwise not in UNSATISFIABLE:
            yield unsupported(f"{where}.whenUnsatisfiable", otherwise, UNSATISFIABLE)
        if any((other.get("topologyKey"), other.get("whenUnsatisfiable")) == (key, otherwise) for other in constraints[index + 1 :]):
            yield duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {otherwise}}}")
        yield from _domains(constraint, otherwise, where)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(field)
            if policy is not None and policy not in NODE_POLICIES:
                yield unsupported(f"{where}.{field}", policy, NODE_POLICIES)
        yield from _label_keys(constraint, "matchLabelKeys", where)
        yield from _selector(constraint.get("labelSelector"), f"{where}.labelSelector")


def _domains(constraint: Tree, otherwise: str, where: str) -> Iterator[str]:
    least = constraint.get("minDomains")
    if least is None:
        return
    if least <= 0:
        yield invalid(f"{where}.minDomains", least, "must be greater than zero")
    if otherwise != "DoNotSchedule":
        yield invalid(f"{where}.minDomains", least, f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {otherwise}")
