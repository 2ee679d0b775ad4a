"""Go's texts: errors of its JSON decoder and its formats of values, recorded from a real API
server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.apiserver.objects.encoding.go_text import (
    printed,
    quoted,
    syntax_error,
    type_of,
    written,
)
from hekla.local.apiserver.objects.merging.restored import misfit


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"nonsense", "invalid character 'o' in literal null (expecting 'u')"),
        (b"", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (b"{} {}", "invalid character '{' after top-level value"),
        (b'{"a":1.}', "invalid character '}' after decimal point in numeric literal"),
        (b'{"a":-}', "invalid character '}' in numeric literal"),
        (b'{"a":1e}', "invalid character '}' in exponent of numeric literal"),
        (b'{"a":"\\x"}', "invalid character 'x' in string escape code"),
        (b'"\\u00g0"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b'{"a":"\x01"}', "invalid character '\\x01' in string literal"),
        (b"\x9e", "invalid character '\\u009e' looking for beginning of value"),
        (b"'", "invalid character '\\'' looking for beginning of value"),
        (b"[" * 10_001, "exceeded max depth"),
    ],
)
def test_a_text_that_is_no_json(text: bytes, words: str) -> None:
    assert syntax_error(text) == words


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(TREES, st.sampled_from([None, 1]))
def test_valid_json_has_no_syntax_error(tree: object, indent: int | None) -> None:
    assert syntax_error(json.dumps(tree, indent=indent).encode()) is None


@given(st.binary(max_size=30))
def test_whatever_is_no_json_has_something_wrong(text: bytes) -> None:
    try:
        json.loads(text.decode("latin-1"), parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert syntax_error(text) is not None
    else:
        assert syntax_error(text) is None


def test_values_are_printed_as_go_prints_them() -> None:
    tree = {"b": [1, None, True], "a": "x"}
    assert printed(tree) == "map[a:x b:[1 <nil> true]]"
    assert (
        written(tree)
        == 'map[string]interface {}{"a":"x", "b":[]interface {}{1, interface {}(nil), true}}'
    )
    assert quoted('a"b\\\x00\n\u0085ä') == r'"a\"b\\\x00\n\u0085ä"'
    assert [type_of(value) for value in ("x", 1, 1.5, True, [], {}, None)] == [
        "string",
        "int64",
        "float64",
        "bool",
        "[]interface {}",
        "map[string]interface {}",
        "<nil>",
    ]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"spec": "x"}, "cannot restore struct from: string"),
        ({"spec": {"containers": {"a": "b"}}}, "cannot restore slice from map"),
        ({"spec": {"nodeSelector": [1]}}, "cannot restore map from slice"),
        ({"spec": {"nodeName": 1}}, "cannot convert int64 to string"),
        ({"spec": {"restartPolicy": 1}}, "cannot convert int64 to v1.RestartPolicy"),
        ({"spec": {"nodeName": ["x"]}}, "unrecognized type: string"),
        ({"spec": {"priority": "x"}}, "unrecognized type: int32"),
        ({"spec": {"priority": 1.5}}, "cannot convert float64 to int32"),
        ({"spec": {"nodeName": "n"}}, None),
    ],
)
def test_what_does_not_fit_a_go_struct(changed: dict[str, object], words: str | None) -> None:
    assert misfit({"metadata": {"name": "a"}, **changed}, "", "v1", "Pod") == words
