"""CEL rules as far as they are known: what holds, what fails, and that nothing unknown is guessed at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import crds
from hekla.local.apiserver.objects import custom, rules
from tests.apiserver_objects.test_custom import definition


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("self.a <= self.b", {"a": 1, "b": 2}, True),
        ("has(self.a) || has(self.b)", {"b": 1}, True),
        ("(has(self.a) ? 1 : 0) + (has(self.b) ? 1 : 0) <= 1", {"a": 1, "b": 1}, False),
        ("self.l.all(x, x > 0) && size(self.l) == 2", {"l": [1, 2]}, True),
        ("self.l.exists(x, x.name == 'b')", {"l": [{"name": "a"}, {"name": "b"}]}, True),
        ("self.s.startsWith(\"a\") && self.s.matches('^a+$') && self.s.size() == 2", {"s": "aa"}, True),
        ("!(self.s in ['x', 'y'])", {"s": "x"}, False),
        ("1 + 2 * 3 == 7 && -7 / 2 == -3 && -7 % 2 == -1", {}, True),
        ("self['k'] == true", {"k": True}, True),
        ("1 == true", {}, False),
    ],
)
def test_rules_hold_or_not(rule: str, value: Any, holds: bool) -> None:
    evaluate = rules.compiled(rule)
    assert evaluate is not None
    assert evaluate({"self": value}) is holds


DEEP = "(" * 200 + "1" + ")" * 200


@pytest.mark.parametrize("rule", ["quantity(self.x).isInteger()", "self.x.?y", "self.map(x, x)", "self.x +", "a ? b", DEEP])
def test_what_is_not_known_is_not_guessed_at(rule: str) -> None:
    assert rules.compiled(rule) is None


@given(
    st.text(alphabet="self.ab()[]!&|=<>?:+-*/%, 12'\"", max_size=30),
    st.recursive(st.integers() | st.booleans(), st.lists, max_leaves=3),
)
def test_any_text_is_a_rule_or_none(rule: str, value: Any) -> None:
    evaluate = rules.compiled(rule)
    if evaluate is not None:
        try:
            evaluate({"self": value})
        except rules.Failed:
            pass


def errors(validations: list[dict[str, Any]], spec: Any, old: Any = None) -> list[str]:
    tree = definition()
    schema = tree["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {**schema["properties"]["spec"], "x-kubernetes-validations": validations}
    strategy = custom.kinds_of(tree)[0].strategy
    new = {"metadata": {"name": "w"}, "spec": spec}
    found = strategy.validate_create(new) if old is None else strategy.validate_update(new, {"metadata": {"name": "w"}, "spec": old})
    return [f"{error.field}: {error.text}" for error in found]


def test_a_rule_speaks_with_its_own_message_reason_and_path() -> None:
    assert errors([{"rule": "self.a < 3", "message": "a is small"}], {"a": 4}) == ["spec: Invalid value: a is small"]
    assert errors([{"rule": "self.a < 3"}], {"a": 4}) == ["spec: Invalid value: failed rule: self.a < 3"]
    forbidden = {"rule": "self.e != 'y'", "message": "e is y", "reason": "FieldValueForbidden", "fieldPath": ".e"}
    assert errors([forbidden], {"a": 1, "e": "y"}) == ["spec.e: Forbidden: e is y"]


def test_transition_rules_wait_for_an_old_value() -> None:
    frozen = [{"rule": "self.a == oldSelf.a", "message": "a is frozen"}]
    assert errors(frozen, {"a": 1}) == []
    assert errors(frozen, {"a": 2}, {"a": 1}) == ["spec: Invalid value: a is frozen"]
    assert errors(frozen, {"a": 1, "b": "x"}, {"a": 1}) == []


def test_rules_are_not_asked_of_what_does_not_fit_the_schema() -> None:
    assert errors([{"rule": "self.a < 3"}], {"a": "x"})[-1].startswith("<nil>: Invalid value: null: some validation rules were not checked")


def test_the_rules_of_our_own_definitions_are_all_known() -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for rule in node.get("x-kubernetes-validations") or ():
                assert rules.compiled(rule["rule"]) is not None
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    for tree in crds.all():
        walk(tree)
