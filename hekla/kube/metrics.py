"""Metrics as Prometheus reads them, with counters that keep the names they have always had.

The Python client ends the name of every counter in `_total` and adds a time of creation to each series.  Dashboards and alerts that
people have for Volcano ask for names without such an end, so counters of those names are shown under them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, disable_created_metrics, generate_latest
from prometheus_client.samples import Sample

disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type for it

_PLAIN: set[str] = set()


class Tally(Counter):
    """A counter shown under its own name."""

    def __init__(self, name: str, documentation: str, labelnames: Iterable[str] = (), **more: Any) -> None:
        _PLAIN.add(name)
        super().__init__(name, documentation, labelnames, **more)  # each series is made with these names, too

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("", {}, self._value.get(), None, None),)


def shown(registry: CollectorRegistry | None = None) -> bytes:
    """Everything that is measured, as text."""
    lines = generate_latest(registry or REGISTRY).splitlines(keepends=True)
    return b"".join(map(_plain, lines))


def _plain(line: bytes) -> bytes:
    if not line.startswith(b"# "):
        return line
    sign, what, name, rest = line.split(b" ", 3)
    own = name.removesuffix(b"_total")
    return b" ".join((sign, what, own, rest)) if own.decode() in _PLAIN else line
