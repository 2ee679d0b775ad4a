"""What every new object gets from the server: a uid, a time, and a name where it came without one."""

from __future__ import annotations

import random
import time

from hekla.api.text.times import stamp

GENERATED = "bcdfghjklmnpqrstvwxz2456789"


def now() -> str:
    """The time as text, made once a second: making it costs more than checking a pod's metadata."""
    return stamp(time.time())


def new_uid() -> str:
    """A random UUID of version 4."""
    bits = f"{random.getrandbits(128):032x}"
    return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{'89ab'[int(bits[16], 16) & 3]}{bits[17:20]}-{bits[20:]}"


_PAIRS = [first + second for first in GENERATED for second in GENERATED]


def random_suffix() -> str:
    """Five random characters that spell no word."""
    number = int(random.random() * (len(_PAIRS) ** 2 * len(GENERATED)))
    number, last = divmod(number, len(GENERATED))
    first, second = divmod(number, len(_PAIRS))
    return _PAIRS[first] + _PAIRS[second] + GENERATED[last]


def generated_name(prefix: str) -> str:
    return prefix[:58] + random_suffix()
