"""What keeps pods away from a node."""

from __future__ import annotations

from typing import Any

from hekla.api.text.fieldrules import Errors, label_key, label_value
from hekla.local.apiserver.objects.errors import invalid, not_supported, required
from hekla.podrules.placement import EFFECTS


def taints(values: Any, path: str, found: Errors) -> None:
    seen = set()
    for position, taint in enumerate(values or ()):
        where = f"{path}[{position}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        found += [invalid(f"{where}.key", key, reason) for reason in label_key(key)]
        found += [
            invalid(f"{where}.value", taint.get("value", ""), reason)
            for reason in label_value(taint.get("value") or "")
        ]
        if not effect:
            found.append(required(f"{where}.effect"))
        elif effect not in EFFECTS:
            found.append(not_supported(f"{where}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            found.append(invalid(where, taint, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
