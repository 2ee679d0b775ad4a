"""Every metric under its name, of its type, with its labels and bounds: dashboards and alerts of
others ask for just these."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

import hekla.controllers.job.metrics
import hekla.controllers.jobflow.controller
import hekla.controllers.queue
import hekla.scheduler.agent_scheduler
import hekla.scheduler.metrics  # noqa: F401 (registers its metrics)
from hekla.agent.metrics import Metrics
from hekla.kube.metrics import Table, Tally, shown

OPERATIONS = Path(__file__).parents[2].parent / "shared" / "spec" / "operations.md"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
QUEUE, JOB = {"queue_name"}, {"job_id"}
OF_JOB, CARD = {"job_name", "queue", "job_namespace"}, {"devID", "NodeName"}
SIX = ("allocated", "request", "deserved", "capacity", "real_capacity", "inqueue")

HISTOGRAMS: dict[str, tuple[set[str], float, float, int]] = {
    "e2e_scheduling_latency_milliseconds": (set(), 1, 5000, 20),
    "open_session_duration_milliseconds": (set(), 1, 5000, 20),
    "e2e_job_scheduling_latency_milliseconds": (set(), 100, 120000, 30),
    "plugin_scheduling_latency_milliseconds": ({"plugin", "OnSession"}, 0.1, 100, 15),
    "action_scheduling_latency_milliseconds": ({"action"}, 1, 2000, 20),
    "task_scheduling_latency_milliseconds": ({"stage"}, 50, 60000, 30),
    "scheduling_stage_duration_milliseconds": ({"stage"}, 0.1, 500, 20),
    "controller_job_to_pod_creation_latency_milliseconds": (set(), 50, 60000, 30),
    "worker_scheduling_cycle_duration_milliseconds": (set(), 5, 5 * 2**14, 15),
    "update_snapshot_duration_milliseconds": (set(), 5, 5 * 2**14, 15),
}
"""Name -> labels, lowest and highest bound, how many bounds."""
COUNTERS: dict[str, set[str]] = {
    "schedule_attempts_total": {"result"},
    "total_preemption_attempts": set(),
    "eviction_transactions_total": {"action"},
    "job_retry_counts": JOB,
    "job_completed_phase_count": {"job_name", "queue_name"},
    "job_failed_phase_count": {"job_name", "queue_name"},
    "jobflow_succeed_phase_count": {"jobflow_namespace"},
    "jobflow_failed_phase_count": {"jobflow_namespace"},
}
GAUGES: dict[str, set[str]] = {
    "e2e_job_scheduling_duration": OF_JOB,
    "e2e_job_scheduling_start_time": OF_JOB,
    "e2e_job_scheduling_last_time": OF_JOB,
    "pod_preemption_victims": set(),
    "unschedule_task_count": JOB,
    "unschedule_job_count": set(),
    "job_share": {"job_ns", "job_id"},
    "namespace_share": {"namespace_name"},
    "namespace_weight": {"namespace_name"},
    "namespace_weighted_share": {"namespace_name"},
    **{f"queue_{kind}_milli_cpu": QUEUE for kind in SIX},
    **{f"queue_{kind}_memory_bytes": QUEUE for kind in SIX},
    **{f"queue_{kind}_scalar_resources": {*QUEUE, "resource"} for kind in SIX},
    "queue_share": QUEUE,
    "queue_weight": QUEUE,
    "queue_overused": QUEUE,
    "vgpu_device_shared_number": CARD,
    "vgpu_device_allocated_memory": CARD,
    "vgpu_device_allocated_cores": CARD,
    "vgpu_device_memory_limit": CARD,
    "vgpu_device_memory_allocation_for_a_certain_pod": {*CARD, "podName"},
    "vgpu_device_core_allocation_for_a_certain_pod": {*CARD, "podName"},
    **{
        f"queue_pod_group_{phase}_count": QUEUE
        for phase in ("inqueue", "pending", "running", "unknown", "completed")
    },
}
OUR_HISTOGRAMS = ("start_estimate_error_seconds", "start_estimate_error_ratio")
OURS: dict[str, set[str]] = {
    "bind_failures_total": set(),
    "evictions_held_back_total": {"action"},
    "eviction_notices_total": {"outcome"},
    "eviction_loops_total": set(),
    "defragmentations_total": set(),
}
"""What others do not have."""
LATER_GAUGES = {
    "namespace_decayed_usage": {"namespace_name", "queue"},
    "party_budget_used_hours": {"party", "resource"},
    "party_budget_hours": {"party", "resource"},
    "fragmentation_free": {"resource"},
    "fragmentation_unusable": {"resource"},
}
"""What others have since the reference was written, and what they do not have."""
OF_THE_AGENT = {"volcano_agent_oversubscription_resource_quantity"}
"""Shown by `hekla agent`, at a door of its own."""


MODULES = (
    "hekla.controllers.job.metrics",
    "hekla.controllers.jobflow.controller",
    "hekla.controllers.queue",
    "hekla.scheduler.agent_scheduler",
)


def types() -> dict[str, str]:
    """What /metrics declares, name -> type, in a process in which nothing else has happened."""
    program = f"import {', '.join(MODULES)}, sys; from hekla.kube.metrics import shown; sys.stdout.buffer.write(shown())"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60
    ).stdout
    return dict(re.findall(r"^# TYPE volcano_(\S+) (\S+)$", said, re.MULTILINE))


def of_the_agent() -> dict[str, tuple[str, set[str]]]:
    """What an agent's /metrics declares: whole name -> type and labels."""
    registry = Metrics().registry
    labels = {
        **{name: vars(made).get("_labelnames", ()) for name, made in registry._names_to_collectors.items()},
        **{made.name: made.labels for made in registry._collector_to_names if isinstance(made, Table)},
    }  # fmt: skip
    declared = re.findall(r"^# TYPE (\S+) (\S+)$", shown(registry).decode(), re.MULTILINE)
    return {name: (type_, set(labels.get(name, ()))) for name, type_ in declared}


def test_all_are_declared_and_nothing_else_is() -> None:
    wanted = {
        **dict.fromkeys(HISTOGRAMS, "histogram"),
        **dict.fromkeys(COUNTERS, "counter"),
        **dict.fromkeys(GAUGES, "gauge"),
    }
    more = {
        **dict.fromkeys(OUR_HISTOGRAMS, "histogram"),
        **dict.fromkeys(OURS, "counter"),
        **dict.fromkeys(LATER_GAUGES, "gauge"),
    }
    assert types() == {**wanted, **more}


@pytest.mark.parametrize("name", sorted({**HISTOGRAMS, **COUNTERS, **GAUGES}))
def test_labels_are_the_ones_that_are_known(name: str) -> None:
    made = REGISTRY._names_to_collectors["volcano_" + name]
    labels = HISTOGRAMS[name][0] if name in HISTOGRAMS else {**COUNTERS, **GAUGES}[name]
    assert set(made.labels if isinstance(made, Table) else vars(made)["_labelnames"]) == labels


@pytest.mark.parametrize("name", sorted(HISTOGRAMS))
def test_bounds_are_spread_evenly_by_factors(name: str) -> None:
    _, low, high, count = HISTOGRAMS[name]
    bounds = REGISTRY._names_to_collectors["volcano_" + name]._kwargs["buckets"]  # type: ignore[attr-defined]
    assert len(bounds) == count
    assert (bounds[0], bounds[-1]) == (pytest.approx(low), pytest.approx(high))
    factors = {round(after / before, 6) for before, after in pairwise(bounds)}
    assert len(factors) == 1


def test_the_list_is_the_one_of_the_reference() -> None:
    if not OPERATIONS.exists():
        pytest.skip("the behaviour reference is not beside this repository")
    text = OPERATIONS.read_text()
    tables = text[text.index("### 5.1 Scheduler") : text.index("### 5.3 ")]
    named: set[str] = set()
    for cell in re.findall(r"^\| (`[^|]*`[^|]*) \|", tables, re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", cell):
            found = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
            several = (
                [] if found is None else SIX if "same six" in found[2] else found[2].split(",")
            )
            named.update(
                [name] if found is None else [found[1] + one + found[3] for one in several]
            )
    assert named - OF_THE_AGENT == {*HISTOGRAMS, *COUNTERS, *GAUGES}


def test_the_page_has_each_of_them_with_its_type_and_labels() -> None:
    page: dict[str, tuple[str, set[str]]] = {}
    for names, type_, labels in re.findall(
        r"^\| `([\w{},]+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE
    ):
        before, several, after = re.fullmatch(r"(\w*)(?:\{(.*)\})?(\w*)", names).groups()  # type: ignore[union-attr]  # as the row did
        page.update(
            {
                before + one + after: (type_, set(re.findall(r"\w+", labels)))
                for one in (several or "").split(",")
            }
        )
    ours: dict[str, set[str]] = {name: set() for name in OUR_HISTOGRAMS}
    theirs = {name: row[0] for name, row in HISTOGRAMS.items()}
    agent = of_the_agent()
    assert {"hekla_agent_feature_active", "hekla_agent_network_offline_limit_bytes"} < set(agent)
    histograms = {name: ("histogram", labels) for name, labels in {**theirs, **ours}.items()}
    counters = {name: ("counter", labels) for name, labels in {**COUNTERS, **OURS}.items()}
    assert page == {
        **histograms,
        **counters,
        **{name: ("gauge", labels) for name, labels in {**GAUGES, **LATER_GAUGES}.items()},
        **agent,
    }


def test_a_tally_is_shown_under_its_own_name_and_without_its_birth() -> None:
    registry = CollectorRegistry()
    Tally("things_count", "How many", ["of"], registry=registry).labels("x").inc(2)
    assert (
        shown(registry).decode()
        == '# HELP things_count How many\n# TYPE things_count counter\nthings_count{of="x"} 2.0\n'
    )


def test_a_table_shows_its_series_and_lets_the_one_named_longest_ago_go() -> None:
    registry = CollectorRegistry()
    table = Table("things_count", "How many", ("of",), counts=True, registry=registry)
    for name in ("x", "y", "x", "z"):
        table.latest((("of", name),), 2.0, most=2)
    Table("things_now", "How many now", registry=registry)
    assert shown(registry).decode() == (
        '# HELP things_count How many\n# TYPE things_count counter\nthings_count{of="x"} 2.0\nthings_count{of="z"} 2.0\n'
        "# HELP things_now How many now\n# TYPE things_now gauge\nthings_now 0.0\n"
    )
