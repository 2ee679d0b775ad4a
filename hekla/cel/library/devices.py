"""`includes`: whether an attribute of a device is a value, or has it among its values."""

from __future__ import annotations

from typing import Any

from hekla.cel.functions import method
from hekla.cel.types import BOOL, DYN
from hekla.cel.values import same


def _includes(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        return any(same(item, wanted) for item in value)
    return same(value, wanted)


method("includes", (DYN, DYN), BOOL, _includes)
