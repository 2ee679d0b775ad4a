"""Checklist 78 to 89: CustomResourceDefinitions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import objects
from tests.cluster.api import JSON, TABLE, Api, Tree, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.cluster.test_http import AGGREGATED

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Gadgets:
    """A definition of its own group, and the paths of its objects."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.group = f"g{uuid.uuid4().hex[:6]}.example.com"
        self.short = f"gd{uuid.uuid4().hex[:5]}"

    def version(self, name: str = "v1", spec: Tree | None = None, **more: Any) -> Tree:
        schema = {
            "type": "object",
            "properties": {
                "spec": spec or {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        }
        return {
            "name": name,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            **more,
        }

    def define(self, *versions: Tree, established: bool = True, **names: Any) -> Tree:
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.definition},
            "spec": {
                "group": self.group,
                "scope": "Namespaced",
                "versions": list(versions or [self.version()]),
                "names": {
                    "plural": "gadgets",
                    "kind": "Gadget",
                    "shortNames": [self.short],
                    **names,
                },
            },
        }
        made = self.api.create(DEFINITIONS, body)
        if established:
            self.api.wait(
                f"{DEFINITIONS}/{self.definition}",
                lambda tree: objects.condition(tree, "Established").get("status") == "True",
            )
            self.api.wait(self.path(), lambda _: True)
        return made

    @property
    def definition(self) -> str:
        return f"gadgets.{self.group}"

    def path(self, name: str = "", version: str = "v1", sub: str = "") -> str:
        path = f"/apis/{self.group}/{version}/namespaces/{self.namespace}/gadgets"
        return path + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def gadget(self, name: str, version: str = "v1", **more: Any) -> Tree:
        return {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Gadget",
            "metadata": {"name": name},
            **more,
        }

    def remove(self) -> None:
        self.api.delete(f"{DEFINITIONS}/{self.definition}")


@pytest.fixture
def gadgets(api: Api, ns: Namespace) -> Iterator[Gadgets]:
    made = Gadgets(api, ns.name)
    yield made
    made.remove()


def test_item_078_a_definition_is_served_soon(api: Api, gadgets: Gadgets) -> None:
    made = gadgets.define(established=False)
    assert made["status"]["storedVersions"] == ["v1"]
    eventually(lambda: api.post(gadgets.path(), gadgets.gadget("early")).status == 201, every=0.01)
    api.wait(
        f"{DEFINITIONS}/{gadgets.definition}",
        lambda tree: objects.condition(tree, "Established").get("status") == "True",
    )
    conditions = api.get(f"{DEFINITIONS}/{gadgets.definition}").tree
    assert objects.condition(conditions, "NamesAccepted")["reason"] == "NoConflicts"
    assert objects.condition(conditions, "Established")["reason"] == "InitialNamesAccepted"

    def listed() -> bool:
        found = api.get("/apis", accept=AGGREGATED).tree["items"]
        return gadgets.group in [item["metadata"]["name"] for item in found] and gadgets.group in [
            group["name"] for group in api.get("/apis", accept=JSON).tree["groups"]
        ]

    eventually(listed)


def test_item_079_unknown_fields(api: Api, toys: str) -> None:
    def create(name: str, mode: str, **spec: Any) -> Any:
        body = {
            "apiVersion": "/".join(toys.split("/")[2:4]),
            "kind": "Toy",
            "metadata": {"name": name},
            "spec": spec,
        }
        return api.post(toys, body, fieldValidation=mode)

    warned = create("warned", "Warn", size=1, unk=1)
    assert (warned.status, "unk" in warned.tree["spec"]) == (201, False)
    assert any("spec.unk" in text for text in warned.warnings)
    strict = create("strict", "Strict", size=1, unk=1)
    assert strict.status == 400 and 'unknown field "spec.unk"' in strict.message
    assert create("free", "Strict", free={"any": {"thing": 1}}).tree["spec"]["free"] == {
        "any": {"thing": 1}
    }


def test_item_080_defaults(api: Api, gadgets: Gadgets) -> None:
    gadgets.define(
        gadgets.version(
            spec={"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}
        )
    )
    assert api.create(gadgets.path(), gadgets.gadget("old", spec={}))["spec"] == {"a": "x"}
    later = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "default": "x"},
            "b": {"type": "integer", "default": 7},
        },
    }
    body = api.get(f"{DEFINITIONS}/{gadgets.definition}").tree
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = later
    assert api.put(f"{DEFINITIONS}/{gadgets.definition}", body).status == 200
    api.wait(gadgets.path("old"), lambda tree: tree["spec"] == {"a": "x", "b": 7})


SCHEMA: Tree = {"type": "object", "required": ["a"], "properties": {
    "a": {"type": "integer", "minimum": 1, "maximum": 5}, "s": {"type": "string", "maxLength": 5},
    "e": {"type": "string", "enum": ["x", "y"]},
    "p": {"type": "string", "pattern": "^a.*$"}, "l": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "string"}},
    "m": {"type": "integer", "multipleOf": 3}, "t": {"type": "string", "format": "date-time"}}}  # fmt: skip
VIOLATIONS = [
    ({}, "spec.a: Required value"),
    ({"a": 0}, "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"),
    ({"a": 6}, "spec.a: Invalid value: 6: spec.a in body should be less than or equal to 5"),
    (
        {"a": "x"},
        'spec.a: Invalid value: "string": spec.a in body must be of type integer: "string"',
    ),
    ({"a": 1, "s": "toolong"}, "spec.s: Too long: may not be more than 5 bytes"),
    ({"a": 1, "e": "z"}, 'spec.e: Unsupported value: "z": supported values: "x", "y"'),
    ({"a": 1, "p": "b"}, "spec.p: Invalid value: \"b\": spec.p in body should match '^a.*$'"),
    ({"a": 1, "l": []}, "spec.l in body should have at least 1 items"),
    ({"a": 1, "l": ["x", "y", "z"]}, "spec.l: Too many: 3: must have at most 2 items"),
    ({"a": 1, "m": 4}, "spec.m in body should be a multiple of 3"),
    (
        {"a": 1, "t": "x"},
        'spec.t: Invalid value: "x": spec.t in body must be of type date-time: "x"',
    ),
]


def test_item_081_schema_violations(api: Api, gadgets: Gadgets) -> None:
    gadgets.define(gadgets.version(spec=SCHEMA))
    for number, (spec, text) in enumerate(VIOLATIONS):
        answer = api.post(gadgets.path(), gadgets.gadget(f"bad-{number}", spec=spec))
        assert (answer.status, answer.reason) == (422, "Invalid"), answer
        assert answer.message.startswith(f'Gadget.{gadgets.group} "bad-{number}" is invalid: ')
        assert text in answer.message
    both = api.post(gadgets.path(), gadgets.gadget("both", spec={"e": "z"}))
    assert set(both.cause_fields) >= {"spec.a", "spec.e"}
    assert api.get(gadgets.path()).names == []


def test_item_082_transition_rules(api: Api, gadgets: Gadgets) -> None:
    rule = {"rule": "self.a == oldSelf.a", "message": "a never changes", "fieldPath": ".a"}
    spec = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "x-kubernetes-validations": [rule],
    }
    gadgets.define(gadgets.version(spec=spec))
    api.create(gadgets.path(), gadgets.gadget("fixed", spec={"a": "x"}))
    answer = api.patch(gadgets.path("fixed"), {"spec": {"a": "y"}})
    assert (answer.status, answer.cause_fields) == (422, ["spec.a"])
    assert "a never changes" in answer.message


def test_item_083_status_is_apart(api: Api, gadgets: Gadgets) -> None:
    gadgets.define(gadgets.version(subresources={"status": {}}))
    made = api.create(gadgets.path(), gadgets.gadget("apart", spec={"a": 1}, status={"b": 1}))
    assert "status" not in made and made["metadata"]["generation"] == 1
    changed = {
        **made,
        "spec": {"a": 2},
        "status": {"b": 2},
        "metadata": {**made["metadata"], "labels": {"l": "1"}},
    }
    answer = api.put(gadgets.path("apart", sub="status"), changed)
    assert (answer.status, answer.tree["status"], answer.tree["spec"]) == (200, {"b": 2}, {"a": 1})
    assert "labels" not in answer.meta and answer.meta["generation"] == 1
    answer = api.put(gadgets.path("apart"), {**answer.tree, "spec": {"a": 3}, "status": {"b": 9}})
    assert (answer.tree["status"], answer.tree["spec"], answer.meta["generation"]) == (
        {"b": 2},
        {"a": 3},
        2,
    )


SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def test_item_084_scale(api: Api, gadgets: Gadgets, kubectl: Kubectl) -> None:
    gadgets.define(gadgets.version(subresources={"status": {}, "scale": SCALE}))
    api.create(gadgets.path(), gadgets.gadget("many", spec={"replicas": 1}))
    api.patch(gadgets.path("many", sub="status"), {"status": {"replicas": 1, "selector": "a=b"}})
    scale = api.get(gadgets.path("many", sub="scale")).tree
    assert (scale["kind"], scale["apiVersion"], scale["status"]) == (
        "Scale",
        "autoscaling/v1",
        {"replicas": 1, "selector": "a=b"},
    )
    kubectl("-n", gadgets.namespace, "scale", f"{gadgets.definition}/many", "--replicas=4")
    assert api.get(gadgets.path("many")).tree["spec"]["replicas"] == 4


def test_item_085_two_versions(api: Api, gadgets: Gadgets) -> None:
    gadgets.define(gadgets.version("v1"), gadgets.version("v2", storage=False))
    made = api.create(gadgets.path(version="v2"), gadgets.gadget("both", "v2", spec={"a": 1}))
    assert made["apiVersion"] == f"{gadgets.group}/v2"
    assert api.get(gadgets.path("both")).tree["apiVersion"] == f"{gadgets.group}/v1"
    assert api.get(f"{DEFINITIONS}/{gadgets.definition}").tree["status"]["storedVersions"] == ["v1"]
    for version in ("v1", "v2"):
        with api.watch(gadgets.path(version=version)) as watch:
            assert watch.next()["object"]["apiVersion"] == f"{gadgets.group}/{version}"


COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Hue", "type": "string", "jsonPath": ".spec.color", "priority": 1},
]


def test_item_086_printer_columns(api: Api, gadgets: Gadgets, kubectl: Kubectl) -> None:
    gadgets.define(gadgets.version(additionalPrinterColumns=COLUMNS))
    api.create(gadgets.path(), gadgets.gadget("seen", spec={"size": 3, "color": "red"}))
    assert [
        column["name"] for column in api.get(gadgets.path(), accept=TABLE).tree["columnDefinitions"]
    ] == ["Name", "Size", "Hue"]
    plain = kubectl("-n", gadgets.namespace, "get", gadgets.definition).split()
    assert plain == ["NAME", "SIZE", "seen", "3"]
    assert kubectl("-n", gadgets.namespace, "get", gadgets.definition, "-o", "wide").split() == [
        "NAME",
        "SIZE",
        "HUE",
        "seen",
        "3",
        "red",
    ]


def test_item_087_short_names_and_categories(api: Api, gadgets: Gadgets, kubectl: Kubectl) -> None:
    gadgets.define(categories=["all"])
    api.create(gadgets.path(), gadgets.gadget("short"))
    assert "short" in kubectl("-n", gadgets.namespace, "get", gadgets.short)
    assert f"gadget.{gadgets.group}/short" in kubectl(
        "-n", gadgets.namespace, "get", "all", "-o", "name"
    )


def test_item_088_a_deleted_definition(api: Api, gadgets: Gadgets) -> None:
    gadgets.define()
    made = api.create(gadgets.path(), gadgets.gadget("last"))
    with api.watch(gadgets.path(), resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        gadgets.remove()
        assert [event["type"] for event in watch.rest()][:1] == ["DELETED"]
    api.gone(gadgets.path())
    api.gone(f"{DEFINITIONS}/{gadgets.definition}")

    def unlisted() -> bool:
        return gadgets.group not in [
            group["name"] for group in api.get("/apis", accept=JSON).tree["groups"]
        ]

    eventually(unlisted)
