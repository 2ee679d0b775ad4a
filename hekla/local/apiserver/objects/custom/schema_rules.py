"""The CEL rules of a schema, found once and asked of every object that fits the schema otherwise
(local-cluster 4.4)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.custom.rules import BUDGET, NOTHING, Rule
from hekla.local.apiserver.objects.custom.schema_errors import type_name
from hekla.local.apiserver.objects.identity import identities
from hekla.local.apiserver.objects.identity import identity as known_by
from hekla.local.apiserver.objects.kind import FieldError

log = logging.getLogger("hekla.apiserver")

Asker = Callable[[Any, Any, str, list[FieldError], list[int]], None]
"""(value, old value or NOTHING, path, found, steps that are left)"""
OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def asker(schema: Json, identity: Json | None = None) -> Asker | None:
    """What asks the rules at and below a schema node; None where there are none.

    `identity` is the apiVersion and kind of the object whose root this node is: rules see them, the
    tree here has them not.
    """
    own = rules_of(schema, root=identity is not None)
    items = schema.get("items")
    inner = asker(items) if isinstance(items, dict) else None
    properties = schema.get("properties") or {}
    fields = {
        name: made for name, below in properties.items() if (made := asker(below)) is not None
    }
    additional = schema.get("additionalProperties")
    values = asker(additional) if isinstance(additional, dict) else None
    if not own and inner is None and not fields and values is None:
        return None
    keys = (
        tuple(schema.get("x-kubernetes-list-map-keys") or ())
        if schema.get("x-kubernetes-list-type") == "map"
        else ()
    )
    is_set = schema.get("x-kubernetes-list-type") == "set"
    named = identity is not None and any(rule.program.names & {"self", "oldSelf"} for rule in own)

    def ask(value: Any, old: Any, path: str, found: list[FieldError], budget: list[int]) -> None:
        if value is None:
            return
        if own:
            subject, before = value, old
            if named and identity is not None:
                subject = {**identity, **value}
                before = old if old is NOTHING else {**identity, **old}
            for rule in own:
                if budget[0] <= 0:
                    text = f'Invalid value: "{type_name(value)}": {OUT_OF_BUDGET}'
                    found.append(FieldError(path or "<nil>", "FieldValueInvalid", text))
                    return
                rule.ask(subject, before, path, found, budget)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                below = fields.get(key) or (values if key not in properties else None)
                if below is not None:
                    where = (
                        f"{path}[{key}]" if below is values else f"{path}.{key}" if path else key
                    )
                    below(item, before.get(key, NOTHING), where, found, budget)
        elif isinstance(value, list) and inner is not None:
            known = _by_keys(old, keys) if keys else {}
            there = identities(old) if is_set and isinstance(old, list) else set()
            for position, item in enumerate(value):
                if is_set:
                    before = item if known_by(item) in there else NOTHING
                else:
                    before = known.get(_identity(item, keys), NOTHING)
                inner(item, before, f"{path}[{position}]", found, budget)

    return ask


def rules_of(schema: Json, *, root: bool) -> list[Rule]:
    """The compiled rules of one node.  One that does not compile was stored by an older server, and
    is said in the log."""
    declared_rules = schema.get("x-kubernetes-validations") or ()
    if not declared_rules:
        return []
    from hekla.cel import schema as schemas
    from hekla.cel.environment import WrongType
    from hekla.cel.errors import Refused

    kind = schemas.declared(schema, root=root or bool(schema.get("x-kubernetes-embedded-resource")))
    found: list[Rule] = []
    for rule in declared_rules:
        if kind is None:
            break
        try:
            found.append(Rule(rule, schema, kind))
        except (Refused, WrongType) as error:
            log.warning("the rule %r cannot be asked: %s", rule.get("rule"), error)
    return found


def ask(asking: Asker, tree: Json, old: Any, found: list[FieldError]) -> None:
    asking(tree, old, "", found, [BUDGET])


def _identity(item: Any, keys: tuple[str, ...]) -> Any:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) and keys else None


def _by_keys(old: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    return {_identity(item, keys): item for item in old} if isinstance(old, list) else {}
