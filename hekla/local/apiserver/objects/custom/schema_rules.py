"""The CEL rules of a schema: found once, and evaluated for every object that is valid otherwise
(local-cluster 4.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects.custom.rules import NO_OLD_VALUE, STEP_BUDGET, Rule
from hekla.local.apiserver.objects.custom.schema_errors import schema_type_name
from hekla.local.apiserver.objects.hashable import hashable as known_by
from hekla.local.apiserver.objects.hashable import hashables
from hekla.local.apiserver.objects.kind import FieldError

log = logging.getLogger("hekla.apiserver")

Evaluator = Callable[[Any, Any, str, Errors, list[int]], None]
"""(value, old value or NO_OLD_VALUE, path, errors, budget): `budget` is a list with the number of
steps that are left."""
OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def evaluator(schema: Json, identity: Json | None = None) -> Evaluator | None:
    """A function that evaluates the rules at and below a schema node; None if there are none.

    `identity` holds the apiVersion and kind of the object if this node is its root: rules may read
    them, and the tree does not hold them.
    """
    own = rules_of(schema, root=identity is not None)
    items = schema.get("items")
    inner = evaluator(items) if isinstance(items, dict) else None
    properties = schema.get("properties") or {}
    fields = {
        name: made for name, below in properties.items() if (made := evaluator(below)) is not None
    }
    additional = schema.get("additionalProperties")
    values = evaluator(additional) if isinstance(additional, dict) else None
    if not own and inner is None and not fields and values is None:
        return None
    keys = (
        tuple(schema.get("x-kubernetes-list-map-keys") or ())
        if schema.get("x-kubernetes-list-type") == "map"
        else ()
    )
    is_set = schema.get("x-kubernetes-list-type") == "set"
    named = identity is not None and any(rule.program.names & {"self", "oldSelf"} for rule in own)

    def evaluate(value: Any, old: Any, path: str, errors: Errors, budget: list[int]) -> None:
        if value is None:
            return
        if own:
            subject, before = value, old
            if named and identity is not None:
                subject = {**identity, **value}
                before = old if old is NO_OLD_VALUE else {**identity, **old}
            for rule in own:
                if budget[0] <= 0:
                    text = f'Invalid value: "{schema_type_name(value)}": {OUT_OF_BUDGET}'
                    errors.append(FieldError(path or "<nil>", "FieldValueInvalid", text))
                    return
                rule.evaluate(subject, before, path, errors, budget)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                below = fields.get(key) or (values if key not in properties else None)
                if below is not None:
                    where = (
                        f"{path}[{key}]" if below is values else f"{path}.{key}" if path else key
                    )
                    below(item, before.get(key, NO_OLD_VALUE), where, errors, budget)
        elif isinstance(value, list) and inner is not None:
            known = _by_keys(old, keys) if keys else {}
            there = hashables(old) if is_set and isinstance(old, list) else set()
            for position, item in enumerate(value):
                if is_set:
                    before = item if known_by(item) in there else NO_OLD_VALUE
                else:
                    before = known.get(_identity(item, keys), NO_OLD_VALUE)
                inner(item, before, f"{path}[{position}]", errors, budget)

    return evaluate


def rules_of(schema: Json, *, root: bool) -> list[Rule]:
    """The compiled rules of one node. A rule that does not compile was accepted by an older server;
    it is logged and skipped."""
    declared_rules = schema.get("x-kubernetes-validations") or ()
    if not declared_rules:
        return []
    from hekla.cel import schema as schemas
    from hekla.cel.environment import WrongType
    from hekla.cel.errors import Refused

    kind = schemas.declared(schema, root=root or bool(schema.get("x-kubernetes-embedded-resource")))
    rules: list[Rule] = []
    for rule in declared_rules:
        if kind is None:
            break
        try:
            rules.append(Rule(rule, schema, kind))
        except (Refused, WrongType) as error:
            log.warning("the rule %r cannot be evaluated: %s", rule.get("rule"), error)
    return rules


def evaluate(asking: Evaluator, tree: Json, old: Any, errors: Errors) -> None:
    """Evaluate the rules of a whole object with a new step budget; appends to the errors."""
    asking(tree, old, "", errors, [STEP_BUDGET])


def _identity(item: Any, keys: tuple[str, ...]) -> Any:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) and keys else None


def _by_keys(old: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    return {_identity(item, keys): item for item in old} if isinstance(old, list) else {}
