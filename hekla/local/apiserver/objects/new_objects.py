"""What the server gives every new object: a uid, a creation time, and a name if it has only a
generateName."""

from __future__ import annotations

import random
import time

from hekla.api.text.times import stamp

SUFFIX_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"


def now() -> str:
    """The current time as RFC 3339 text. Made once a second, because formatting costs more than
    validating a pod's metadata."""
    return stamp(time.time())


def new_uid() -> str:
    """A random UUID of version 4."""
    bits = f"{random.getrandbits(128):032x}"
    return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-{'89ab'[int(bits[16], 16) & 3]}{bits[17:20]}-{bits[20:]}"


_PAIRS = [first + second for first in SUFFIX_CHARACTERS for second in SUFFIX_CHARACTERS]


def random_suffix() -> str:
    """Five random characters without vowels, so that they spell no word."""
    number = int(random.random() * (len(_PAIRS) ** 2 * len(SUFFIX_CHARACTERS)))
    number, last = divmod(number, len(SUFFIX_CHARACTERS))
    first, second = divmod(number, len(_PAIRS))
    return _PAIRS[first] + _PAIRS[second] + SUFFIX_CHARACTERS[last]


def generated_name(prefix: str) -> str:
    """A name from metadata.generateName, as Kubernetes makes it: at most 63 characters."""
    return prefix[:58] + random_suffix()
