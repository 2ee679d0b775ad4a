"""Kinds made of definitions: pruning, defaults and the words of 4.3, on a small kind and on our own
definitions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import crds
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.custom import custom, schema, schema_errors
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.openapi import openapi

JSON = "application/json"
DEFINITION = next(kind for kind in builtin.kinds() if kind.kind == "CustomResourceDefinition")

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["a"],
    "properties": {
        "a": {"type": "integer", "minimum": 1, "maximum": 5, "multipleOf": 1},
        "b": {"type": "string", "maxLength": 5, "minLength": 1},
        "p": {"type": "string", "pattern": "^a.*$"},
        "e": {"type": "string", "enum": ["x", "y"]},
        "t": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "default": "filled"},
        "n": {"type": "string", "nullable": True, "default": "filled"},
        "x": {"x-kubernetes-int-or-string": True},
        "free": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"k": {"type": "integer"}},
        },
        "m": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"v": {"type": "integer", "default": 7}},
            },
        },
        "l": {
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "v": {"type": "integer", "default": 1}},
            },
        },
    },
}


def definition(**version: Any) -> dict[str, Any]:
    root = {
        "type": "object",
        "properties": {
            "spec": SPEC,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": root},
        "subresources": {"status": {}},
        **version,
    }
    names = {"plural": "widgets", "kind": "Widget"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.ex.com"},
        "spec": {"group": "ex.com", "scope": "Namespaced", "names": names, "versions": [served]},
    }


WIDGET = custom.kinds_of(definition())[0]


def body(spec: Any, **more: Any) -> bytes:
    return json.dumps(
        {
            "apiVersion": "ex.com/v1",
            "kind": "Widget",
            "metadata": {"name": "w"},
            "spec": spec,
            **more,
        }
    ).encode()


def made(spec: Any, kind: Kind = WIDGET) -> tuple[dict[str, Any], list[str]]:
    assert kind.decode is not None
    tree = kind.decode(body(spec), JSON, "Warn").tree
    kind.strategy.default(tree)
    return tree["spec"], [
        f"{error.field}: {error.text}" for error in kind.strategy.validate_create(tree)
    ]


def test_defaults_fill_and_unknown_fields_go() -> None:
    spec, wrong = made(
        {
            "a": 1,
            "n": None,
            "d": None,
            "unk": 1,
            "free": {"any": 1},
            "m": {"k": {}},
            "l": [{"name": "x", "y": 1}],
        }
    )
    assert wrong == []
    assert spec == {
        "a": 1,
        "n": None,
        "d": "filled",
        "free": {"any": 1},
        "m": {"k": {"v": 7}},
        "l": [{"name": "x", "v": 1}],
    }


def test_unknown_fields_are_named_by_their_whole_path() -> None:
    assert WIDGET.decode is not None
    found = WIDGET.decode(body({"a": 1, "unk": 1, "l": [{"name": "x", "y": 1}]}), JSON, "Warn")
    assert list(found.warnings) == ['unknown field "spec.unk"', 'unknown field "spec.l[0].y"']
    with pytest.raises(BadBody, match='strict decoding error: unknown field "spec'):
        WIDGET.decode(body({"a": 1, "unk": 1, "l": [{"name": "x", "y": 1}]}), JSON, "Strict")
    twice = (
        b'{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"a":1,"a":2}}'
    )
    assert list(WIDGET.decode(twice, JSON, "Warn").warnings) == ['duplicate field "spec.a"']


def test_int_or_string_is_the_same_with_and_without_any_of() -> None:
    marked = {"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+m?$"}
    choice = {**marked, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    narrow = {**marked, "anyOf": [{"type": "integer"}]}
    for value, fits in (
        (1, True),
        ("10m", True),
        ("ten", False),
        (True, False),
        (1.5, False),
        (None, False),
        ({}, False),
    ):
        for described in (marked, choice):
            check = schema.checker(described)
            assert check is not None
            assert check(value) is fits, (value, described)
    check = schema.checker(narrow)
    assert check is not None
    assert (check(1), check("10m")) == (True, False)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec.a: Required value"),
        ("text", 'spec: Invalid value: "string": spec in body must be of type object: "string"'),
        ({"a": 0}, "spec.a: Invalid value: 0: spec.a in body should be greater than or equal to 1"),
        ({"a": 6}, "spec.a: Invalid value: 6: spec.a in body should be less than or equal to 5"),
        (
            {"a": 1, "b": ""},
            'spec.b: Invalid value: "": spec.b in body should be at least 1 chars long',
        ),
        ({"a": 1, "b": "sixsix"}, "spec.b: Too long: may not be more than 5 bytes"),
        ({"a": 1, "p": "b"}, "spec.p: Invalid value: \"b\": spec.p in body should match '^a.*$'"),
        ({"a": 1, "e": "z"}, 'spec.e: Unsupported value: "z": supported values: "x", "y"'),
        (
            {"a": 1, "t": "x"},
            'spec.t: Invalid value: "x": spec.t in body must be of type date-time: "x"',
        ),
        (
            {"a": 1, "x": True},
            'spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"',
        ),
        (
            {"a": 1, "l": [{"name": str(n)} for n in range(6)]},
            "spec.l: Too many: 6: must have at most 5 items",
        ),
        ({"a": 1, "l": [{"name": "a"}, {"name": "a"}]}, 'spec.l[1]: Duplicate value: {"name":"a"}'),
        ({"a": 1, "l": [{}]}, "spec.l[0].name: Required value"),
    ],
)
def test_the_message_of_every_keyword(spec: Any, words: str) -> None:
    assert made(spec)[1] == [words]


def test_kind_and_version_must_be_there() -> None:
    assert WIDGET.decode is not None
    unversioned = (
        r"the API version in the data \(\) does not match the expected API version \(ex.com/v1\)"
    )
    for wrong, words in (
        (b"{}", "Object 'Kind' is missing in '{}'"),
        (b'{"kind":"Widget"}', unversioned),
    ):
        with pytest.raises(BadBody, match=words):
            WIDGET.decode(wrong, JSON, "Warn")
    with pytest.raises(BadBody) as caught:
        WIDGET.decode(b"k8s\0", "application/vnd.kubernetes.protobuf", "Warn")
    assert caught.value.code == 415


def test_metadata_of_custom_objects_is_checked_too() -> None:
    assert WIDGET.decode is not None
    with pytest.raises(BadBody, match="cannot unmarshal number into Go struct field ObjectMeta"):
        WIDGET.decode(
            b'{"apiVersion":"ex.com/v1","kind":"Widget","metadata":{"name":3}}', JSON, "Warn"
        )
    tree = {
        "apiVersion": "ex.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "foo": 1, "creationTimestamp": None},
    }
    found = WIDGET.decode(json.dumps(tree).encode(), JSON, "Warn")
    assert (found.tree["metadata"], list(found.warnings)) == (
        {"name": "w"},
        ['unknown field "metadata.foo"'],
    )


def test_unchanged_errors_are_forgiven_on_update() -> None:
    old = {"metadata": {"name": "w"}, "spec": {"a": 9, "b": "ok"}}
    strategy = WIDGET.strategy
    assert (
        strategy.validate_update({"metadata": {"name": "w"}, "spec": {"a": 9, "b": "new"}}, old)
        == []
    )
    assert [
        error.field
        for error in strategy.validate_update(
            {"metadata": {"name": "w"}, "spec": {"a": 8, "b": "ok"}}, old
        )
    ] == ["spec.a"]


def test_an_update_answers_for_what_it_changes() -> None:
    check = schema.change_checker(
        {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": SPEC}}
    )
    assert check is not None
    wrong, right = {"a": 9}, {"a": 2}
    assert check({"spec": dict(wrong), "status": right}, {"spec": wrong})
    assert not check({"spec": dict(wrong), "status": {"a": 8}}, {"spec": wrong, "status": right})
    assert not check({"status": right}, {"spec": right, "status": right}), (
        "what must be there may not be taken away"
    )
    assert schema.change_checker({"type": "object", "maxProperties": 2}) is None
    assert schema.change_checker({"type": "object", "not": {"type": "array"}}) is None


def test_status_is_its_own() -> None:
    old = {"metadata": {"name": "w", "labels": {"a": "b"}}, "spec": {"a": 1}, "status": {"x": 1}}
    new = {"metadata": {"name": "w", "labels": {"c": "d"}}, "spec": {"a": 2}, "status": {"x": 2}}
    status, main = json.loads(json.dumps(new)), json.loads(json.dumps(new))
    WIDGET.strategy.prepare_status(status, old)
    WIDGET.strategy.prepare_update(main, old)
    assert status == {**old, "status": {"x": 2}}
    assert main == {**new, "status": {"x": 1}}


def test_columns_fields_scale_and_warning() -> None:
    kind = custom.kinds_of(
        definition(
            additionalPrinterColumns=[
                {
                    "name": "Ready",
                    "type": "string",
                    "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                },
                {"name": "A", "type": "integer", "jsonPath": ".spec.a", "priority": 1},
                {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            selectableFields=[{"jsonPath": ".spec.e"}],
            subresources={
                "scale": {
                    "specReplicasPath": ".spec.a",
                    "statusReplicasPath": ".status.n",
                    "labelSelectorPath": ".status.s",
                }
            },
            deprecated=True,
        )
    )[0]
    tree = {
        "metadata": {"name": "w"},
        "spec": {"a": 3},
        "status": {"conditions": [{"type": "No"}, {"type": "Ready", "status": "True"}]},
    }
    assert [(column.name, column.cell(tree, 0)) for column in kind.columns] == [
        ("Name", "w"),
        ("Ready", "True"),
        ("A", 3),
        ("Since", None),
    ]
    assert kind.columns[1].description.startswith(
        "Custom resource definition column (in JSONPath format): .status"
    )
    assert kind.selectable == {"spec.e": ("spec", "e")}
    assert kind.scale.spec_replicas == ("spec", "a") and kind.scale.selector == ("status", "s")
    assert kind.warning == "ex.com/v1 Widget is deprecated"
    assert [column.name for column in WIDGET.columns] == ["Name", "Age"]


# --- definitions themselves -----------------------------------------------------------------------


def defined(tree: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    assert DEFINITION.decode is not None
    made = DEFINITION.decode(json.dumps(tree).encode(), JSON, "Strict").tree
    DEFINITION.strategy.default(made)
    DEFINITION.strategy.prepare_create(made)
    return made, [
        f"{error.field}: {error.text}" for error in DEFINITION.strategy.validate_create(made)
    ]


def test_a_definition_gets_its_names_and_status() -> None:
    tree, wrong = defined(definition())
    assert wrong == []
    assert (tree["spec"]["names"]["singular"], tree["spec"]["names"]["listKind"]) == (
        "widget",
        "WidgetList",
    )
    assert tree["spec"]["conversion"] == {"strategy": "None"}
    assert tree["status"]["storedVersions"] == ["v1"] and tree["status"]["conditions"] is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"name": "x"}}, 'metadata.name: Invalid value: "x": must be spec.names.plural+"."+spec.group'),
        ({"scope": "Everywhere"}, 'spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"'),
        ({"storage": False}, 'spec.versions: Invalid value: ["v1"]: must have exactly one version marked as storage version'),
        ({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}},
         "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields"),
    ],
)  # fmt: skip
def test_definitions_that_cannot_be(change: dict[str, Any], words: str) -> None:
    tree = definition(
        **{key: value for key, value in change.items() if key in ("storage", "schema")}
    )
    tree["metadata"].update(change.get("metadata", {}))
    if "scope" in change:
        tree["spec"]["scope"] = change["scope"]
    assert words in defined(tree)[1]


@pytest.mark.parametrize("tree", crds.all(), ids=lambda tree: tree["metadata"]["name"])
def test_our_own_definitions_are_structural_and_served(tree: dict[str, Any]) -> None:
    made, wrong = defined(tree)
    assert wrong == []
    for kind in custom.kinds_of(made):
        shown = openapi.document([kind])["components"]["schemas"]
        named = [
            name
            for name, described in shown.items()
            if "x-kubernetes-group-version-kind" in described
        ]
        assert len(named) == 1 and kind.kind in named[0]


# --- the two readings of a schema agree -----------------------------------------------------------

KEYS = st.sampled_from([*SPEC["properties"], "name", "v", "k"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 8)
    | st.sampled_from(["", "a", "x", "long text", "2024-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
@settings(max_examples=500, deadline=None)
def test_the_quick_check_and_the_explanation_agree(value: Any) -> None:
    check = schema.checker(SPEC)
    assert check is not None
    assert check(value) == (schema_errors.explain(SPEC, value, path="spec") == [])


def test_finalizers_of_custom_objects_need_no_prefix() -> None:
    tree = {"metadata": {"name": "w", "finalizers": ["cleanup.ex.com"]}, "spec": {"a": 1}}
    assert WIDGET.strategy.validate_create(tree) == []
    named = {
        **definition()["metadata"],
        "finalizers": ["customresourcecleanup.apiextensions.k8s.io"],
    }
    assert defined({**definition(), "metadata": named})[1] == []
