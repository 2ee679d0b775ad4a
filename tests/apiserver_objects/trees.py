"""Random bodies: right in type and wild in value, or wrong in type too."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from hekla.local.apiserver.objects.encoding import fields

TEXT = st.text(max_size=8) | st.sampled_from(
    ["a", "a.b/c", "In", "Exists", "Always", "None", "1", "100m", "-1", "http", "x" * 70]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 3),
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 3),
    "double": st.integers(-1000, 1000),
    "bytes": st.sampled_from(["", "aGk=", "e30="]),
    "Time": st.just("2024-05-06T07:08:09Z"),
    "MicroTime": st.just("2024-05-06T07:08:09.000012Z"),
    "Quantity": st.sampled_from(["1", "100m", "2Gi", "-1", "0", "1e3", 3]),
    "IntOrString": st.integers(-2, 100) | st.sampled_from(["25%", "http", "", "x%"]),
    "Duration": st.just("1s"),
    "ExtraValue": st.lists(TEXT, max_size=2),
    "RawExtension": st.dictionaries(TEXT, st.integers(), max_size=2),
    "JSON": st.integers() | TEXT | st.none(),
}
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@cache
def body(
    section: str, name: str, depth: int = 0, junk: bool = False
) -> st.SearchStrategy[dict[str, Any]]:
    described = fields.message(section, name)
    assert described is not None
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field, owner in fields.flat(described):
        inner = fields.message(owner.section, field.type)
        if field.type in VALUES:
            one = VALUES[field.type]
        elif inner is None or depth > 5:
            continue
        else:
            one = st.deferred(lambda inner=inner: body(inner.section, inner.name, depth + 1, junk))
        if field.many == "list":
            one = st.lists(one, max_size=2)
        elif field.many == "map":
            one = st.dictionaries(TEXT, one, max_size=2)
        parts[field.name] = one | JUNK if junk else one
    return _some(parts)


def _some(parts: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the fields, so that trees stay small and every field has its turn."""
    if not parts:
        return st.just({})
    names = st.lists(st.sampled_from(sorted(parts)), max_size=5, unique=True)
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries({name: parts[name] for name in chosen})
    )
