"""What the server counts, in Prometheus' text form."""

from __future__ import annotations

from bisect import bisect_left

from hekla.kube.http.server import Response
from hekla.local.apiserver.registry import Registry
from hekla.local.apiserver.store import Store

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Histogram:
    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds


class Metrics:
    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self.requests: dict[tuple[str, str, int], int] = {}
        self.durations: dict[tuple[str, str], Histogram] = {}

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        key = (verb, resource, code)
        self.requests[key] = self.requests.get(key, 0) + 1
        histogram = self.durations.get((verb, resource))
        if histogram is None:
            histogram = self.durations[verb, resource] = Histogram()
        histogram.observe(seconds)

    def page(self) -> Response:
        lines = ["# TYPE apiserver_request_total counter"]
        for (verb, resource, code), count in sorted(self.requests.items()):
            lines.append(f'apiserver_request_total{{verb="{verb}",resource="{resource}",code="{code}"}} {count}')
        lines.append("# TYPE apiserver_request_duration_seconds histogram")
        for (verb, resource), histogram in sorted(self.durations.items()):
            labels = f'verb="{verb}",resource="{resource}"'
            total = 0
            for limit, count in zip((*map(str, BUCKETS), "+Inf"), histogram.counts):
                total += count
                lines.append(f'apiserver_request_duration_seconds_bucket{{{labels},le="{limit}"}} {total}')
            lines.append(f"apiserver_request_duration_seconds_sum{{{labels}}} {histogram.sum:.6f}")
            lines.append(f"apiserver_request_duration_seconds_count{{{labels}}} {total}")
        lines.append("# TYPE apiserver_storage_objects gauge")
        for name, collection in sorted(self.store.collections.items()):
            lines.append(f'apiserver_storage_objects{{resource="{name}"}} {len(collection.rows)}')
        lines.append("# TYPE apiserver_registered_watchers gauge")
        for name, collection in sorted(self.store.collections.items()):
            if collection.watchers:
                lines.append(f'apiserver_registered_watchers{{resource="{name}"}} {len(collection.watchers)}')
        statistics = self.store.journal.statistics
        lines += [
            "# TYPE hekla_store_transactions_total counter", f"hekla_store_transactions_total {statistics.transactions}",
            "# TYPE hekla_store_rows_total counter", f"hekla_store_rows_total {statistics.rows}",
            "# TYPE hekla_store_commit_seconds_total counter", f"hekla_store_commit_seconds_total {statistics.seconds:.6f}",
            "# TYPE hekla_store_failures_total counter", f"hekla_store_failures_total {statistics.failures}",
            "# TYPE hekla_store_version gauge", f"hekla_store_version {self.store.committed}",
            "# TYPE hekla_store_history_bytes gauge", f"hekla_store_history_bytes {self.store.superseded}",
        ]  # fmt: skip
        return Response(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4; charset=utf-8")
