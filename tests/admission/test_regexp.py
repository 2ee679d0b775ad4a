"""The RE2 grammar: what compiles, and in which words it says what does not."""

from __future__ import annotations

import pytest

from hekla.admission.rules.regexp import problem


@pytest.mark.parametrize(
    "pattern",
    ["", "node-[0-9]+", "^a.b$", "a{2,5}", "a{,5}", "a{x}", "(?i)rack", "(?P<n>a)(?<m>b)", "(?:a|b)*?", r"\d\pL\p{Greek}\x{10FFFF}",
     "a(?i)*", r"\p{Lu}", r"\x{41}\x41",
     "[]a]", "[^]a]", "[a-]", "[[:alpha:]_]", r"[\d-z]", r"\Qa(b\E", r"a\.b\-c", "a|", "|a", r"\123", "x*?y+?z??"],
)  # fmt: skip
def test_patterns_that_compile(pattern: str):
    assert problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a(b", "missing closing ): `a(b`"),
        ("a)b", "unexpected ): `a)b`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\y", r"invalid escape sequence: `\y`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("+?", "missing argument to repetition operator: `+?`"),
        (r"\p{Nowhere}", r"invalid character class range: `\p{Nowhere}`"),
        (r"[a-\d]", r"invalid escape sequence: `\d`"),
        (r"\x4_", r"invalid escape sequence: `\x4_`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
    ],
)
def test_patterns_that_do_not(pattern: str, text: str):
    assert problem(pattern) == f"error parsing regexp: {text}"
