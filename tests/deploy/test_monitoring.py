"""Rules and boards ask for what the daemons say, and a real Prometheus finds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from deploy import monitoring
from tests.clients.test_prometheus import BUILD_PATIENCE, ask, program, running
from tests.local.home import Home, home, until
from tests.local.home import ask as ask_cluster
from tests.local.test_simulated import JOB, job, phases
from tests.ports import adjacent_ports
from tests.scheduler.test_metric_names import types

__all__ = ["program"]

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
RULES = [rule for group in monitoring.rule_groups() for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}


def declared() -> dict[str, str]:
    """Every series that the daemons make -> the metric that it is of."""
    return {
        f"volcano_{name}{part}": f"volcano_{name}"
        for name, kind in types().items()
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


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, list[str]]]:
    """A cluster that has run a job, and where its daemons tell of it."""
    port = adjacent_ports(2)
    with home() as own:
        own.good("up", f"--metrics-port={port}")
        ask_cluster(own, lambda client: client.create(JOB, job("one", "default", 1, 1, "100m", 0)))
        until("the job has ended", lambda: phases(own, JOB) == {"one": "Completed"}, 60)
        yield own, [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 120)
def test_prometheus_scrapes_all_and_evaluates_all(
    program: Path, measured: tuple[Home, list[str]], tmp_path: Path
) -> None:
    targets = [{"targets": measured[1]}]
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
        bound = ask(
            server,
            "query?"
            + urlencode(
                {"query": 'volcano_task_scheduling_latency_milliseconds_count{stage="Bound"}'}
            ),
        )
        assert [one["value"][1] for one in bound["result"]] == ["1"]
