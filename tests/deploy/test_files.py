"""The files of the chart are what the program says, and the program takes what they say.  No helm
is needed for that."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import pytest
import yaml

from deploy.__main__ import CHART, HEADER, MANIFESTS, definitions, policies
from hekla import __version__
from hekla.admission.registration import Where, kind_of, webhook
from hekla.admission.registry import ADMISSIONS
from hekla.admission.review import Settings
from hekla.admission.rules import groups
from hekla.cli.hekla import DAEMONS
from hekla.controllers.hypernode.controller import KEY, discovery_config
from hekla.descheduler.policy.reader import read_file
from hekla.engine.model.state import State
from hekla.engine.policies import read_policy
from hekla.kube.daemon import VERSION_FLAG
from hekla.kube.flags import parse
from hekla.kube.log import FLAGS as LOG_FLAGS
from hekla.scheduler.informers import sources
from tests.deploy.accounts import ADMISSION, CONTROLLERS, LONE_SCHEDULER, SCHEDULER
from tests.deploy.chart import Manifests

PAGE = (CHART.parents[1] / "docs" / "on-your-cluster.md").read_text()
WRITTEN = Manifests(MANIFESTS.read_text())


def test_what_is_generated_is_up_to_date() -> None:
    """`python -m deploy` writes these; that hekla.yaml is the chart is seen where there is a helm."""
    assert (CHART / "files" / "crds.yaml").read_text() == definitions()
    assert (CHART / "files" / "policies.yaml").read_text() == policies()
    assert MANIFESTS.read_text().startswith(HEADER)


@pytest.mark.parametrize("name", sorted(WRITTEN.of("Deployment")))
def test_daemons_take_their_arguments(name: str) -> None:
    container = WRITTEN.container(name)
    program, daemon = container["command"]
    assert program == "hekla"
    flags = import_module(DAEMONS[daemon].module).FLAGS
    options = parse((*flags, *LOG_FLAGS, VERSION_FLAG), container["args"], program=daemon)
    assert options.enable_healthz and options.healthz_address == ":11251"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["health"] == 11251
    if "metrics" in ports:
        assert options.enable_metrics and options.listen_address == f":{ports['metrics']}"
    if "webhooks" in ports:
        assert options.port == ports["webhooks"]


def test_webhooks_are_those_that_admission_would_register() -> None:
    registered = {
        **WRITTEN.of("MutatingWebhookConfiguration"),
        **WRITTEN.of("ValidatingWebhookConfiguration"),
    }
    arguments = WRITTEN.container("volcano-admission")["args"]
    enabled = (
        next(argument for argument in arguments if argument.startswith("--enabled-admission="))
        .partition("=")[2]
        .split(",")
    )
    assert len(registered) == len(enabled) == 9
    where = Where("", "volcano-system", "volcano-admission-service")
    for path in enabled:
        wanted = webhook(ADMISSIONS[path], where, b"", Settings())
        del wanted["clientConfig"]["caBundle"]  # the one thing that admission writes
        made = registered[ADMISSIONS[path].configuration]
        assert made["kind"] == kind_of(ADMISSIONS[path]).kind
        assert made["webhooks"] == [wanted]


def test_configurations_are_read() -> None:
    for name in ("volcano-scheduler.conf", "agent-scheduler.conf"):
        assert read_policy(yaml.safe_load((CHART / "config" / name).read_text())).actions
    assert read_file(str(CHART / "config" / "volcano-descheduler.conf")).profiles
    assert groups.load(CHART / "config" / "volcano-admission.conf") == ()
    assert discovery_config({"data": {KEY: (CHART / "config" / KEY).read_text()}}) == []
    example = re.sub(r"(?m)^#(?! [A-Z])", "", (CHART / "config" / KEY).read_text())
    assert [source["source"] for source in discovery_config({"data": {KEY: example}})] == ["label"]


def test_versions_and_the_image_are_those_of_the_program() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    recipe = (CHART.parent / "image" / "Containerfile").read_text()
    root = CHART.parents[1]
    copied = [
        word for line in re.findall(r"(?m)^COPY (.*) /source\S*$", recipe) for word in line.split()
    ]
    assert "pyproject.toml" in copied and all((root / name).exists() for name in copied)
    needed = re.search(r'requires-python = ">=(\S+)"', (root / "pyproject.toml").read_text())
    assert needed is not None and f"ARG BASE=python:{needed[1]}-slim\nFROM ${{BASE}}\n" in recipe
    assert f"hekla:{__version__} ." in PAGE and f"hekla:{__version__} ." in recipe


def test_the_page_names_what_there_is() -> None:
    """Names of objects and of values in the page about clusters that one has."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for top, key in re.findall(r"\b(basic|custom)\.(\w+)", PAGE):
        assert key in values[top], f"{top}.{key}"
    named = {
        name
        for tree in WRITTEN.trees
        if (name := tree["metadata"]["name"].removeprefix("volcano-"))
    }
    for name in re.findall(r"`([a-z-]+-(?:configmap|service|role))`", PAGE):
        if not name.startswith(("-", "hypernode-controller", "volcano-")):
            assert name in named, name


def test_the_schema_knows_every_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    used: dict[str, set[str]] = {"basic": set(), "custom": set(), "service": set()}
    for template in (CHART / "templates").iterdir():
        for top, key in re.findall(
            r"(?:\.Values\.|\$)(basic|custom|service)\.(\w+)", template.read_text()
        ):
            used[top].add(key)
    refused = {"metrics_enable"}
    for top, keys in used.items():
        assert set(values[top]) <= set(schema[top]["properties"])
        assert keys - refused <= set(values[top]), (
            f"{top}: used by a template and not among the values"
        )
        without = {
            key
            for key, told in schema[top]["properties"].items()
            if told.get("description", "").startswith("taken")
        }
        assert set(schema[top]["properties"]) - without - refused == set(values[top])


def test_rules_are_written_out() -> None:
    """No account may do everything to something, or anything to everything."""
    for file in (CHART / "rights").iterdir():
        parts: dict[str, list[dict[str, Any]]] = yaml.safe_load(file.read_text())
        for rule in (rule for rules in parts.values() for rule in rules):
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}, rule
            assert all("*" not in word for words in rule.values() for word in words), rule


def test_accounts_of_tests_are_those_of_the_chart() -> None:
    """Live tests run daemons with accounts that are put together from the same parts, without helm."""
    for name, account in (("scheduler", SCHEDULER), ("controllers", CONTROLLERS)):
        assert WRITTEN.of("ClusterRole")[f"volcano-{name}"]["rules"] == account.everywhere
        assert WRITTEN.of("Role")[f"volcano-{name}"]["rules"] == account.at_home
    *rules, own = WRITTEN.of("ClusterRole")["volcano-admission"]["rules"]
    *others, all_names = ADMISSION.everywhere
    assert rules == others
    assert set(own.pop("resourceNames")) < set(all_names["resourceNames"])
    assert own == {key: value for key, value in all_names.items() if key != "resourceNames"}


@pytest.mark.parametrize("batch", [True, False])
def test_schedulers_may_read_what_they_feed_on(batch: bool) -> None:
    """Without the right to one of these the scheduler goes on as if there were none, and says so in
    its log alone."""
    state = State(scheduler_names=["volcano"], shard_mode="hard")
    rules = (SCHEDULER if batch else LONE_SCHEDULER).everywhere
    for kind in (source.kind for source in sources(state, batch=batch, taint_rules=True)):
        assert any(
            kind.group in rule["apiGroups"]
            and kind.plural in rule["resources"]
            and {"list", "watch"} <= set(rule["verbs"])
            for rule in rules
        ), (
            f"deploy/chart/rights/scheduler.yaml: list and watch of {kind.plural} ({kind.group or 'core'}) are missing"
        )
