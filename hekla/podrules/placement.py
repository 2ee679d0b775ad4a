"""Affinity, tolerations and topology spread of a pod: their syntax.  Whether a node fits is the
scheduler's decision."""

from __future__ import annotations

from hekla.api.text.fieldrules import (
    Errors,
    Tree,
    label_key,
    label_value,
    one_of,
    operator_fits,
    selector,
)
from hekla.api.text.syntax import dns_label, dns_subdomain
from hekla.podrules.options import Options

USUAL = tuple(
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
)
"""Tolerations that every pod of a server has."""
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
OPERATORS = ("Equal", "Exists", "Lt", "Gt")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
INCLUSIONS = ("Honor", "Ignore")
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
NO_SELECTOR = "must not be specified when labelSelector is not set"
IN_BOTH = "exists in both matchLabelKeys and labelSelector"


def affinity(value: Tree, path: str, found: Errors) -> None:
    node = value.get("nodeAffinity") or {}
    if node.get(HARD) is not None:
        node_selector(node[HARD], f"{path}.nodeAffinity.{HARD}", found)
    for position, term in enumerate(node.get(SOFT) or ()):
        where = f"{path}.nodeAffinity.{SOFT}[{position}]"
        _weight(term, where, found)
        _node_term(term.get("preference") or {}, f"{where}.preference", found, values=False)
    for name in ("podAffinity", "podAntiAffinity"):
        terms = value.get(name) or {}
        for position, term in enumerate(terms.get(HARD) or ()):
            _pod_term(term, f"{path}.{name}.{HARD}[{position}]", found)
        for position, term in enumerate(terms.get(SOFT) or ()):
            where = f"{path}.{name}.{SOFT}[{position}]"
            _weight(term, where, found)
            _pod_term(term.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm", found)


def node_selector(value: Tree, path: str, found: Errors) -> None:
    terms = value.get("nodeSelectorTerms") or ()
    if not terms:
        found.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for position, term in enumerate(terms):
        _node_term(term, f"{path}.nodeSelectorTerms[{position}]", found)


def _node_term(term: Tree, path: str, found: Errors, *, values: bool = True) -> None:
    """`values`: whether values must be valid label values; preferred terms may have any."""
    for position, wanted in enumerate(term.get("matchExpressions") or ()):
        _node_labels(wanted, values, f"{path}.matchExpressions[{position}]", found)
    for position, wanted in enumerate(term.get("matchFields") or ()):
        _node_fields(wanted, f"{path}.matchFields[{position}]", found)


def _node_labels(wanted: Tree, judged: bool, path: str, found: Errors) -> None:
    key = wanted.get("key") or ""
    operator = wanted.get("operator") or ""
    values = wanted.get("values") or ()
    operator_fits(operator, values, path, found, numbers=True)
    found.malformed(f"{path}.key", key, label_key(key))
    for position, text in enumerate(values if judged else ()):
        found.malformed(f"{path}.values[{position}]", text, label_value(text))


def _node_fields(wanted: Tree, path: str, found: Errors) -> None:
    """Check field requirements; the only field of a node is its name."""
    key = wanted.get("key") or ""
    operator = wanted.get("operator") or ""
    values = wanted.get("values") or ()
    if operator not in ("In", "NotIn"):
        found.invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.required(f"{path}.values", why)
    if key != "metadata.name":
        found.invalid(f"{path}.key", key, "not a valid field selector key")
        return
    for position, text in enumerate(values):
        found.malformed(f"{path}.values[{position}]", text, dns_subdomain(text))


def _weight(term: Tree, path: str, found: Errors) -> None:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        found.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _pod_term(term: Tree, path: str, found: Errors) -> None:
    selector(term.get("labelSelector"), f"{path}.labelSelector", found)
    selector(term.get("namespaceSelector"), f"{path}.namespaceSelector", found)
    for name in term.get("namespaces") or ():
        found.malformed(f"{path}.namespace", name, dns_label(name))
    if term.get("matchLabelKeys") or term.get("mismatchLabelKeys"):
        label_keys(term, path, found)
    key = term.get("topologyKey") or ""
    if not key:
        found.required(f"{path}.topologyKey", "can not be empty")
    found.malformed(f"{path}.topologyKey", key, label_key(key))


def label_keys(term: Tree, path: str, found: Errors) -> None:
    """Check matchLabelKeys and mismatchLabelKeys, which add the pod's own label values to a
    selector."""
    wanted = term.get("matchLabelKeys") or []
    unwanted = term.get("mismatchLabelKeys") or []
    given = term.get("labelSelector")
    for field, keys in (("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)):
        if keys and given is None:
            found.forbidden(f"{path}.{field}", NO_SELECTOR)
            continue
        for position, key in enumerate(keys):
            found.malformed(f"{path}.{field}[{position}]", key, label_key(key))
    positions = {key: position for position, key in enumerate(wanted)}
    said = set((given or {}).get("matchLabels") or ())
    for expression in (given or {}).get("matchExpressions") or ():
        key = expression.get("key") or ""
        if key in positions and key in said:
            found.invalid(f"{path}[{positions[key]}]", key, IN_BOTH)
        said.add(key)
    for position, key in enumerate(wanted):
        if key in unwanted:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.invalid(f"{path}.matchLabelKeys[{position}]", key, why)


def _former_label_keys(constraint: Tree, path: str, found: Errors) -> None:
    """Check matchLabelKeys as before the server added them to the selector: the selector may not
    use the same keys."""
    keys, given = constraint.get("matchLabelKeys") or (), constraint.get("labelSelector")
    if keys and given is None:
        found.forbidden(f"{path}.matchLabelKeys", NO_SELECTOR)
    said = {
        *((given or {}).get("matchLabels") or ()),
        *(term.get("key") for term in (given or {}).get("matchExpressions") or ()),
    }
    for position, key in enumerate(keys):
        found.malformed(f"{path}.matchLabelKeys[{position}]", key, label_key(key))
        if key in said:
            found.invalid(f"{path}.matchLabelKeys[{position}]", key, IN_BOTH)


def tolerations(values: list[Tree], path: str, found: Errors) -> None:
    for position, toleration in enumerate(values):
        if toleration in USUAL:
            continue
        where = f"{path}[{position}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        effect, value = toleration.get("effect") or "", toleration.get("value") or ""
        if key:
            found.malformed(f"{where}.key", key, label_key(key))
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.invalid(f"{where}.operator", operator, why)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.invalid(f"{where}.effect", effect, why)
        if operator in ("", "Equal"):
            reasons = label_value(value)
            if reasons:
                found.invalid(f"{where}.operator", value, ";".join(reasons))
        elif operator == "Exists":
            if value:
                found.invalid(
                    f"{where}.operator", value, "value must be empty when `operator` is 'Exists'"
                )
        else:  # two that only a feature takes that is off; they are named with the others all the same
            named = OPERATORS if operator in OPERATORS else OPERATORS[:2]
            found.not_supported(f"{where}.operator", operator, named)
        one_of(effect, EFFECTS, f"{where}.effect", found)


def topology_spread(values: list[Tree], path: str, options: Options, found: Errors) -> None:
    last = {
        ((one.get("topologyKey") or ""), (one.get("whenUnsatisfiable") or "")): position
        for position, one in enumerate(values)
    }
    for position, constraint in enumerate(values):
        where = f"{path}[{position}]"
        skew = constraint.get("maxSkew") or 0
        key = constraint.get("topologyKey") or ""
        action = constraint.get("whenUnsatisfiable") or ""
        if skew <= 0:
            found.invalid(f"{where}.maxSkew", skew, "must be greater than zero")
        if not key:
            found.required(f"{where}.topologyKey", "can not be empty")
        one_of(action, UNSATISFIABLE, f"{where}.whenUnsatisfiable", found, known=True)
        if last[key, action] > position:
            found.duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        _domains(constraint, action, f"{where}.minDomains", found)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(field) is not None:
                one_of(constraint[field], INCLUSIONS, f"{where}.{field}", found, known=True)
        if constraint.get("matchLabelKeys"):
            (label_keys if options.features else _former_label_keys)(constraint, where, found)
        selector(constraint.get("labelSelector"), f"{where}.labelSelector", found)


def _domains(constraint: Tree, action: str, path: str, found: Errors) -> None:
    least = constraint.get("minDomains")
    if least is None:
        return
    if least <= 0:
        found.invalid(path, least, "must be greater than zero")
    if action != "DoNotSchedule":
        found.invalid(
            path, least, f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        )
