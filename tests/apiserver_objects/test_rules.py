"""CEL rules of custom kinds: what they say of objects, and what their authors are told of them
(local-cluster 4.4)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from hekla.api import crds
from hekla.api.trees import Json
from hekla.local.apiserver.objects.custom import custom, rules
from hekla.local.apiserver.objects.validation import definitions
from tests.apiserver_objects.test_custom import definition


def errors(validations: list[dict[str, Any]], spec: Any, old: Any = None) -> list[str]:
    tree = deepcopy(definition())
    schema = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {
        **schema["properties"]["spec"],
        "x-kubernetes-validations": validations,
    }
    strategy = custom.kinds_of(tree)[0].strategy
    new = {"metadata": {"name": "w"}, "spec": spec}
    found = (
        strategy.validate_create(new)
        if old is None
        else strategy.validate_update(new, {"metadata": {"name": "w"}, "spec": old})
    )
    return [f"{error.field}: {error.text}" for error in found]


def test_a_rule_speaks_with_its_own_message_reason_and_path() -> None:
    assert errors([{"rule": "self.a < 3", "message": "a is small"}], {"a": 4}) == [
        "spec: Invalid value: a is small"
    ]
    assert errors([{"rule": "self.a < 3"}], {"a": 4}) == [
        "spec: Invalid value: failed rule: self.a < 3"
    ]
    forbidden = {
        "rule": "self.e != 'y'",
        "message": "e is y",
        "reason": "FieldValueForbidden",
        "fieldPath": ".e",
    }
    assert errors([forbidden], {"a": 1, "e": "y"}) == ["spec.e: Forbidden: e is y"]


def test_transition_rules_wait_for_an_old_value() -> None:
    frozen = [{"rule": "self.a == oldSelf.a", "message": "a is frozen"}]
    assert errors(frozen, {"a": 1}) == []
    assert errors(frozen, {"a": 2}, {"a": 1}) == ["spec: Invalid value: a is frozen"]
    assert errors(frozen, {"a": 1, "b": "x"}, {"a": 1}) == []


def test_rules_are_not_evaluated_for_what_does_not_fit_the_schema() -> None:
    assert errors([{"rule": "self.a < 3"}], {"a": "x"})[-1].startswith(
        "<nil>: Invalid value: null: some validation rules were not checked"
    )


def test_the_rules_of_our_own_definitions_compile() -> None:
    for tree in crds.all():
        assert [
            error for error in definitions.create(tree) if "x-kubernetes-validations" in error.field
        ] == []


def of_schema(schema: Json, spec: Any, old: Any = None) -> list[str]:
    """What an object with that spec is told, where the spec has that schema."""
    tree = deepcopy(definition())
    tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = schema
    strategy = custom.kinds_of(tree)[0].strategy
    new = {"metadata": {"name": "w"}, "spec": spec}
    found = (
        strategy.validate_create(new)
        if old is None
        else strategy.validate_update(new, {"metadata": {"name": "w"}, "spec": old})
    )
    return [f"{error.field}: {error.text}" for error in found]


def declared(rule: Json, **more: Any) -> list[str]:
    """What the author of a definition is told of a rule."""
    tree = deepcopy(definition())
    spec = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [rule]
    spec["properties"].update(more)
    found = [error for error in definitions.create(tree) if "openAPIV3Schema" in error.field]
    return [f"{error.field.rpartition('openAPIV3Schema.')[2]}: {error.text}" for error in found]


WHERE = "properties[spec].x-kubernetes-validations[0]"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            "self.nope == 1",
            "compilation failed: ERROR: <input>:1:5: undefined field 'nope'\n | self.nope == 1\n | ....^",
        ),
        ("self.a == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.a", "cel expression must evaluate to a bool"),
        ("foo(self.a)", "undeclared reference to 'foo' (in container '')"),
        ("self.a > ", "Syntax error: mismatched input '<EOF>'"),
        ("self.b.matches('[')", "invalid matches argument"),
        ("(" * 300 + "true" + ")" * 300, "recursion limit exceeded"),
    ],
)
def test_rules_are_read_when_they_are_declared(rule: str, words: str) -> None:
    (error,) = declared({"rule": rule})
    assert error.startswith(f'{WHERE}.rule: Invalid value: {{"Rule":"')
    assert words in error


def test_the_other_fields_of_a_rule_are_checked_too() -> None:
    assert declared({"rule": " "}) == [f"{WHERE}.rule: Required value: rule is not specified"]
    assert declared({"rule": "true", "message": "a\nb"}) == [
        f'{WHERE}.message: Invalid value: "a\\nb": must not contain line breaks'
    ]
    assert (
        "messageExpression must evaluate to a string"
        in declared({"rule": "true", "messageExpression": "1"})[0]
    )
    assert "supported values" in declared({"rule": "true", "reason": "Nope"})[0]
    assert declared({"rule": "true", "fieldPath": ".nope"}) == [
        f'{WHERE}.fieldPath: Invalid value: ".nope": must be a valid path'
    ]
    assert declared({"rule": "true", "optionalOldSelf": True}) == [
        f"{WHERE}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
    ]


def test_old_values_need_an_identity() -> None:
    item = {
        "type": "object",
        "properties": {"k": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.k == oldSelf.k"}],
    }
    (error,) = declared({"rule": "true"}, l={"type": "array", "items": item})
    assert "oldSelf cannot be used on the uncorrelatable portion of the schema within" in error
    listed = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }
    assert declared({"rule": "true"}, l=listed) == []


def test_elements_of_map_lists_are_correlated_by_their_keys() -> None:
    rule = {"rule": "self.v >= oldSelf.v", "message": "v only grows"}
    item = {
        "type": "object",
        "required": ["k"],
        "x-kubernetes-validations": [rule],
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
    }
    schema = {
        "type": "object",
        "properties": {
            "l": {
                "type": "array",
                "items": item,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            }
        },
    }
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    new = {"l": [{"k": "b", "v": 4}, {"k": "c", "v": 0}, {"k": "a", "v": 2}]}
    assert of_schema(schema, new, old) == ["spec.l[0]: Invalid value: v only grows"]


def test_a_rule_with_optional_old_self_runs_on_creation_too() -> None:
    rule = {
        "rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 0",
        "optionalOldSelf": True,
        "message": "begins at 0, grows",
    }
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "x-kubernetes-validations": [rule]}},
    }
    assert of_schema(schema, {"n": 1}) == ["spec.n: Invalid value: 1: begins at 0, grows"]
    assert of_schema(schema, {"n": 0}) == []
    assert of_schema(schema, {"n": 1}, {"n": 2}) == ["spec.n: Invalid value: 1: begins at 0, grows"]


def test_a_message_may_be_made() -> None:
    rule = {
        "rule": "self.a < 3",
        "messageExpression": "'%d is too much'.format([self.a])",
        "message": "never said",
    }
    assert errors([rule], {"a": 4}) == ["spec: Invalid value: 4 is too much"]
    broken = {
        "rule": "self.a < 3",
        "messageExpression": "string(1 / (self.a - self.a))",
        "message": "said instead",
    }
    assert errors([broken], {"a": 4}) == ["spec: Invalid value: said instead"]


def test_an_evaluation_error_names_its_rule() -> None:
    schema = {
        "type": "object",
        "properties": {"m": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    schema["x-kubernetes-validations"] = [{"rule": "self.m['k'] > 0"}]
    assert of_schema(schema, {"m": {}}) == [
        "spec: Invalid value: \"object\": no such key: k evaluating rule: self.m['k'] > 0"
    ]
    either = {"type": "object", "properties": {"p": {"x-kubernetes-int-or-string": True}}}
    either["x-kubernetes-validations"] = [{"rule": "self.p.startsWith('a')", "message": "m"}]
    assert of_schema(either, {"p": 1}) == [
        "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, function or macro "
        "signature for rule: m"
    ]


def test_times_numbers_and_escaped_names_are_what_the_schema_says() -> None:
    properties = {
        "until": {"type": "string", "format": "date-time"},
        "wait": {"type": "string", "format": "duration"},
        "share": {"type": "number"},
        "in": {"type": "integer"},
        "a-b": {"type": "integer"},
        "raw": {"type": "string", "format": "byte"},
    }
    schema: Json = {"type": "object", "properties": properties}
    spec = {
        "until": "2030-01-02T03:04:05Z",
        "wait": "1h",
        "share": 1,
        "in": 1,
        "a-b": 2,
        "raw": "YWI=",
    }
    for rule in (
        "self.until > timestamp('2020-01-01T00:00:00Z') && self.until.getFullYear() == 2030",
        "self.wait == duration('60m')",
        "self.share / 2.0 == 0.5",
        "self.__in__ + self.a__dash__b == 3",
        "size(self.raw) == 2",
    ):
        schema["x-kubernetes-validations"] = [{"rule": rule}]
        assert of_schema(schema, spec) == [], rule


def test_sets_compare_without_order() -> None:
    listed = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    schema: Json = {"type": "object", "properties": {"a": listed, "b": listed}}
    schema["x-kubernetes-validations"] = [
        {"rule": "self.a == self.b && (self.a + self.b).size() == 2"}
    ]
    assert of_schema(schema, {"a": ["x", "y"], "b": ["y", "x"]}) == []


def test_rules_cannot_run_for_ever() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    schema: Json = {"type": "object", "properties": {"l": numbers}}
    schema["x-kubernetes-validations"] = [
        {"rule": "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))"}
    ]
    (error,) = of_schema(schema, {"l": [1] * 200})
    assert "operation cancelled: actual cost limit exceeded" in error


def test_the_root_sees_its_kind_and_its_name() -> None:
    tree = deepcopy(definition())
    schema = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = [
        {"rule": "self.metadata.name.size() < 3 && self.kind == 'Widget' && self.apiVersion != ''"}
    ]
    strategy = custom.kinds_of(tree)[0].strategy
    assert strategy.validate_create({"metadata": {"name": "w"}, "spec": {"a": 1}}) == []
    assert len(strategy.validate_create({"metadata": {"name": "long"}, "spec": {"a": 1}})) == 1


def test_field_paths_go_through_properties_and_maps() -> None:
    schema = {
        "type": "object",
        "properties": {"m": {"type": "object", "additionalProperties": {"type": "string"}}},
    }
    assert rules.field_path(".m['a.b']", schema) == ".m[a.b]"
    assert rules.field_path("['m']", schema) == ".m"
    assert rules.field_path(".m.x.y", schema) is None
