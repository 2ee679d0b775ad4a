"""docs/node-qos.md: its configuration is one, and its pods' files say what its tables say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hekla.agent import metrics
from hekla.agent.cgroups import CPU_QUOTA
from hekla.agent.configuration import merge, read, validate
from hekla.agent.features import Feature, wanted
from hekla.agent.handlers import cpu_qos, memory_qos_v2
from hekla.agent.handlers.table import HANDLERS
from hekla.agent.pods import LEVELS, Pod
from hekla.api import config, names
from hekla.api.kubernetes import core
from hekla.controllers.colocation import configuration_of
from tests.agent.trees import Trees, pod, pod_tree

PAGE = (Path(__file__).parents[2] / "docs/node-qos.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def rows(first: str) -> list[list[str]]:
    """The table whose header begins so."""
    table = PAGE[PAGE.index(f"| {first}") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_the_configuration() -> None:
    (text,) = re.findall(r"<<'END'\n(.*)^END$", blocks("sh")[0], re.MULTILINE | re.DOTALL)
    tree = msgspec.convert(yaml.safe_load(text), core.ConfigMap)
    document, unknown = read(tree.data["colocation-config"])
    assert not unknown
    on = {names.COLOCATION: "true"}
    for labels, burst in ((on, True), ({**on, "pool": "batch"}, False)):
        found = merge(document, labels)
        validate(found)
        four = {Feature.CPU_QOS, Feature.MEMORY_QOS, Feature.MEMORY_QOS_V2}
        expected = four | ({Feature.CPU_BURST} if burst else set())
        always = {Feature.EVICTION, Feature.RESOURCES}
        assert {one for one in Feature if wanted(one, found)} == expected | always


def test_the_levels() -> None:
    found = {}
    for words, level, share, _ in rows("`volcano.sh/qos-level`"):
        number = re.match(r"\d+|twice|its", share)
        factor = {"twice": 2, "its": 1}.get(number[0], 0) or int(number[0]) if number else None
        for word in re.findall(r"`(\w+)`", words) or [""]:
            found[word] = (int(level), factor)
    assert found == {
        word: (level, cpu_qos.FACTORS.get(level)) for word, level in {**LEVELS, "": 0}.items()
    }


def test_the_files_of_the_offline_pod(tmp_path: Path) -> None:
    written: dict[str, Any] = yaml.safe_load(blocks("yaml")[0])
    (container,) = written["spec"]["containers"]
    tree = pod_tree(
        "offline",
        containers=[container["resources"]],
        annotations=written["metadata"]["annotations"],
    )
    trees = Trees(tmp_path)
    each = trees.add(msgspec.convert(tree, Pod))
    for one in HANDLERS:
        trees.cgroups.apply(list(one.writes(each, trees.context())))
    inside = trees.cgroups.path(trees.cgroups.container(each, "c0"), CPU_QUOTA).parent
    stated = {name.strip("`"): value for name, value, _ in rows("file of the container")}
    assert {name: (inside / name).read_text().strip() for name in stated} == stated


def test_the_ratios(tmp_path: Path) -> None:
    tree = yaml.safe_load(blocks("yaml")[1])
    each = msgspec.convert(tree, config.ColocationConfiguration)
    marks = {names.COLOCATION_CONFIG: msgspec.json.encode(configuration_of(each)).decode()}
    resources = {"limits": {"memory": "1Gi"}, "requests": {"memory": "512Mi"}}
    calm = pod("calm", containers=[resources], annotations=marks)
    (amounts,) = memory_qos_v2.protections(calm, Trees(tmp_path).context())
    stated = re.search(r"`memory.high` (\d+), `memory.low` (\d+), `memory.min` (\d+)", PAGE)
    assert stated is not None
    assert [amounts.high, amounts.low, amounts.min] == [int(one) for one in stated.groups()]


def test_the_metrics() -> None:
    known = {family.name for family in metrics.Metrics().registry.collect()}
    assert {row[0].strip("`") for row in rows("metric")} <= known
