"""CustomResourceDefinitions, and objects that keep to them or do not."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import JSON_PATCH, MERGE, PROTOBUF, STRATEGIC, TABLE, Tree
from tests.kubernetes.exchange import Step
from tests.kubernetes.scripts.places import PARTIALS


def definition(plural: str, schema: Tree, **version: object) -> Tree:
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    kind = plural.capitalize()[:-1]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{{{{ns}}}}.example.com"},
        "spec": {
            "group": "{{ns}}.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [plural[:2]]},
            "versions": [served],
        },
    }


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definitions() -> Iterator[Step]:
    """A definition, and custom resources that keep to it or do not."""
    properties: Tree = {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "when": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "either": {"x-kubernetes-int-or-string": True},
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 2,
            "x-kubernetes-list-type": "set",
        },
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port"],
            "items": {
                "type": "object",
                "required": ["port"],
                "properties": {"port": {"type": "integer"}, "name": {"type": "string"}},
            },
        },
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "maybe": {"type": "string", "nullable": True},
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"deep": {"type": "boolean", "default": True}},
        },
    }
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": properties},
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    }
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    body = definition(
        "toys",
        schema,
        subresources={
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"},
        },
        additionalPrinterColumns=columns,
    )
    where = "/apis/{{ns}}.example.com/v1/namespaces/{{ns}}/toys"
    yield Step("POST", DEFINITIONS, body)
    yield Step("GET", where, until=200)
    yield Step("GET", f"{DEFINITIONS}/toys.{{{{ns}}}}.example.com")
    yield Step("GET", f"{DEFINITIONS}/toys.{{{{ns}}}}.example.com", accept=TABLE)
    yield Step("GET", "/apis/{{ns}}.example.com", until=200)
    yield Step("GET", "/apis/{{ns}}.example.com/v1")

    def toy(name: str, /, **spec: object) -> Tree:
        return {
            "apiVersion": "{{ns}}.example.com/v1",
            "kind": "Toy",
            "metadata": {"name": name},
            "spec": {"size": 1, **spec},
        }

    yield Step("POST", where, toy("a", free={"x": [1, {"y": None}]}, unknown=1, either="5%"))
    yield Step("POST", where, toy("b", unknown=1), query={"fieldValidation": "Strict"})
    yield Step(
        "POST", where, toy("b", unknown=1), query={"fieldValidation": "Warn", "dryRun": "All"}
    )
    yield Step("POST", where, {**toy("b"), "apiVersion": "else/v1"})
    yield Step("POST", where, {"metadata": {"name": "b"}, "spec": {"size": 1}})
    yield Step("POST", where, {**toy("b"), "spec": None})
    yield Step(
        "POST", where, {key: value for key, value in toy("b").items() if key != "apiVersion"}
    )
    yield Step("POST", where, b"nonsense")
    yield Step("POST", where, b"[]")
    yield Step("POST", where, {key: value for key, value in toy("b").items() if key != "spec"})
    for number, spec in enumerate(
        (
            {"size": 0},
            {"size": 10},
            {"size": "x"},
            {"size": 1.5},
            {"size": None},
            {"color": "green"},
            {"name": "x"},
            {"name": "toolong"},
            {"name": "A1"},
            {"when": "never"},
            {"either": True},
            {"tags": ["a", "a"]},
            {"tags": ["a", "b", "c"]},
            {"tags": "x"},
            {"ports": [{"port": 1}, {"port": 1}]},
            {"ports": [{"name": "x"}]},
            {"map": {"a": "x"}},
            {"map": {"a": 1.5}},
            {"maybe": None},
            {"nested": {}},
            {"nested": {"deep": None}},
            {"color": None},
            {"size": 0, "color": "green", "name": "A"},
            {"size": -1},
            {"size": 2**31},
            {"tags": None, "ports": {}},
        )
    ):
        yield Step("POST", where, toy(f"m{number}", **spec), query={"dryRun": "All"})
    one = f"{where}/a"
    yield Step("PUT", one, {**toy("a", size=2), "metadata": {"name": "a"}})
    yield Step(
        "PUT",
        one,
        {
            **toy("a", size=2),
            "metadata": {"name": "a", "resourceVersion": "{{rv:a}}"},
            "status": {"ready": True},
        },
    )
    yield Step("PATCH", one, {"spec": {"size": 3}}, MERGE)
    yield Step("PATCH", one, {"spec": {"size": 3}}, STRATEGIC)
    yield Step("PATCH", one, [{"op": "replace", "path": "/spec/size", "value": 4}], JSON_PATCH)
    yield Step(
        "PATCH", f"{one}/status", {"spec": {"size": 9}, "status": {"ready": True, "n": 3}}, MERGE
    )
    yield Step("PATCH", f"{one}/status", {"status": {"ready": "x"}}, MERGE)
    yield Step("GET", f"{one}/scale")
    yield Step("PATCH", f"{one}/scale", {"spec": {"replicas": 5}}, MERGE)
    yield Step("GET", where)
    yield Step("GET", where, accept=TABLE)
    yield Step("GET", where, accept=PARTIALS)
    yield Step("GET", where, accept=PROTOBUF)
    yield Step("GET", where, query={"fieldSelector": "spec.size=1"})
    yield Step("GET", where, query={"watch": "1", "timeoutSeconds": "1"}, watch=True)
    yield Step("DELETE", one)
    yield Step("DELETE", f"{DEFINITIONS}/toys.{{{{ns}}}}.example.com")
    yield Step("GET", where, until=404)


def definition_mistakes() -> Iterator[Step]:
    plain: Tree = {"type": "object"}

    def wrong(**spec: object) -> Tree:
        body = definition("mists", plain)
        return {**body, "spec": {**body["spec"], **spec}}

    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": plain}}
    specs: list[Tree] = [
        {"group": ""},
        {"scope": "x"},
        {"names": {}},
        {"names": {"plural": "others", "kind": "Other"}},
        {"versions": []},
        {"versions": [version, version]},
        {"versions": [{**version, "storage": False}]},
        {"versions": [{**version, "schema": None}]},
        {"versions": [{**version, "name": "V1"}]},
        {"conversion": {"strategy": "Webhook"}},
        {"preserveUnknownFields": True},
        {"names": {"plural": "mists", "kind": "lower case"}},
        {"group": "nodots"},
        {"versions": [{**version, "deprecated": True, "deprecationWarning": "old"}]},
    ]
    schemas: list[Tree] = [
        {},
        {"type": "string"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "string", "default": 1}}},
        {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "properties": {"a": {"type": "string"}},
        },
        {
            "type": "object",
            "properties": {
                "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}
            },
        },
        {"type": "object", "x-kubernetes-validations": [{"rule": "self.x =="}]},
        {"type": "object", "x-kubernetes-validations": [{"rule": ""}]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "x-kubernetes-list-type": "map"},
        {"type": "object", "$ref": "x"},
        {"type": "object", "uniqueItems": True},
        {"type": "object", "anyOf": [{"type": "object"}]},
        {
            "type": "object",
            "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": True}},
        },
        {"type": "object", "nullable": True},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "[a"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}},
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "format": "email"},
                "b": {"type": "number", "format": "int32"},
            },
        },
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "object",
                    "default": {"b": "x"},
                    "properties": {"b": {"type": "integer"}},
                }
            },
        },
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "format": "odd", "minimum": 5, "maximum": 1}},
        },
    ]
    for spec in specs:
        yield Step("POST", DEFINITIONS, wrong(**spec), query={"dryRun": "All"})
    for schema in schemas:
        yield Step("POST", DEFINITIONS, definition("mists", schema), query={"dryRun": "All"})
    yield Step(
        "POST",
        DEFINITIONS,
        {**definition("mists", plain), "metadata": {"name": "wrong.example.com"}},
        query={"dryRun": "All"},
    )
    yield Step("POST", DEFINITIONS, wrong(group="x.k8s.io"), query={"dryRun": "All"})
