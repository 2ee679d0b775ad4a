"""Structural schemas of custom kinds, compiled: pruning, defaulting and the check whether an object
is valid.

A definition is compiled once into closures that walk the keys of the object, not those of the
schema, because schemas with pod templates have thousands of fields and objects a few dozen. The
check builds no paths and no messages; `explain` (schema_errors.py) finds out what is wrong.
Reference: local-cluster 4.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Sequence
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address, ip_interface
from typing import Any, Protocol

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.objects.hashable import hashable, hashables

Pruner = Callable[[Any], Sequence[str]]
Defaulter = Callable[[Any], None]
Checker = Callable[[Any], bool]

IMPLICIT = frozenset({"apiVersion", "kind", "metadata"})
NUMBERS = (int, float)
MAX_CACHED_TEXT_LENGTH, MAX_CACHED_TEXTS = 64, 256
"""Characters of a text, and texts of each pattern."""
INT_OR_STRING_CHOICES = [{"type": "integer"}, {"type": "string"}]
WHOLE_OBJECT_KEYWORDS = (
    "enum",
    "nullable",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "x-kubernetes-embedded-resource",
)
"""Keywords that restrict an object as a whole, not one of its fields."""


# --- pruning --------------------------------------------------------------------------------------


def pruner(schema: Json, *, root: bool = False) -> Pruner | None:
    """A function that drops fields which the schema does not declare, and nulls where the schema
    allows none; None if nothing can be dropped.

    The function returns the paths of what it dropped, relative to the value. Nearly always it drops
    nothing, and then builds no path.
    """
    if (
        "properties" not in schema
        and "additionalProperties" not in schema
        and "items" not in schema
    ):
        if schema.get("type") != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
            return None
        kept = IMPLICIT if root or schema.get("x-kubernetes-embedded-resource") else frozenset()
        return _object_pruner({}, frozenset(), None, False, False, kept)
    items = schema.get("items")
    if isinstance(items, dict):
        return _list_pruner(pruner(items))
    properties: Json = schema.get("properties") or {}
    inner = {
        name: pruner(below) for name, below in properties.items() if not (root and name in IMPLICIT)
    }
    nullable = frozenset(name for name, below in properties.items() if below.get("nullable"))
    additional = schema.get("additionalProperties")
    kept = IMPLICIT if root or schema.get("x-kubernetes-embedded-resource") else frozenset()
    return _object_pruner(
        inner,
        nullable,
        pruner(additional) if isinstance(additional, dict) else None,
        additional is not None and additional is not False,
        bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        kept,
    )


def _object_pruner(
    inner: dict[str, Pruner | None],
    nullable: frozenset[str],
    additional: Pruner | None,
    open_ended: bool,
    preserve: bool,
    kept: frozenset[str],
) -> Pruner:
    def prune(value: Any) -> Sequence[str]:
        if type(value) is not dict:
            return ()
        gone: list[str] = []
        dropped: list[str] = []
        for key, item in value.items():
            if key in kept:
                continue
            if key in inner:
                if item is None:
                    if key not in nullable:
                        gone.append(key)
                    continue
                below = inner[key]
            elif open_ended:
                below = None if item is None else additional
            elif preserve:
                continue
            else:
                gone.append(key)
                dropped.append(f".{key}")
                continue
            if below is not None and (lost := below(item)):
                dropped += [f".{key}{path}" for path in lost]
        for key in gone:
            del value[key]
        return dropped

    return prune


def _list_pruner(below: Pruner | None) -> Pruner | None:
    if below is None:
        return None

    def prune(value: Any) -> Sequence[str]:
        if type(value) is not list:
            return ()
        lost = [below(item) for item in value]
        return (
            [f"[{position}]{path}" for position, paths in enumerate(lost) for path in paths]
            if any(lost)
            else ()
        )

    return prune


# --- defaulting -----------------------------------------------------------------------------------


def defaulter(schema: Json, *, root: bool = False) -> Defaulter | None:
    """A function that fills in defaults at all levels of an object; None if the schema has none."""
    items = schema.get("items")
    if isinstance(items, dict):
        below = defaulter(items)
        return None if below is None else _each_item(below)
    additional = schema.get("additionalProperties")
    values = defaulter(additional) if isinstance(additional, dict) else None
    plan: list[tuple[str, bool, Any, Defaulter | None]] = []
    for name, inner in (schema.get("properties") or {}).items():
        if root and name in IMPLICIT:
            continue
        below = defaulter(inner)
        if "default" in inner or below is not None:
            plan.append((name, "default" in inner, inner.get("default"), below))
    if not plan and values is None:
        return None
    return _fill(tuple(plan), values)


def _fill(
    plan: tuple[tuple[str, bool, Any, Defaulter | None], ...], values: Defaulter | None
) -> Defaulter:
    def fill(tree: Any) -> None:
        if type(tree) is not dict:
            return
        for name, has_default, default, below in plan:
            if name in tree:
                if below is not None:
                    below(tree[name])
            elif has_default:
                tree[name] = _copied(default)
                if below is not None:
                    below(tree[name])
        if values is not None:
            for value in tree.values():
                values(value)

    return fill


def _each_item(below: Defaulter) -> Defaulter:
    def fill(value: Any) -> None:
        if type(value) is list:
            for item in value:
                below(item)

    return fill


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


# --- validity -------------------------------------------------------------------------------------


def checker(schema: Json, *, root: bool = False) -> Checker | None:
    """A function that says whether a value fits the schema; None if every value does. It does not
    evaluate CEL rules."""
    junctors = [] if _repeats_int_or_string(schema) else _junctor_checks(schema)
    tests = [test for test in (_type_check(schema, root), *junctors) if test is not None]
    if "enum" in schema:
        tests.append(_enum_check(schema["enum"]))
    if not tests:
        return None
    nullable = bool(schema.get("nullable"))
    if len(tests) == 1 and not nullable:
        return tests[0]

    def check(value: Any) -> bool:
        if value is None and nullable:
            return True
        return all(test(value) for test in tests)

    return check


def _repeats_int_or_string(schema: Json) -> bool:
    """Whether a schema has `x-kubernetes-int-or-string` and the same restriction once more as
    anyOf, as quantities do."""
    junctors = [name for name in ("allOf", "anyOf", "oneOf", "not") if schema.get(name)]
    return (
        bool(schema.get("x-kubernetes-int-or-string"))
        and junctors == ["anyOf"]
        and schema["anyOf"] == INT_OR_STRING_CHOICES
    )


class ChangeChecker(Protocol):
    """Whether the new state of an object is valid, given a valid old one."""

    def __call__(self, new: Json, old: Json, kept: Collection[str] = ()) -> bool: ...


def change_checker(schema: Json) -> ChangeChecker | None:
    """A function that checks only what an update changes: unchanged parts are skipped, as `explain`
    forgives them too. `kept` names fields that are neither in new nor in old because the update
    leaves them alone. None if the schema restricts the object as a whole by more than types and
    required fields."""
    if (
        schema.get("type") != "object"
        or any(schema.get(keyword) for keyword in WHOLE_OBJECT_KEYWORDS)
        or _junctor_checks(schema)
    ):
        return None
    required = tuple(name for name in schema.get("required") or () if name not in IMPLICIT)
    parts = {
        name: test
        for name, inner in (schema.get("properties") or {}).items()
        if name not in IMPLICIT and (test := checker(inner)) is not None
    }

    def check(new: Json, old: Json, kept: Collection[str] = ()) -> bool:
        for name in required:
            if name not in new and name not in kept:
                return False
        for name, test in parts.items():
            if name not in new:
                continue
            value, before = new[name], old.get(name)
            same = value is before or (type(value) is type(before) and value == before)
            if not (same and name in old) and not test(value):
                return False
        return True

    return check


def _type_check(schema: Json, root: bool) -> Checker | None:
    if schema.get("x-kubernetes-int-or-string"):
        text, number = _string_check(schema), _number_check(schema, integer=True)

        def either(value: Any) -> bool:
            return text(value) if type(value) is str else number(value)

        return either
    kind = schema.get("type")
    if kind == "object":
        return _object_check(schema, root)
    if kind == "array":
        return _array_check(schema)
    if kind == "string":
        return _string_check(schema)
    if kind in ("integer", "number"):
        return _number_check(schema, integer=kind == "integer")
    if kind == "boolean":
        return lambda value: type(value) is bool
    if schema.get("properties") or schema.get("items"):
        loose = _object_check(schema, root)
        return lambda value: type(value) is not dict or loose(value)
    return None


def _object_check(schema: Json, root: bool) -> Checker:
    required = tuple(
        name for name in schema.get("required") or () if not (root and name in IMPLICIT)
    )
    children = {
        name: test
        for name, inner in (schema.get("properties") or {}).items()
        if not (root and name in IMPLICIT) and (test := checker(inner)) is not None
    }
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    other = checker(additional) if isinstance(additional, dict) else None
    least, most = schema.get("minProperties") or 0, schema.get("maxProperties")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name in required:
            if name not in value:
                return False
        for key, item in value.items():
            test = children.get(key)
            if test is not None:
                if not test(item):
                    return False
            elif other is not None and key not in properties and not other(item):
                return False
        if least > len(value) or (most is not None and len(value) > most):
            return False
        return not embedded or bool(value.get("apiVersion") and value.get("kind"))

    return check


def _array_check(schema: Json) -> Checker:
    items = schema.get("items")
    test = checker(items) if isinstance(items, dict) else None
    least, most = schema.get("minItems") or 0, schema.get("maxItems")
    unique = schema.get("x-kubernetes-list-type") in ("map", "set")

    def check(value: Any) -> bool:
        if type(value) is not list:
            return False
        if least > len(value) or (most is not None and len(value) > most):
            return False
        if test is not None:
            for item in value:
                if not test(item):
                    return False
        return not unique or len(value) < 2 or not duplicates(schema, value)

    return check


def duplicates(schema: Json, value: list[Any]) -> list[tuple[int, Any]]:
    """Elements that repeat an earlier one in a list of type map or set: (position, the repeated key
    or value)."""
    keys = (
        schema.get("x-kubernetes-list-map-keys")
        if schema.get("x-kubernetes-list-type") == "map"
        else None
    )
    properties = (schema.get("items") or {}).get("properties") or {}
    seen: set[Hashable] = set()
    duplicates = []
    for position, item in enumerate(value):
        if keys is None:
            shown, known_by = item, hashable(item)
        elif isinstance(item, dict):
            shown = {key: item.get(key, (properties.get(key) or {}).get("default")) for key in keys}
            known_by = tuple(map(hashable, shown.values()))
        else:
            continue
        if known_by in seen:
            duplicates.append((position, shown))
        seen.add(known_by)
    return duplicates


def _string_check(schema: Json) -> Checker:
    least, most = schema.get("minLength") or 0, schema.get("maxLength")
    pattern = (
        cached_match(compiled_pattern(schema["pattern"]).search) if schema.get("pattern") else None
    )
    form = FORMATS.get(schema.get("format") or "")
    if not least and most is None and pattern is None and form is None:
        return lambda value: type(value) is str

    def check(value: Any) -> bool:
        if type(value) is not str or len(value) < least or (most is not None and len(value) > most):
            return False
        if pattern is not None and not pattern(value):
            return False
        return form is None or form(value)

    return check


def cached_match(search: Callable[[str], Any]) -> Checker:
    """Whether a text matches a pattern. Short texts such as `100m` or `1Gi` come again and again
    and a search by RE2 takes 20 µs, so their results are cached."""
    known: BoundedCache[str, bool] = BoundedCache(MAX_CACHED_TEXTS)

    def fits(text: str) -> bool:
        answer = known.get(text)
        if answer is None:
            answer = search(text) is not None
            if len(text) <= MAX_CACHED_TEXT_LENGTH:
                known[text] = answer
        return answer

    return fits


def compiled_pattern(pattern: str) -> Any:
    """A compiled RE2 pattern; a search takes time linear in the text. Raises ValueError with Go's
    message."""
    from hekla.cel.errors import Failed
    from hekla.cel.library import regex

    try:
        return regex.pattern(pattern)
    except Failed as error:
        raise ValueError(str(error)) from None


def _number_check(schema: Json, *, integer: bool) -> Checker:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    above, below = bool(schema.get("exclusiveMinimum")), bool(schema.get("exclusiveMaximum"))
    small = schema.get("format") == "int32"

    def check(value: Any) -> bool:
        if type(value) is not int and (
            type(value) is not float or (integer and not value.is_integer())
        ):
            return False
        if low is not None and (value <= low if above else value < low):
            return False
        if high is not None and (value >= high if below else value > high):
            return False
        if small and not -(2**31) <= value < 2**31:
            return False
        return step is None or is_multiple(value, step)

    return check


def is_multiple(value: float, step: float) -> bool:
    """Whether a number is a multiple of another, as `multipleOf` demands."""
    quotient = value / step
    return quotient == round(quotient)


def _enum_check(allowed: list[Any]) -> Checker:
    texts = frozenset(item for item in allowed if isinstance(item, str))
    if len(texts) == len(allowed):
        return lambda value: type(value) is str and value in texts
    kinds = {
        kind: hashables([item for item in allowed if type(item) is kind])
        for kind in {type(item) for item in allowed}
    }
    return lambda value: hashable(value) in kinds.get(type(value), ())


def _junctor_checks(schema: Json) -> list[Checker]:
    checks: list[Checker] = []
    for name, enough in (("allOf", all), ("anyOf", any)):
        tests = [checker(part) for part in schema.get(name) or ()]
        if tests and not (name == "anyOf" and None in tests):
            checks.append(_joined([test for test in tests if test is not None], enough))
    if schema.get("oneOf"):
        checks.append(_exactly_one([checker(part) for part in schema["oneOf"]]))
    if schema.get("not"):
        refused = checker(schema["not"])
        checks.append(
            (lambda value: False) if refused is None else (lambda value: not refused(value))
        )
    return checks


def _joined(tests: list[Checker], enough: Callable[[Any], bool]) -> Checker:
    return lambda value: enough(test(value) for test in tests)


def _exactly_one(tests: list[Checker | None]) -> Checker:
    return lambda value: sum(test is None or test(value) for test in tests) == 1


def _is_date_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text.upper()


def _is_date(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return True


def _parses(make: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            make(text)
        except ValueError:
            return False
        return True

    return check


def _fits_pattern(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "date": _is_date,
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "cidr": _parses(ip_interface),
    **{
        name: _fits_pattern(
            rf"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}"
        )
        for name, version, variant in (
            ("uuid", "[0-9a-f]", "[0-9a-f]"),
            ("uuid3", "3", "[0-9a-f]"),
            ("uuid4", "4", "[89ab]"),
            ("uuid5", "5", "[89ab]"),
        )
    },
    "mac": _fits_pattern(
        r"(?i)[0-9a-f]{2}(([:-])[0-9a-f]{2})((\2[0-9a-f]{2}){4}|(\2[0-9a-f]{2}){6})|([0-9a-f]{4}\.){2,3}[0-9a-f]{4}"
    ),
    "hexcolor": _fits_pattern(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "byte": lambda text: (
        re.fullmatch(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text)
        is not None
    ),
}


KNOWN_FORMATS = {
    "string": frozenset((
        "bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn", "isbn10",
        "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "duration", "datetime", "k8sshortname",
        "k8slongname",
    )),
    "integer": frozenset(("int32", "int64")),
    "number": frozenset(("float", "double")),
}  # fmt: skip
"""Formats that Kubernetes knows, without dashes. For others it returns a warning, and ignores them.
"""


def unknown_formats(schema: Any) -> list[str]:
    """Formats at and below a schema node that have no effect."""
    if isinstance(schema, list):
        return [name for item in schema for name in unknown_formats(item)]
    if not isinstance(schema, dict):
        return []
    form, kind = schema.get("format"), schema.get("type") or "string"
    own = (
        [form]
        if isinstance(form, str)
        and form
        and form.replace("-", "") not in KNOWN_FORMATS.get(kind, ())
        else []
    )
    below: list[Any] = [
        schema.get(name)
        for name in ("items", "additionalProperties", "not", "allOf", "anyOf", "oneOf")
    ]
    below += (schema.get("properties") or {}).values()
    return [*own, *(name for inner in below for name in unknown_formats(inner))]


def has_rules(schema: Any) -> bool:
    """Whether the schema holds any CEL rule."""
    if isinstance(schema, dict):
        return "x-kubernetes-validations" in schema or any(
            has_rules(value) for value in schema.values()
        )
    if isinstance(schema, list):
        return any(has_rules(item) for item in schema)
    return False


def accepts_any_object(schema: Json | None) -> bool:
    """Whether a schema restricts objects in no way."""
    return not schema or schema.keys() <= {"type", "description"}


def fields_always_needed(schema: Json) -> frozenset[str] | None:
    """Top-level fields that a partial update cannot leave out, because they hold rules or defaults.
    None if a rule reads the whole object."""
    if "x-kubernetes-validations" in schema:
        return None
    return frozenset(
        name
        for name, below in (schema.get("properties") or {}).items()
        if "default" in below or has_rules(below)
    )
