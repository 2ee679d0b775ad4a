"""Quantities in request bodies.

Kubernetes rewrites every quantity when it decodes a body (`1000m` becomes `1`, `1024Mi` becomes
`1Gi`), so that every client reads the same text for the same amount.
"""

from __future__ import annotations

from functools import lru_cache

from hekla.api.text.quantity import LONGEST, Quantity, QuantityError
from hekla.local.apiserver.objects.errors import BadBody

Wire = str | int | float


@lru_cache(maxsize=16384)
def _canonical(value: Wire) -> str:
    return str(Quantity.parse(value))


def canonical(value: Wire) -> str:
    """The canonical text of a quantity, which is stored. Raises BadBody."""
    if type(value) is str:
        if len(value) > LONGEST:
            raise BadBody(
                f"a quantity has at most {LONGEST} characters, this one has {len(value)}",
                code=422,
                reason="Invalid",
            )
        try:
            return _canonical(value.strip())
        except QuantityError as error:
            raise BadBody(error.wire + error.hint) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        raise BadBody(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    try:
        return _canonical(repr(value))
    except QuantityError as error:
        raise BadBody(error.wire) from None


@lru_cache(maxsize=16384)
def amount(text: Wire) -> Quantity:
    """The value of a quantity in canonical form."""
    return Quantity.parse(text)
