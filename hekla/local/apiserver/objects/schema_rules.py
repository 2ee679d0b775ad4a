"""The CEL rules of a schema, found once and asked of every object that fits the schema otherwise (local-cluster 4.4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from hekla.local.apiserver.kind import FieldError, Json
from hekla.local.apiserver.objects import rules
from hekla.local.apiserver.objects.schema_errors import NOTHING

Asker = Callable[[Any, Any, str, list[FieldError]], None]
"""(value, old value or NOTHING, path, found)"""

_TEXTS = {
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


class _Rule(NamedTuple):
    evaluate: rules.Evaluate
    transition: bool
    message: str
    reason: str
    path: str


def asker(schema: Json) -> Asker | None:
    """What asks the rules at and below a schema node; None where there are none that can be asked."""
    own = [made for made in (_rule(rule) for rule in schema.get("x-kubernetes-validations") or ()) if made is not None]
    items = schema.get("items")
    inner = asker(items) if isinstance(items, dict) else None
    fields = {name: made for name, below in (schema.get("properties") or {}).items() if (made := asker(below)) is not None}
    additional = schema.get("additionalProperties")
    values = asker(additional) if isinstance(additional, dict) else None
    if not own and inner is None and not fields and values is None:
        return None
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if schema.get("x-kubernetes-list-type") == "map" else ()

    def ask(value: Any, old: Any, path: str, found: list[FieldError]) -> None:
        if value is None:
            return
        for rule in own:
            _ask(rule, value, old, path, found)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            for key, item in value.items():
                below = fields.get(key) or (values if key not in (schema.get("properties") or {}) else None)
                if below is not None:
                    below(item, before.get(key, NOTHING), f"{path}.{key}" if path else key, found)
        elif isinstance(value, list) and inner is not None:
            known = _by_keys(old, keys) if keys else {}
            for position, item in enumerate(value):
                inner(item, known.get(_identity(item, keys), NOTHING), f"{path}[{position}]", found)

    return ask


def _rule(declared: Json) -> _Rule | None:
    text = declared.get("rule") or ""
    evaluate = rules.compiled(text)
    if evaluate is None or declared.get("messageExpression") or declared.get("optionalOldSelf"):
        return None
    return _Rule(
        evaluate,
        re.search(r"\boldSelf\b", text) is not None,
        declared.get("message") or f"failed rule: {text.strip()}",
        declared.get("reason") or "FieldValueInvalid",
        declared.get("fieldPath") or "",
    )


def _ask(rule: _Rule, value: Any, old: Any, path: str, found: list[FieldError]) -> None:
    if rule.transition and old is NOTHING:
        return
    if not rule.transition and old is not NOTHING and old == value:
        return
    scope = {"self": value} if old is NOTHING else {"self": value, "oldSelf": old}
    message = rule.message
    try:
        if rule.evaluate(scope) is True:
            return
    except rules.Failed as failure:
        message = f"rule evaluation error: {failure}"
    where = f"{path}{rule.path}" if path else rule.path.lstrip(".")
    found.append(FieldError(where or "<nil>", rule.reason, f"{_TEXTS.get(rule.reason, 'Invalid value')}: {message}"))


def _identity(item: Any, keys: tuple[str, ...]) -> Any:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) and keys else None


def _by_keys(old: Any, keys: tuple[str, ...]) -> dict[Any, Any]:
    return {_identity(item, keys): item for item in old} if isinstance(old, list) else {}
