"""Quantities against an exact and slow model, and the corners that the model cannot decide."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.text import quantity
from hekla.api.text.quantity import Format, Quantity, QuantityError
from hekla.local.apiserver.objects import amounts
from hekla.local.apiserver.objects.errors import BadBody

POWERS = {
    **{suffix: Fraction(10) ** power for suffix, power in quantity.DECIMAL_SUFFIXES.items()},
    **{suffix: Fraction(2) ** power for suffix, power in quantity.BINARY_SUFFIXES.items()},
}

numbers = st.tuples(
    st.sampled_from(["", "+", "-"]),
    st.one_of(
        st.from_regex(r"[0-9]{1,12}", fullmatch=True),
        st.from_regex(r"[0-9]{1,9}\.[0-9]{0,12}", fullmatch=True),
        st.from_regex(r"\.[0-9]{1,12}", fullmatch=True),
    ),
)
suffixes = st.one_of(
    st.sampled_from(sorted(POWERS)),
    st.tuples(st.sampled_from("eE"), st.integers(-30, 30)).map(lambda pair: f"{pair[0]}{pair[1]}"),
)


def exact(number: str, suffix: str) -> Fraction:
    """What the text says, before anything is rounded."""
    value = Fraction(
        number + "0" if number.endswith(".") else "0" + number if number.startswith(".") else number
    )
    if suffix in POWERS:
        return value * POWERS[suffix]
    return value * Fraction(10) ** int(suffix[1:])


def round_up(value: Fraction) -> int:
    return ceil(abs(value)) * (1 if value >= 0 else -1)


@given(numbers, suffixes)
def test_a_text_means_what_the_exact_model_says(number: tuple[str, str], suffix: str) -> None:
    sign, digits = number
    value = exact(digits, suffix) * (-1 if sign == "-" else 1)
    nanos = round_up(value * 10**9)
    if suffix in quantity.BINARY_SUFFIXES:
        nanos = max(min(nanos, quantity.LARGEST * 10**9), -quantity.LARGEST * 10**9)

    parsed = Quantity.parse(sign + digits + suffix)

    assert parsed.nanos == nanos
    assert (
        parsed.milli() == round_up(Fraction(nanos, 10**6)) == quantity.milli(sign + digits + suffix)
    )
    assert (
        parsed.whole() == round_up(Fraction(nanos, 10**9)) == quantity.whole(sign + digits + suffix)
    )


@given(numbers, suffixes)
def test_the_canonical_form_means_the_same_and_is_a_fixed_point(
    number: tuple[str, str], suffix: str
) -> None:
    parsed = Quantity.parse("".join(number) + suffix)
    text = str(parsed)
    again = Quantity.parse(text)

    assert again.nanos == parsed.nanos
    assert str(again) == text
    assert "." not in text and not text.startswith("+")


@given(
    st.integers(-(10**24), 10**24), st.integers(-(10**24), 10**24), st.sampled_from(list(Format))
)
def test_arithmetic_is_exact(left: int, right: int, format: Format) -> None:
    a, b = Quantity(left, format), Quantity(right)

    assert (a + b).nanos == left + right
    assert (a - b).nanos == left - right
    assert (-a).nanos == -left
    assert (a * 7).nanos == left * 7
    assert (a < b, a == b, a > b) == (left < right, left == right, left > right)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("0.5Gi", "512Mi"),
        (2.5, "2500m"),
        (2, "2"),
        ("2.5", "2500m"),
        ("0", "0"),
        ("-0", "0"),
        ("1500Mi", "1500Mi"),
        ("1023", "1023"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1.5Ki", "1536"),
        ("0.1Ki", "102400m"),
        ("1.1Ki", "1126400m"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1E", "1E"),
        ("12e2", "1200"),
        ("1e-3", "1e-3"),
        ("100n", "100n"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("1000E", "1000E"),
        ("1e21", "1e21"),
        ("100Ei", "9223372036854775807"),
        (".5", "500m"),
        ("5.", "5"),
        ("+3k", "3k"),
        ("1000k", "1M"),
        ("1e-1000", "1e-9"),
    ],
)
def test_what_is_stored(text: quantity.Wire, stored: str) -> None:
    assert quantity.canonical(text) == stored


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", quantity.BAD_FORMAT),
        ("aoeu", quantity.BAD_FORMAT),
        ("1.1.M", quantity.BAD_FORMAT),
        ("1+1.0M", quantity.BAD_FORMAT),
        ("0.1am", quantity.BAD_FORMAT),
        (" 1", quantity.BAD_FORMAT),
        ("1 ", quantity.BAD_FORMAT),
        ("1\n", quantity.BAD_FORMAT),
        ("٣", quantity.BAD_FORMAT),
        ("nan", quantity.BAD_FORMAT),
        (float("inf"), quantity.BAD_FORMAT),
        (".", quantity.BAD_NUMBER),
        ("+", quantity.BAD_NUMBER),
        ("Ki", quantity.BAD_NUMBER),
        ("0.1mi", quantity.BAD_SUFFIX),
        (".5i", quantity.BAD_SUFFIX),
        ("1i", quantity.BAD_SUFFIX),
        ("-3.01e-", quantity.BAD_SUFFIX),
        ("1ki", quantity.BAD_SUFFIX),
        ("1K", quantity.BAD_SUFFIX),
        ("1e999999999999", quantity.BAD_SUFFIX),
    ],
)
def test_a_text_that_is_no_quantity_is_named(text: quantity.Wire, why: str) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity.milli(text)

    assert caught.value.wire == why
    assert str(caught.value) == f"{str(text)!r} is not a quantity: {why}"


def test_a_sum_keeps_the_family_of_its_first_amount_that_is_not_zero() -> None:
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("1Gi") + Quantity.parse("1G")) == "2073741824"
    assert str(Quantity.parse("1Gi") - Quantity.parse("1Gi")) == "0"


def test_resource_lists_add_up() -> None:
    assert quantity.total([{"cpu": "500m", "memory": "1Gi"}, {"cpu": 1, "pods": "1"}]) == {
        "cpu": "1500m",
        "memory": "1Gi",
        "pods": "1",
    }


def test_equal_amounts_are_one_key() -> None:
    assert {Quantity.parse("1000m"): "a"}[Quantity.parse("1")] == "a"


def test_asking_again_for_a_text_costs_no_parsing() -> None:
    quantity.milli.cache_clear()
    for _ in range(10):
        quantity.milli("250m")
    assert quantity.milli.cache_info().hits == 9


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000_000,
        "0." + "1" * 1_000_000,
        "1e" + "9" * 100_000,
        "9" * 5000 + "Gi",
        "-" + "1" * 1000,
    ],
    ids=["digits", "fraction", "exponent", "binary", "one too many"],
)
def test_numbers_without_end_are_no_quantities(text: str):
    with pytest.raises(quantity.QuantityError) as refused:
        quantity.milli(text)
    assert len(str(refused.value)) < 300
    with pytest.raises(BadBody) as answered:
        amounts.canonical(text)
    assert answered.value.code == 422


def test_the_longest_quantity_can_be_written_again():
    text = "9" * 999 + "E"
    assert quantity.canonical(text) == text
