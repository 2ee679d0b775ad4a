"""Rules and boards ask for what the daemons say, and a real Prometheus finds it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from deploy import monitoring
from hekla.agent.metrics import Metrics as AgentMetrics
from hekla.agent.reload import KEY, NAME
from hekla.api.kubernetes.core import CONFIG_MAP
from hekla.api.kubernetes.nodes import NODE
from hekla.api.kubernetes.policy import POD_DISRUPTION_BUDGET
from hekla.descheduler.metrics import Metrics
from hekla.kube.client import Client
from hekla.kube.metrics import shown
from tests.agent.process import AgentProcess
from tests.clients.test_prometheus import BUILD_PATIENCE, ask, program, running
from tests.descheduler.test_live import Process as DeschedulerProcess
from tests.local.home import Home, home, until
from tests.local.home import ask as ask_cluster
from tests.local.test_simulated import JOB, POD, job, phases
from tests.ports import adjacent_ports
from tests.scheduler.test_metric_names import types

__all__ = ["program"]

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
RULES = [rule for group in monitoring.rule_groups() for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


def declared() -> dict[str, str]:
    """Every series that the daemons make -> the metric that it is of."""
    kinds = {f"volcano_{name}": kind for name, kind in types().items()}
    for registry in (Metrics().registry, AgentMetrics().registry):
        shows = shown(registry).decode()
        kinds |= re.findall(r"^# TYPE (\S+) (\S+)$", shows, re.MULTILINE)
    return {
        f"{name}{part}": name
        for name, kind in kinds.items()
        for part in (("_bucket", "_count", "_sum") if kind == "histogram" else ("",))
    }


def test_every_series_that_is_asked_for_is_declared() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    assert monitoring.metrics() - declared().keys() == recorded


def test_boards_are_written() -> None:
    written = {path: path.read_text() for path in monitoring.BOARDS.glob("*.json")}
    assert written == monitoring.boards()


def test_panels_do_not_cover_each_other() -> None:
    for outline in monitoring.outlines():
        taken: set[tuple[int, int]] = set()
        for panel in monitoring.board(outline)["panels"]:
            at = panel["gridPos"]
            cells = {
                (at["x"] + column, at["y"] + line)
                for column in range(at["w"])
                for line in range(at["h"])
            }
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= monitoring.WIDTH
            taken |= cells


@pytest.mark.parametrize("name", sorted(ALERTS))
def test_the_page_says_what_to_do(name: str) -> None:
    assert {"summary", "description"} <= ALERTS[name]["annotations"].keys()
    assert f"\n| `{name}` |" in PAGE.read_text()


def test_the_page_knows_no_other_alerts() -> None:
    assert set(re.findall(r"^\| `(Hekla\w+)` \|", PAGE.read_text(), re.MULTILINE)) == set(ALERTS)


DESCHEDULER_POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: blind
  pluginConfig:
  - name: LoadAware
    args:
      metrics: {type: metrics_server, expiration: 1ms}
      thresholds: {cpu: 30}
      targetThresholds: {cpu: 80}
  plugins:
    balance: {enabled: [LoadAware]}
- name: old
  pluginConfig:
  - name: PodLifeTime
    args: {maxPodLifeTimeSeconds: 1, labelSelector: {matchLabels: {kept: "yes"}}}
  plugins:
    deschedule: {enabled: [PodLifeTime]}
"""
"""No measurement is ever young enough for it, and what it would evict is kept by a budget."""


class Measured(NamedTuple):
    """Daemons that have worked, and where they tell of it."""

    addresses: list[str]
    descheduler: DeschedulerProcess
    cluster: Home


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """A cluster that has run a job, with a descheduler that cannot do anything and an agent that can
    measure nothing."""
    port = adjacent_ports(3)
    addresses = [f"127.0.0.1:{port + number}" for number in range(3)]
    with home() as own:
        own.good("up", "--nodes=2", f"--metrics-port={port}")
        ask_cluster(own, lambda client: client.create(JOB, job("one", "default", 1, 1, "100m", 0)))
        until("the job has ended", lambda: phases(own, JOB) == {"one": "Completed"}, 60)
        keep_a_pod(own)
        descheduler = DeschedulerProcess(
            tmp_path_factory.mktemp("descheduler"),
            own.directory() / "kubeconfig",
            DESCHEDULER_POLICY,
            "--descheduling-interval=1s",
            "--enable-metrics",
            f"--listen-address={addresses[2]}",
        )
        agent = AgentProcess(
            tmp_path_factory.mktemp("agent"), own.directory() / "kubeconfig",
            "--sampling-interval=50ms", "--kube-pod-namespace=default", node=ask_cluster(own, first_node),
        ).start()  # fmt: skip
        try:
            yield Measured([*addresses, f"127.0.0.1:{agent.port}"], descheduler, own)
        finally:
            agent.close()
            descheduler.stop()


async def first_node(client: Client) -> str:
    return (await client.list(NODE)).items[0].metadata.name


async def misconfigure(client: Client) -> None:
    """A configuration that the agent cannot take."""
    wrong = {
        "globalConfig": {"cpuThrottlingConfig": {"enable": True, "cpuThrottlingThreshold": 500}}
    }
    await client.patch(CONFIG_MAP, NAME, {"data": {KEY: json.dumps(wrong)}}, "default")


def keep_a_pod(own: Home) -> None:
    """A pod that may be evicted, and a budget that does not allow it."""
    labels = {"kept": "yes"}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "600"]}
    marks = {"descheduler.alpha.kubernetes.io/evict": "true"}
    metadata = {"name": "kept", "namespace": "default", "labels": labels, "annotations": marks}
    spec = {"schedulerName": "volcano", "containers": [container]}
    budget = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    ask_cluster(own, lambda client: client.create(POD_DISRUPTION_BUDGET.untyped, budget))
    ask_cluster(own, lambda client: client.create(POD, {"metadata": metadata, "spec": spec}))


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 150)
def test_prometheus_scrapes_all_and_evaluates_all(
    program: Path, measured: Measured, tmp_path: Path
) -> None:
    targets = [{"targets": measured.addresses}]
    jobs = [{"job_name": "hekla", "scrape_interval": "1s", "static_configs": targets}]
    with running(program, tmp_path, jobs, [monitoring.RULES]) as server:

        def scraped() -> set[str]:
            return {one["metric"] for one in ask(server, "targets/metadata") or []}

        asked = {metric for name, metric in declared().items() if name in monitoring.metrics()}
        until("everything is scraped", lambda: asked <= scraped(), 60)

        def rules() -> list[dict[str, Any]]:
            groups = (ask(server, "rules") or {"groups": []})["groups"]
            return [rule for group in groups for rule in group["rules"]]

        def evaluated() -> bool:
            found = rules()
            return len(found) == len(RULES) and all(one["health"] == "ok" for one in found)

        until("all rules are evaluated", evaluated, 60)
        for query in monitoring.queries():
            plain = query.replace("$queue", ".*")
            if not plain.startswith("label_values"):
                answer = ask(server, "query?" + urlencode({"query": plain}))
                assert answer is not None, f"Prometheus refuses {plain}"
        bound = 'volcano_task_scheduling_latency_milliseconds_count{stage="Bound"}'

        def count() -> list[str]:
            answer = ask(server, "query?" + urlencode({"query": bound})) or {"result": []}
            return [one["value"][1] for one in answer["result"]]

        until("the job's pod and the other are counted", lambda: count() == ["2"], 60)

        def noticed(*alerts: str) -> bool:
            found = {one["name"] for one in rules() if one.get("state") in ("pending", "firing")}
            return set(alerts) <= found

        until(
            "it is noticed that nothing is measured and a budget holds",
            lambda: noticed(
                "HeklaDeschedulerMeasuresNothing",
                "HeklaEvictionsHeldByBudgets",
                "HeklaAgentMeasuresNothing",
            ),
            60,
        )
        measured.descheduler.policy.write_text("profiles: wrong")
        ask_cluster(measured.cluster, misconfigure)
        until(
            "that policy and configuration are wrong, too",
            lambda: noticed("HeklaDeschedulerPolicyWrong", "HeklaAgentConfigurationWrong"),
            60,
        )
