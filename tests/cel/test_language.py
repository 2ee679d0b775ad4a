"""What CEL means: values, errors that are absorbed, and bounds that hold whatever is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.cel.devices import Selector, Unusable
from hekla.cel.environment import compile_expression
from hekla.cel.errors import Failed, Refused, TooCostly
from hekla.cel.schema import declared, escaped, unescaped
from hekla.cel.types import DYN
from hekla.cel.values import Duration, Timestamp


def run(expression: str, **values: Any) -> Any:
    return compile_expression(expression, dict.fromkeys(values, DYN))(values)


WHOLE = st.integers(min_value=-(2**63), max_value=2**63 - 1)


@given(WHOLE, WHOLE)
def test_whole_numbers_are_of_64_bits(a: int, b: int) -> None:
    for sign, exact in (("+", a + b), ("-", a - b), ("*", a * b)):
        if -(2**63) <= exact < 2**63:
            assert run(f"a {sign} b", a=a, b=b) == exact
        else:
            with pytest.raises(Failed, match="integer overflow"):
                run(f"a {sign} b", a=a, b=b)
    if b:
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        if quotient < 2**63:
            assert run("a / b", a=a, b=b) == quotient
            assert run("(a / b) * b + a % b", a=a, b=b) == a


@given(
    st.recursive(
        st.none() | st.booleans() | WHOLE | st.text(max_size=5),
        lambda one: st.lists(one, max_size=4),
        max_leaves=8,
    )
)
def test_everything_is_equal_to_itself_and_found_in_its_list(value: Any) -> None:
    assert (
        run("v == v && v in [v] && [v].exists(x, x == v) && [v].indexOf(v) == 0", v=value) is True
    )


@given(st.lists(st.integers(-100, 100)))
def test_lists(items: list[int]) -> None:
    assert run("l.sort()", l=items) == sorted(items)
    assert run("l.sort().isSorted()", l=items) is True
    assert run("l.map(x, x * 2).filter(x, x > 0)", l=items) == [
        item * 2 for item in items if item > 0
    ]
    assert run("l.reverse().reverse() == l", l=items) is True
    assert run("sets.equivalent(l, l.distinct())", l=items) is True


@given(st.text(), st.text(min_size=1, max_size=3))
def test_texts_split_and_join(text: str, part: str) -> None:
    assert run("t.split(p).join(p) == t", t=text, p=part) is True
    assert run("t.contains(p) == (t.indexOf(p) >= 0)", t=text, p=part) is True


@given(st.text(alphabet="self.ab()[]{}!&|=<>?:+-*/%, 12'\"\\\nrxo", max_size=40))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        program = compile_expression(text, {"self": DYN, "a": DYN})
    except Refused:
        return
    try:
        program({"self": {"a": [1, {"b": "x"}]}, "a": "a"})
    except Failed:
        pass


@given(st.text(max_size=12))
def test_escaped_names_come_back(name: str) -> None:
    shown = escaped(name)
    if shown is not None:
        assert unescaped(shown) == name


@given(st.integers(-(2**62), 2**62))
def test_spans_are_read_as_they_are_written(ns: int) -> None:
    assert Duration.read(str(Duration(ns))) == Duration(ns)


@given(st.datetimes())
def test_moments_are_read_as_they_are_written(when: Any) -> None:
    text = when.isoformat() + "Z"
    assert Timestamp.read(str(Timestamp.read(text))) == Timestamp.read(text)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 / 0 > 0 || true", True), ("true || 1 / 0 > 0", True), ("false && 1 / 0 > 0", False), ("1 / 0 > 0 && false", False),
        ("[1, 0].exists(x, 1 / x > 0)", True), ("[1, 0].all(x, 1 / x > 5)", False), ("true ? 1 : 1 / 0", 1),
        ("has({'a': 1}.b)", False), ("{'a': {'b': 1}}.?a.?b.orValue(2)", 1), ("{'a': 1}.?b.optMap(x, x + 1).orValue(7)", 7),
        ("dyn(1) == 1.0 && dyn(1u) == 1", True), ("dyn('1') == dyn(1)", False), ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v)", {"b": 2}),
    ],
)  # fmt: skip
def test_errors_are_absorbed_where_they_decide_nothing(expression: str, value: Any) -> None:
    assert run(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "l.all(a, l.all(b, l.all(c, l.all(d, true))))",
        "lists.range(100000000).size() > 0",
        "l.map(a, l.map(b, l.map(c, l))).size() > 0",
        "[1].all(x, l.exists(a, l.exists(b, l.exists(c, false)))) || true",
        "l.all(a, l.all(b, t.split('x').size() > 0))",
        "l.all(a, l.all(b, l == [b] || true))",
        "t.replace('', t).replace('', t).replace('', t).size() > 0",
    ],
)
def test_nothing_runs_for_ever(expression: str) -> None:
    with pytest.raises(TooCostly):
        run(expression, l=list(range(300)), t="x" * 3000)


@pytest.mark.parametrize(
    "expression",
    ["a" + " + a" * 3000 + " == a", "a" + ".b" * 3000 + " == a", "a" + "[0]" * 3000 + " == a"],
)
def test_long_chains_are_refused_or_end(expression: str) -> None:
    try:
        run(expression, a=1)
    except (Refused, Failed):
        pass


def test_a_pattern_cannot_be_slow() -> None:
    assert run("t.matches('^(a+)+$')", t="a" * 5000 + "b") is False


def test_null_fields_are_absent_and_objects_know_their_fields() -> None:
    kind = declared(
        {
            "type": "object",
            "properties": {"a": {"type": "string", "nullable": True}, "b": {"type": "integer"}},
        }
    )
    assert kind is not None
    program = compile_expression("has(self.a) ? self.a : 'none'", {"self": kind})
    assert program({"self": {"a": None}}) == "none" and program({"self": {"a": "x"}}) == "x"
    with pytest.raises(Refused, match="undefined field 'c'"):
        compile_expression("self.c == 1", {"self": kind})


DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "model": {"string": "big"},
        "other.example.com/index": {"int": 3},
        "driverVersion": {"version": "1.2.3"},
    },
    "capacity": {"memory": {"value": "16Gi"}},
}


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("device.driver == 'gpu.example.com'", True),
        ("device.attributes['gpu.example.com'].model == 'big'", True),
        ("device.attributes['other.example.com'].index > 2", True),
        ("device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('1.2.0'))", True),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('8Gi')) > 0", True),
        ("has(device.attributes['nobody.example.com'].model)", False),
        ("cel.bind(own, device.attributes['gpu.example.com'], own.model == 'small')", False),
    ],
)
def test_selectors_of_devices(selector: str, wanted: bool) -> None:
    assert Selector(selector).matches("gpu.example.com", DEVICE) is wanted


def test_a_selector_that_reads_what_is_not_there_fails() -> None:
    with pytest.raises(Failed, match="no such key: speed"):
        Selector("device.attributes['gpu.example.com'].speed > 1").matches(
            "gpu.example.com", DEVICE
        )
    with pytest.raises(Unusable, match="undefined field 'nope'"):
        Selector("device.nope == 'x'")
    with pytest.raises(Unusable, match="must evaluate to bool or the unknown type, not string"):
        Selector("device.driver")
