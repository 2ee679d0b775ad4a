"""What commands about flows and templates print and ask.  Reference: cli 9.3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.answers import (
    FLOW,
    THREE_DAYS_AGO,
    Answers,
    Tree,
    printed,
    vcctl,
)

FLOWS, TEMPLATES = f"{FLOW}/namespaces/default/jobflows", f"{FLOW}/namespaces/default/jobtemplates"
FLOW_TABLE = """\
Name            Namespace    Phase      Age    
test-jobflow    default      Succeed    3d     
"""  # noqa: W291 (columns are padded)
TEMPLATE_TABLE = """\
Name                Namespace    
test-jobtemplate    default      
"""  # noqa: W291 (columns are padded)


def a_flow() -> Tree:
    metadata = {"name": "test-jobflow", "namespace": "default", "creationTimestamp": THREE_DAYS_AGO}
    return {"metadata": metadata, "spec": {}, "status": {"state": {"phase": "Succeed"}}}


@pytest.mark.scenario("cli", 12)
def test_flows_and_templates_are_listed(server: Answers):
    template = {"metadata": {"name": "test-jobtemplate", "namespace": "default"}, "spec": {}}
    server.gives |= {FLOWS: [a_flow()], f"{FLOWS}/test-jobflow": a_flow()}
    server.gives |= {TEMPLATES: [template], f"{TEMPLATES}/test-jobtemplate": template}

    assert printed(vcctl(server, "jobflow", "list")) == FLOW_TABLE
    assert printed(vcctl(server, "jobflow", "get", "-N", "test-jobflow")) == FLOW_TABLE
    assert printed(vcctl(server, "jobtemplate", "list")) == TEMPLATE_TABLE
    assert printed(vcctl(server, "jobtemplate", "get", "-N", "test-jobtemplate")) == TEMPLATE_TABLE


@pytest.mark.scenario("cli", 13)
def test_flows_are_deleted_by_name(server: Answers):
    server.gives[f"{FLOWS}/test-jobflow"] = a_flow()

    assert (
        printed(vcctl(server, "jobflow", "delete", "-N", "test-jobflow"))
        == "Deleted JobFlow: default/test-jobflow\n"
    )
    assert (
        vcctl(server, "jobflow", "delete").stdout
        == "Failed to delete jobflow: jobflow name must be specified\n"
    )
    assert (
        vcctl(server, "jobtemplate", "delete").stdout
        == "Failed to delete jobtemplate: job template name must be specified\n"
    )


@pytest.mark.scenario("cli", 14)
@pytest.mark.parametrize(
    ("group", "kind"), [("jobflow", "JobFlow"), ("jobtemplate", "JobTemplate")]
)
def test_flows_come_and_go_by_file(server: Answers, tmp_path: Path, group: str, kind: str):
    file = tmp_path / "two.yaml"
    file.write_text("metadata: {name: test-a}\nspec: {}\n---\nmetadata: {name: test-b}\nspec: {}\n")
    for name in ("test-a", "test-b"):
        server.gives[f"{FLOW}/namespaces/default/{group}s/{name}"] = {"metadata": {"name": name}}

    created, deleted = (
        vcctl(server, group, "create", "-f", str(file)),
        vcctl(server, group, "delete", "-f", str(file)),
    )

    assert printed(created) == f"Created {kind}: default/test-a\nCreated {kind}: default/test-b\n"
    assert printed(deleted) == f"Deleted {kind}: default/test-a\nDeleted {kind}: default/test-b\n"


YAML = """\
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata:
  name: test-jobflow
  namespace: default
spec: {}
status:
  state: {}
"""


@pytest.mark.scenario("cli", 15)
def test_a_flow_is_described(server: Answers):
    metadata = {"name": "test-jobflow", "namespace": "default", "managedFields": [{"manager": "m"}]}
    server.gives[f"{FLOWS}/test-jobflow"] = {
        "metadata": metadata,
        "spec": {},
        "status": {"state": {}},
    }

    assert printed(vcctl(server, "jobflow", "describe", "-N", "test-jobflow")) == YAML
    text = printed(vcctl(server, "jobflow", "describe", "-N", "test-jobflow", "-o", "json"))
    assert list(json.loads(text)) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert text.startswith('{\n  "kind": "JobFlow",\n')
    assert (
        printed(vcctl(server, "jobflow", "describe", "-N", "test-jobflow", "-o", "xml"))
        == "Unsupported format: xml"
    )
