"""Quantities of resources in objects other than pods: nodes, quotas, device classes."""

from __future__ import annotations

from typing import Any

from hekla.api.text.fieldrules import Errors, label_key
from hekla.api.text.quantity import QuantityError
from hekla.api.trees import Json
from hekla.local.apiserver.objects.amounts import amount


def amounts(values: Json | None, path: str, errors: Errors, form: str = "{}[{}]") -> None:
    """A map from resource name to quantity, none of which may be negative. `form` is how a field
    path is built from the path of the map and the name."""
    for name, text in (values or {}).items():
        for reason in label_key(name):
            errors.invalid(form.format(path, name), name, reason)
        why = _reason(text)
        if why:
            errors.invalid(form.format(path, name), text, why)


def _reason(text: Any) -> str:
    """Why a quantity is not valid; empty if it is."""
    try:
        return "" if amount(text).nanos >= 0 else "must be greater than or equal to 0"
    except QuantityError as error:
        return error.wire
