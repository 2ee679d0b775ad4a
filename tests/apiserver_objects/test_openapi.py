"""OpenAPI documents hold what kubectl looks for (local-cluster 1.9)."""

from __future__ import annotations

import json

import pytest

from hekla.local.apiserver.objects import builtin, openapi

GROUPS = sorted({(kind.group, kind.version) for kind in builtin.kinds()})


@pytest.mark.parametrize(("group", "version"), GROUPS)
def test_every_reference_leads_somewhere(group: str, version: str) -> None:
    document = openapi.document([kind for kind in builtin.kinds() if (kind.group, kind.version) == (group, version)])
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in schemas
    assert "strategic-merge-patch" not in text


def test_an_item_can_be_patched_and_a_kind_explained() -> None:
    document = openapi.document([kind for kind in builtin.kinds() if (kind.group, kind.version) == ("apps", "v1")])
    item = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert item["patch"]["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert "fieldValidation" in {parameter["name"] for parameter in item["patch"]["parameters"]}
    described = document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]
    assert described["x-kubernetes-group-version-kind"] == [{"group": "apps", "version": "v1", "kind": "Deployment"}]
    assert described["properties"]["spec"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}]
    assert described["description"].startswith("Keeps a number of equal pods running")
