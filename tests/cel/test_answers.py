"""The same expressions as Kubernetes 1.36's own CEL was asked, and its answers: refusals and errors
word for word.

`answers.json` was recorded from that library: the expression, and what compiling it, evaluating it,
or both gave.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hekla.cel.environment import Program, compile_expression
from hekla.cel.errors import Failed, Refused
from hekla.cel.types import DYN, INT, STRING, list_of, map_of

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
TYPES = {
    "self": DYN,
    "oldSelf": DYN,
    "s": STRING,
    "i": INT,
    "l": list_of(INT),
    "m": map_of(STRING, INT),
}
VALUES: dict[str, Any] = {
    "self": {"a": {"b": "v"}, "l": [1, 2]},
    "oldSelf": {},
    "s": "str",
    "i": 3,
    "l": [1, 2],
    "m": {"a": 2},
}


def compiled(expression: str) -> Program:
    return compile_expression(expression, TYPES)


@pytest.mark.parametrize(
    "answer", [row for row in ANSWERS if "compile" in row], ids=lambda row: row["expression"]
)
def test_what_is_refused(answer: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        compiled(answer["expression"])
    assert str(refused.value) == answer["compile"]


@pytest.mark.parametrize(
    "answer", [row for row in ANSWERS if "error" in row], ids=lambda row: row["expression"]
)
def test_what_fails(answer: dict[str, str]) -> None:
    program = compiled(answer["expression"])
    with pytest.raises(Failed) as failed:
        program(VALUES)
    assert str(failed.value) == answer["error"]


@pytest.mark.parametrize(
    "answer", [row for row in ANSWERS if "value" in row], ids=lambda row: row["expression"]
)
def test_what_has_a_value(answer: dict[str, str]) -> None:
    value = compiled(answer["expression"])(VALUES)
    kind, _, shown = answer["value"].partition("|")
    if kind in ("string", "int", "uint"):
        assert str(value) == shown
    elif kind == "bool":
        assert value is (shown == "true")
    elif kind == "double":
        assert float(value) == float(shown)
