"""Selectors: what matches, what is written back, and what an unreadable one is answered with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api import meta, selectors
from hekla.api.kubernetes.placement import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from hekla.api.selectors import SelectorError, parse_fields, parse_labels

LABELS = {"app": "web", "tier": "front", "generation": "7", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier=front", True),
        ("app=db", False),
        ("app!=db", True),
        ("absent!=x", True),
        ("absent=", False),
        ("empty=", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("absent in (x)", False),
        ("app notin (db,cache)", True),
        ("absent notin (x)", True),
        ("empty in (,x)", True),
        ("empty in (x,)", True),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! app", False),
        ("generation>5", True),
        ("generation<7", False),
        ("app>5", False),
        ("in in (x)", False),
        ("notin", False),
        ("example.com/app", False),
    ],
)
def test_a_label_selector_chooses(text: str, matches: bool) -> None:
    assert parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=b,", "found '', expected: identifier after ','"),
        (",a=b", "found ',', expected: !, identifier, or 'end of string'"),
        ("x=a(y=b", "found '(', expected: ',' or 'end of string'"),
        ("x==a==b", "found '==', expected: ',' or 'end of string'"),
        ("!x=a", "found '=', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a=(", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "a$=b",
            'unable to parse requirement: <nil>: Invalid value: "a$": name part must consist of alphanumeric characters, '
            "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "a=b_",
            'unable to parse requirement: values[0][a]: Invalid value: "b_": a valid label must be an empty string or consist '
            "of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyValue',  or 'my_value',  or '12345', regex used for validation is "
            "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ],
)
def test_an_unreadable_label_selector_is_answered_in_known_words(text: str, words: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_labels(text)
    assert str(caught.value) == words


def test_an_empty_set_is_one_of_the_empty_value() -> None:
    assert parse_labels("a in ()").matches({"a": ""}) and not parse_labels("a in ()").matches(
        {"a": "b"}
    )
    assert parse_labels("a notin ()").matches({"a": "b"}) and not parse_labels(
        "a notin ()"
    ).matches({"a": ""})


keys = st.from_regex(r"([a-z]{1,5}\.[a-z]{2}/)?[A-Za-z0-9]{1,8}", fullmatch=True)
values = st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True)
requirements = st.one_of(
    st.builds(
        selectors.Requirement,
        keys,
        st.sampled_from([selectors.Operator.IN, selectors.Operator.NOT_IN]),
        st.frozensets(values, min_size=1, max_size=3),
    ),
    st.builds(
        selectors.Requirement,
        keys,
        st.sampled_from([selectors.Operator.EXISTS, selectors.Operator.DOES_NOT_EXIST]),
        st.just(frozenset[str]()),
    ),
    st.builds(
        selectors.Requirement,
        keys,
        st.sampled_from([selectors.Operator.GREATER, selectors.Operator.LESS]),
        st.integers(-100, 100).map(lambda number: frozenset((f"{abs(number)}",))),
    ),
)


@given(st.lists(requirements, max_size=4))
def test_what_is_written_is_read_again(wanted: list[selectors.Requirement]) -> None:
    selector = selectors.LabelSelector(tuple(wanted))
    assert set(parse_labels(str(selector)).requirements) == set(wanted)


def test_an_absent_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.of_object(None).matches(LABELS)
    assert selectors.of_object(meta.LabelSelector()).matches(LABELS)
    assert selectors.of_object(meta.LabelSelector()).everything


def test_labels_and_expressions_of_an_object_must_all_hold() -> None:
    selector = meta.LabelSelector(
        match_labels={"app": "web"},
        match_expressions=[
            meta.LabelSelectorRequirement(key="tier", operator="NotIn", values=["back"])
        ],
    )
    assert selectors.of_object(selector).matches(LABELS)
    assert not selectors.of_object(selector).matches(LABELS | {"tier": "back"})
    assert str(selectors.of_object(selector)) == "app=web,tier!=back"


def test_an_operator_that_does_not_exist_is_named() -> None:
    selector = meta.LabelSelector(
        match_expressions=[meta.LabelSelectorRequirement(key="a", operator="Equals")]
    )
    with pytest.raises(SelectorError, match='"Equals" is not a valid label selector operator'):
        selectors.of_object(selector)


def test_a_node_fits_one_of_the_terms() -> None:
    zone = NodeSelectorTerm(
        match_expressions=[NodeSelectorRequirement(key="zone", operator="In", values=["a", "b"])]
    )
    itself = NodeSelectorTerm(
        match_fields=[NodeSelectorRequirement(key="metadata.name", operator="In", values=["n1"])]
    )

    assert selectors.matches_node(NodeSelector(node_selector_terms=[zone]), "n1", {"zone": "b"})
    assert not selectors.matches_node(NodeSelector(node_selector_terms=[zone]), "n1", {})
    assert selectors.matches_node(NodeSelector(node_selector_terms=[zone, itself]), "n1", {})
    assert not selectors.matches_node(
        NodeSelector(node_selector_terms=[NodeSelectorTerm()]), "n1", {}
    )


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("status.phase=Running", True),
        ("status.phase==Running,spec.nodeName=", True),
        ("status.phase!=Running", False),
        ("spec.nodeName!=n1", True),
        (r"note=a\,b\=c", True),
    ],
)
def test_a_field_selector_chooses(text: str, matches: bool) -> None:
    fields = {"status.phase": "Running", "note": "a,b=c"}
    assert parse_fields(text).matches(lambda field: fields.get(field, "")) is matches
    assert parse_fields(str(parse_fields(text))) == parse_fields(text)


def test_a_field_selector_tells_which_value_it_demands() -> None:
    selector = parse_fields("spec.nodeName=n1,status.phase!=Failed")
    assert selector.exact("spec.nodeName") == "n1"
    assert selector.exact("status.phase") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("status.phase", "invalid selector: 'status.phase'; can't understand 'status.phase'"),
        ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
        (r"a=b\c", r"invalid field selector: invalid escape sequence: \c"),
        ("a=b=c", "invalid field selector: unescaped character in value: ="),
    ],
)
def test_an_unreadable_field_selector_is_answered_in_known_words(text: str, words: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_fields(text)
    assert str(caught.value) == words
