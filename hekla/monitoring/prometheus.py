"""Instant queries of Prometheus, and of what answers like it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from hekla.monitoring.http import LARGEST, ROUND, address_of, fetch


class Row(NamedTuple):
    """One row of a vector: its labels, value and time."""

    labels: Mapping[str, str]
    value: float
    at: float


def vector(
    settings: Mapping[str, str], query: str, *, largest: int = LARGEST, timeout: float = ROUND
) -> list[Row]:
    """The rows of a query; a scalar or a matrix has none.  Values that are no finite numbers are
    left out.  Raises OSError, ValueError and what an answer of another shape gives."""
    url = f"{address_of(settings)}/api/v1/query?{urlencode({'query': query})}"
    data = fetch(url, settings, largest=largest, timeout=timeout)["data"]
    if data.get("resultType", "vector") != "vector":
        return []
    rows = (
        Row(one.get("metric") or {}, float(one["value"][1]), float(one["value"][0]))
        for one in data["result"]
    )
    return [row for row in rows if math.isfinite(row.value)]
