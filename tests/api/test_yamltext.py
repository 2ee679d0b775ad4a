"""YAML of people: small files stay small, and every failure is one that callers know."""

from __future__ import annotations

import pytest
import yaml

from hekla.api.text import yamltext

LAUGHS = "a0: &a0 [lol, lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


def test_aliases_that_people_write_are_read() -> None:
    text = "base: &base {image: busybox, env: [{name: A, value: b}]}\none: *base\ntwo: {<<: *base, image: other}\n"
    tree = yamltext.load(text)
    assert tree["one"] == tree["base"]
    assert tree["two"]["image"] == "other"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAUGHS, "line 6: its aliases stand for more than any object may hold"),
        (
            "text: &t " + "x" * 100_000 + "\nmany: [" + ", ".join(["*t"] * 1000) + "]",
            "its aliases stand for more",
        ),
        ("a: &a [*a]", r"\*a stands in what it stands for"),
        ("a: *b", "undefined alias .*b"),
        ("[" * 3000 + "]" * 3000, "nested too deeply"),
        ("a: 2020-99-99", "a value cannot be read"),
        ("a: " + "9" * 10_000, "a value cannot be read"),
        ("a: [", "did not find expected"),
    ],
    ids=[
        "powers",
        "a long text",
        "a circle",
        "nothing",
        "a deep nest",
        "no date",
        "a number without end",
        "no end",
    ],
)
def test_what_would_grow_or_cannot_be_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(yaml.YAMLError, match=why):
        yamltext.load(text)
