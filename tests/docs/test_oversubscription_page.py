"""The page about oversubscription: its configuration is read and means what is said, and its tables name
what is there.  Its pod is that of tests/agent/test_scheduling_live.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hekla.agent.configuration import merge, read, validate
from hekla.agent.daemon import FLAGS
from hekla.agent.metrics import Metrics
from hekla.agent.node_pressure import configured
from hekla.agent.watermarks import NEW, Kind, Marks
from hekla.kube.metrics import shown

PAGE = (Path(__file__).parents[2] / "docs/oversubscription.md").read_text()


def rows(title: str) -> list[list[str]]:
    """The cells of the table of a section, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("pool", "memory"), [("small", Marks(60, 30)), ("big", Marks(85, 30))])
def test_the_configuration_of_the_page_holds_for_its_nodes(pool: str, memory: Marks) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    document, unknown = read(text)
    assert unknown == []
    config = merge(document, {"pool": pool})
    validate(config)
    assert configured(config) == {Kind.CPU: Marks(80, 30), Kind.MEMORY: memory}


def test_the_page_names_the_annotations_of_nodes() -> None:
    for kind in Kind:
        for side in ("high", "low"):
            short = f"-{kind}-{side}-watermark"
            assert NEW + short[1:] in PAGE or f"`{short}`" in PAGE


def test_the_flags_are_there_with_the_defaults_of_the_page() -> None:
    known = {f"--{flag.name}": flag for flag in FLAGS}
    for names, default, _ in rows("Flags"):
        flags = [known[name] for name in re.findall(r"`(--[\w-]+)`", names)]
        assert flags
        stated = default.strip("`")
        if stated and "," not in stated:
            assert {flag.type.show(flag.default) for flag in flags} == {stated}


def test_the_metrics_are_there() -> None:
    declared = set(re.findall(r"^# TYPE (\S+) ", shown(Metrics().registry).decode(), re.MULTILINE))
    named = {name.strip("`") for name, *_ in rows("Metrics")}
    assert len(named) == 4 and named <= declared
