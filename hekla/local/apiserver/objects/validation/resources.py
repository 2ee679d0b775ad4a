"""Amounts of resources in what is no pod: nodes, quotas, classes."""

from __future__ import annotations

from typing import Any

from hekla.api.text.fieldrules import Errors, label_key
from hekla.api.text.quantity import QuantityError
from hekla.api.trees import Json
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.errors import invalid


def amounts(values: Json | None, path: str, found: Errors, form: str = "{}[{}]") -> None:
    """A map from resource name to amount that must not be negative."""
    for name, text in (values or {}).items():
        for reason in label_key(name):
            found.append(invalid(form.format(path, name), name, reason))
        why = _reason(text)
        if why:
            found.append(invalid(form.format(path, name), text, why))


def _reason(text: Any) -> str:
    """Why there cannot be that much; empty when there can."""
    try:
        return "" if amount(text).nanos >= 0 else "must be greater than or equal to 0"
    except QuantityError as error:
        return error.wire
