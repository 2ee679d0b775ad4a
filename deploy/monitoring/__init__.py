"""Grafana's boards and Prometheus' rules for Hekla's daemons.

rules.yaml     rules as Prometheus reads them
boards.yaml    the boards in short: rows of panels, panels of queries
boards/*.json  the boards as Grafana imports them, which `python -m deploy` writes from that
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RULES, BOARDS = HERE / "rules.yaml", HERE / "boards"
WIDTH, HEIGHT, STAT_HEIGHT = 24, 8, 4
"""Grafana's columns, and rows of a panel."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
METRIC = re.compile(r"\b(volcano_\w+|descheduler_\w+|hekla_\w+|hekla:[\w:]+)")


def rule_groups() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return groups


def outlines() -> list[dict[str, Any]]:
    """What boards.yaml says."""
    found: list[dict[str, Any]] = yaml.safe_load((HERE / "boards.yaml").read_text())
    return found


def boards() -> dict[Path, str]:
    """Each board's file -> its text."""
    return {
        BOARDS / f"{one['uid']}.json": json.dumps(board(one), indent=1) + "\n" for one in outlines()
    }


def board(outline: dict[str, Any]) -> dict[str, Any]:
    """One board in Grafana's form."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in outline["rows"]:
        of_row = row["panels"]
        at = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        panels.append({"type": "row", "title": row["title"], "gridPos": at, "collapsed": False})
        width = WIDTH // min(len(of_row), 4)
        height = max(
            STAT_HEIGHT if one.get("kind", "timeseries") == "stat" else HEIGHT for one in of_row
        )
        top += 1
        for number, one in enumerate(of_row):
            line, column = divmod(number, WIDTH // width)
            at = {"h": height, "w": width, "x": column * width, "y": top + line * height}
            panels.append(panel(one, at))
        top += height * (1 + (len(of_row) - 1) // (WIDTH // width))
    for number, one in enumerate(panels, 1):
        one["id"] = number
    return {
        "uid": outline["uid"],
        "title": outline["title"],
        "tags": ["hekla"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(variables(outline))},
        "panels": panels,
    }


def variables(outline: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the reader of a board can choose."""
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    if "$queue" in json.dumps(outline):
        query = "label_values(volcano_queue_weight, queue_name)"
        yield {
            "name": "queue",
            "label": "Queue",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": "queue"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
        }


def panel(outline: dict[str, Any], at: dict[str, int]) -> dict[str, Any]:
    return {
        "type": outline.get("kind", "timeseries"),
        "title": outline["title"],
        "gridPos": at,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": outline["unit"]}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "legendFormat": legend,
                "expr": query,
            }
            for number, (legend, query) in enumerate(outline["queries"].items())
        ],
    }


def queries() -> Iterator[str]:
    """Every expression of a rule and a board."""
    for group in rule_groups():
        yield from (rule["expr"] for rule in group["rules"])
    for outline in outlines():
        for row in outline["rows"]:
            for one in row["panels"]:
                yield from one["queries"].values()
        yield from (one["query"]["query"] for one in variables(outline) if one["type"] == "query")


def metrics() -> set[str]:
    """Every series that a rule or a board asks for, those that rules record among them."""
    return {name for query in queries() for name in METRIC.findall(query)}


def write() -> None:
    """The boards into their files."""
    BOARDS.mkdir(exist_ok=True)
    for path, text in boards().items():
        path.write_text(text)
