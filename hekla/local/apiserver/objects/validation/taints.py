"""The rules of a node's taints."""

from __future__ import annotations

from typing import Any

from hekla.api.text.fieldrules import Errors, label_key, label_value
from hekla.podrules.placement import EFFECTS


def taints(values: Any, path: str, errors: Errors) -> None:
    seen = set()
    for position, taint in enumerate(values or ()):
        where = f"{path}[{position}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        errors.malformed(f"{where}.key", key, label_key(key))
        errors.malformed(
            f"{where}.value", taint.get("value", ""), label_value(taint.get("value") or "")
        )
        if not effect:
            errors.required(f"{where}.effect")
        elif effect not in EFFECTS:
            errors.not_supported(f"{where}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            errors.invalid(where, taint, "taints must be unique by key and effect pair")
        seen.add((key, effect))
