"""OpenAPI documents hold what kubectl looks for (local-cluster 1.9)."""

from __future__ import annotations

import json

import pytest

from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.openapi import gnostic, openapi, swagger

GROUPS = sorted({(kind.group, kind.version) for kind in builtin.kinds()})


@pytest.mark.parametrize(("group", "version"), GROUPS)
def test_every_reference_leads_somewhere(group: str, version: str) -> None:
    document = openapi.document(
        [kind for kind in builtin.kinds() if (kind.group, kind.version) == (group, version)]
    )
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in schemas
    assert "strategic-merge-patch" not in text


def test_an_item_can_be_patched_and_a_kind_explained() -> None:
    document = openapi.document(
        [kind for kind in builtin.kinds() if (kind.group, kind.version) == ("apps", "v1")]
    )
    item = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    assert item["patch"]["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert "fieldValidation" in {parameter["name"] for parameter in item["patch"]["parameters"]}
    described = document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]
    assert described["x-kubernetes-group-version-kind"] == [
        {"group": "apps", "version": "v1", "kind": "Deployment"}
    ]
    assert described["properties"]["spec"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}
    ]
    assert described["description"].startswith("Keeps a number of equal pods running")


def test_version_two_is_the_same_without_what_it_cannot_express() -> None:
    documents = [
        openapi.document([kind for kind in builtin.kinds() if (kind.group, kind.version) == place])
        for place in GROUPS
    ]
    definitions = swagger.document(documents)["definitions"]
    assert (
        definitions["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"]["$ref"]
        == "#/definitions/io.k8s.api.apps.v1.DeploymentSpec"
    )
    text = json.dumps(definitions)
    assert "#/components" not in text
    assert "oneOf" not in definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    for name in {part.split('"')[0] for part in text.split("#/definitions/")[1:]}:
        assert name in definitions


def test_version_two_of_a_schema_with_what_may_be_null() -> None:
    properties = {
        "a": {"type": "string", "nullable": True},
        "b": {"type": "array", "items": {"type": "object"}},
        "c": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": properties,
        "anyOf": [{"required": ["c"]}],
    }
    definitions = swagger.document([{"components": {"schemas": {"x": schema}}}])["definitions"]
    assert definitions["x"] == {
        "type": "object",
        "required": ["b"],
        "properties": {
            "a": {},
            "b": {"type": "array", "items": {"type": "object"}},
            "c": {"x-kubernetes-preserve-unknown-fields": True},
        },
    }


def parts(body: bytes) -> dict[int, list[bytes]]:
    """The length-delimited fields of a protobuf message by their numbers; others are skipped."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        number, shift = 0, 0
        while True:
            number |= (body[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if body[at - 1] < 0x80:
                return number

    while at < len(body):
        key = varint()
        size = {0: lambda: (varint(), 0)[1], 1: lambda: 8, 2: varint}[key & 7]()
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(body[at : at + size])
        at += size
    return found


def test_version_two_is_encoded_as_its_old_readers_want_it() -> None:
    document = swagger.document(
        [
            openapi.document(
                [kind for kind in builtin.kinds() if (kind.group, kind.version) == ("apps", "v1")]
            )
        ]
    )
    whole = parts(gnostic.encoded(document))
    assert whole[1] == [b"2.0"] and parts(whole[2][0]) == {1: [b"Kubernetes"], 2: [b"v1.36.0"]}
    schemas = {
        parts(named)[1][0].decode(): parts(parts(named)[2][0]) for named in parts(whole[9][0])[1]
    }
    assert schemas.keys() == document["definitions"].keys()
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert parts(deployment[22][0]) == {1: [b"object"]}
    extension = parts(deployment[31][0])
    assert extension[1] == [b"x-kubernetes-group-version-kind"]
    assert json.loads(parts(extension[2][0])[2][0]) == [
        {"group": "apps", "version": "v1", "kind": "Deployment"}
    ]
    properties = {
        parts(named)[1][0].decode(): parts(parts(named)[2][0])
        for named in parts(deployment[25][0])[1]
    }
    assert properties["spec"][1] == [b"#/definitions/io.k8s.api.apps.v1.DeploymentSpec"]
    paths = {
        parts(named)[1][0].decode(): parts(parts(named)[2][0]) for named in parts(whole[8][0])[2]
    }
    patch = parts(paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"][8][0])
    names = [parts(parts(parts(parts(item)[1][0])[2][0])[3][0])[4][0] for item in patch[8]]
    assert names == [b"dryRun", b"fieldManager", b"fieldValidation", b"force"]


def test_schemas_say_how_lists_are_patched() -> None:
    document = openapi.document([kind for kind in builtin.kinds() if kind.kind == "Pod"])
    described = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]
    patched = {
        name: field.get("x-kubernetes-patch-merge-key")
        for name, field in described["properties"].items()
    }
    assert (patched["containers"], patched["volumes"], patched["tolerations"]) == (
        "name",
        "name",
        None,
    )
    assert described["properties"]["volumes"]["x-kubernetes-patch-strategy"] == "merge,retainKeys"
