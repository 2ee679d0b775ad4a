"""What the server counts, in Prometheus' text form."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.store import Store

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Histogram:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Seen:
    """What was asked of one resource with one verb."""

    __slots__ = ("codes", "durations")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.durations = Histogram()


class Metrics:
    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self.seen: dict[tuple[str, Kind | None, str, str], Seen] = {}
        self.started = time.time()
        self.more: Callable[[], list[str]] = list
        """What admission adds to the page."""

    def request(self, verb: str, route: Route | None, code: int, seconds: float) -> None:
        if route is None:
            key: tuple[str, Kind | None, str, str] = (verb, None, "", "")
        else:
            scope = "resource" if route.name else "namespace" if route.namespace else "cluster"
            key = (verb, route.resource.kind, route.subresource, scope)
        seen = self.seen.get(key)
        if seen is None:
            seen = self.seen[key] = Seen()
        seen.codes[code] = seen.codes.get(code, 0) + 1
        seen.durations.observe(seconds)

    def page(self) -> Response:
        lines: list[str] = []
        rows = sorted((labels_of(*key), seen) for key, seen in self.seen.items())
        title(
            lines,
            "apiserver_request_total",
            "counter",
            "Requests, by verb, resource and HTTP response code.",
        )
        for labels, seen in rows:
            for code, count in sorted(seen.codes.items()):
                lines.append(f'apiserver_request_total{{code="{code}",{labels}}} {count}')
        title(
            lines,
            "apiserver_request_duration_seconds",
            "histogram",
            "Time from a request's head to its answer.",
        )
        for labels, seen in rows:
            total = 0
            for limit, count in zip((*map(str, BUCKETS), "+Inf"), seen.durations.counts):
                total += count
                lines.append(
                    f'apiserver_request_duration_seconds_bucket{{{labels},le="{limit}"}} {total}'
                )
            lines.append(
                f"apiserver_request_duration_seconds_sum{{{labels}}} {seen.durations.sum:.6f}"
            )
            lines.append(f"apiserver_request_duration_seconds_count{{{labels}}} {total}")
        watched = [
            resource
            for resource in self.registry.resources.values()
            if resource.collection.watchers
        ]
        title(
            lines, "apiserver_longrunning_requests", "gauge", "Watches that are open, by resource."
        )
        for resource in watched:
            group, plural, version = (
                resource.kind.group,
                resource.kind.plural,
                resource.kind.version,
            )
            labels = f'component="apiserver",group="{group}",resource="{plural}",verb="WATCH",version="{version}"'
            lines.append(
                f"apiserver_longrunning_requests{{{labels}}} {len(resource.collection.watchers)}"
            )
        title(lines, "apiserver_resource_objects", "gauge", "Stored objects, by resource.")
        for name, collection in sorted(self.store.collections.items()):
            plural, _, group = name.partition(".")
            lines.append(
                f'apiserver_resource_objects{{group="{group}",resource="{plural}"}} {len(collection.rows)}'
            )
        title(lines, "apiserver_storage_objects", "gauge", "Stored objects, by resource.")
        for name, collection in sorted(self.store.collections.items()):
            lines.append(f'apiserver_storage_objects{{resource="{name}"}} {len(collection.rows)}')
        title(
            lines, "apiserver_registered_watchers", "gauge", "Watches that are open, by resource."
        )
        for name, collection in sorted(self.store.collections.items()):
            if collection.watchers:
                lines.append(
                    f'apiserver_registered_watchers{{resource="{name}"}} {len(collection.watchers)}'
                )
        statistics = self.store.journal.statistics
        lines += [
            "# TYPE hekla_store_transactions_total counter",
            f"hekla_store_transactions_total {statistics.transactions}",
            "# TYPE hekla_store_rows_total counter",
            f"hekla_store_rows_total {statistics.rows}",
            "# TYPE hekla_store_commit_seconds_total counter",
            f"hekla_store_commit_seconds_total {statistics.seconds:.6f}",
            "# TYPE hekla_store_failures_total counter",
            f"hekla_store_failures_total {statistics.failures}",
            "# TYPE hekla_store_version gauge",
            f"hekla_store_version {self.store.committed}",
            "# TYPE hekla_store_history_bytes gauge",
            f"hekla_store_history_bytes {self.store.superseded}",
        ]
        lines += self.more()
        self._process(lines)
        return Response(
            200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4; charset=utf-8"
        )

    def _process(self, lines: list[str]) -> None:
        times = os.times()
        title(lines, "process_cpu_seconds_total", "counter", "Processor time of this process.")
        lines.append(f"process_cpu_seconds_total {times.user + times.system:.2f}")
        title(lines, "process_start_time_seconds", "gauge", "When this process began.")
        lines.append(f"process_start_time_seconds {self.started:.2f}")
        try:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
        except (OSError, ValueError):
            return  # not Linux
        title(lines, "process_resident_memory_bytes", "gauge", "Memory of this process.")
        lines.append(f"process_resident_memory_bytes {pages * os.sysconf('SC_PAGE_SIZE')}")


def title(lines: list[str], name: str, kind: str, text: str) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def labels_of(verb: str, kind: Kind | None, subresource: str, scope: str) -> str:
    group, version, plural = (
        (kind.group, kind.version, kind.plural) if kind is not None else ("", "", "")
    )
    shown = {"deletecollection": "DELETECOLLECTION", "create": "POST", "update": "PUT"}.get(
        verb, verb.upper()
    )
    return (
        f'component="apiserver",dry_run="",group="{group}",resource="{plural}",scope="{scope}",subresource="{subresource}",'
        f'verb="{shown}",version="{version}"'
    )
