"""Bandwidths as text.  Reference: agent 9.3."""

from __future__ import annotations

import re

FACTORS: dict[str, int] = {
    "": 1000,
    **{f"{letter}bps": 10 ** (3 * power) for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}ibps": 2 ** (10 * power) for power, letter in enumerate("KMGT", 1)},
}
"""Unit -> bits per second."""
EXPECTED = "only support positive integer with unit like Kbps, Mbps, Gbps, Tbps"
UNSIGNED_64 = 2**64 - 1


def unsigned(text: str) -> int:
    """A decimal number of 64 bits.  Raises ValueError, in the words of Go's strconv."""
    if not re.fullmatch("[0-9]+", text):
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if int(text) > UNSIGNED_64:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def bytes_per_second(text: str) -> int:
    """The bandwidth that a text such as `100Mbps` means, in bytes per second.  Raises ValueError."""
    letter = re.search("[A-Za-z]", text)
    split = letter.start() if letter else len(text)
    try:
        amount = unsigned(text[:split])
    except ValueError as error:
        raise ValueError(f"size string {text} is illegal, {EXPECTED}: {error}") from None
    factor = FACTORS.get(text[split:])
    if factor is None:
        raise ValueError(f"size {text} is illegal, {EXPECTED}")
    return amount * factor // 8
