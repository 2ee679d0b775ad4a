"""Lengths of time as Go prints and reads them: `1h2m3.5s`."""

from __future__ import annotations

_UNITS = (
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
)


def duration_text(nanoseconds: int) -> str:
    """Go's text of a duration: `1h2m3.5s`, `1.5ms`, `0s`."""
    if not nanoseconds:
        return "0s"
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left < 1_000_000_000:
        unit, size = (
            ("ms", 1_000_000) if left >= 1_000_000 else ("µs", 1000) if left >= 1000 else ("ns", 1)
        )
        return sign + _decimal(left, size) + unit
    text = sign
    hours, left = divmod(left, 3_600_000_000_000)
    minutes, left = divmod(left, 60_000_000_000)
    if hours:
        text += f"{hours}h"
    if hours or minutes:
        text += f"{minutes}m"
    return text + _decimal(left, 1_000_000_000) + "s"


def _decimal(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    return (
        str(whole)
        if not rest
        else f"{whole}.{str(rest).rjust(len(str(size)) - 1, '0').rstrip('0')}"
    )


def duration_nanoseconds(text: str) -> int:
    """The inverse of `duration_text`."""
    total, number = 0, ""
    rest = text.lstrip("-+")
    while rest:
        number = rest[: len(rest) - len(rest.lstrip("0123456789."))]
        rest = rest[len(number) :]
        unit = rest[: len(rest) - len(rest.lstrip("hmnsuµ"))]
        rest = rest[len(unit) :]
        size = dict(_UNITS)[unit.replace("µ", "u")]
        whole, _, fraction = number.partition(".")
        total += int(whole or 0) * size + (
            int(fraction) * size // 10 ** len(fraction) if fraction else 0
        )
    return -total if text.startswith("-") else total
