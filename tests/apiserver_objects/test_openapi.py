"""OpenAPI documents hold what kubectl looks for (local-cluster 1.9)."""

from __future__ import annotations

import json

import pytest

from hekla.local.apiserver.objects import builtin, openapi, swagger

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


def test_version_two_says_the_same_without_what_it_does_not_know() -> None:
    documents = [openapi.document([kind for kind in builtin.kinds() if (kind.group, kind.version) == place]) for place in GROUPS]
    definitions = swagger.document(documents)["definitions"]
    assert definitions["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.apps.v1.DeploymentSpec"
    text = json.dumps(definitions)
    assert "#/components" not in text
    assert "oneOf" not in definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    for name in {part.split('"')[0] for part in text.split("#/definitions/")[1:]}:
        assert name in definitions


def test_version_two_of_a_schema_with_what_may_be_null() -> None:
    properties = {"a": {"type": "string", "nullable": True}, "b": {"type": "array", "items": {"type": "object"}},
                  "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}  # fmt: skip
    schema = {"type": "object", "required": ["a", "b"], "properties": properties, "anyOf": [{"required": ["c"]}]}
    definitions = swagger.document([{"components": {"schemas": {"x": schema}}}])["definitions"]
    assert definitions["x"] == {"type": "object", "required": ["b"], "properties": {
        "a": {}, "b": {"type": "array", "items": {"type": "object"}}, "c": {"x-kubernetes-preserve-unknown-fields": True}}}  # fmt: skip
