"""Prometheus metrics, with counters under exactly the names that they are given.

The Python client appends `_total` to the name of every counter and adds a creation time to each
series.  Dashboards and alerts for Volcano use names without that suffix, so such counters are shown
without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type for it

_PLAIN: set[str] = set()


class Tally(Counter):
    """A counter shown under its own name."""

    def __init__(
        self, name: str, documentation: str, labelnames: Iterable[str] = (), **more: Any
    ) -> None:
        _PLAIN.add(name)
        # The library creates each series with these arguments too.
        super().__init__(name, documentation, labelnames, **more)

    def _child_samples(self) -> Iterable[Sample]:
        return (Sample("", {}, self._value.get(), None, None),)


Labels = tuple[tuple[str, str], ...]
"""Names and values of one series' labels."""


class Table(Collector):
    """Many series of one name, as a dictionary from labels to value that is read on a scrape.

    For series that come and go with the objects that they describe; the library would make an
    object with a lock for each.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...] = (),
        *,
        counts: bool = False,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        """`labels`: the names that each series has, none for one series.  `counts`: a counter under
        its own name; otherwise a gauge."""
        self.name = name
        self.documentation = documentation
        self.labels = labels
        self.counts = counts
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}
        if counts:
            _PLAIN.add(name)
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        metric = Metric(self.name, self.documentation, "counter" if self.counts else "gauge")
        metric.samples = [
            Sample(self.name, dict(labels), value, None, None)
            for labels, value in self.values.items()
        ]
        yield metric

    def latest(self, labels: Labels, value: float, most: int) -> None:
        """Set a series as the newest of at most `most`; the oldest one is removed."""
        self.values.pop(labels, None)
        self.values[labels] = value
        if len(self.values) > most:
            del self.values[next(iter(self.values))]


def shown(registry: CollectorRegistry | None = None) -> bytes:
    """All metrics in the text format of Prometheus."""
    lines = generate_latest(registry or REGISTRY).splitlines(keepends=True)
    return b"".join(map(_plain, lines))


def _plain(line: bytes) -> bytes:
    if not line.startswith(b"# "):
        return line
    sign, what, name, rest = line.split(b" ", 3)
    own = name.removesuffix(b"_total")
    return b" ".join((sign, what, own, rest)) if own.decode() in _PLAIN else line
