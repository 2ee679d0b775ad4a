"""What is wrong with a custom object, in Kubernetes' messages (local-cluster 4.3).

This runs only if the compiled check failed. Values that an update did not change are not reported:
a schema that became stricter must not lock existing objects.
"""

from __future__ import annotations

from typing import Any

from hekla.api.text.fielderrors import duplicate
from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects.custom.rules import NO_OLD_VALUE
from hekla.local.apiserver.objects.custom.schema import (
    FORMATS,
    IMPLICIT,
    checker,
    compiled_pattern,
    duplicates,
    is_multiple,
)
from hekla.local.apiserver.objects.kind import FieldError

UNCHECKED_RULES = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


INTEGER_OUT_OF_RANGE = 'Invalid value: "": Checked value must be of type integer {form} in {path}'


def explain(
    schema: Json, value: Any, old: Any = NO_OLD_VALUE, path: str = "", *, root: bool = True
) -> Errors:
    """The errors of a value at and below a schema node. `old` is the value before an update,
    NO_OLD_VALUE on create."""
    errors = Errors()
    _value(schema, value, old, path, errors, root)
    return errors


def _value(
    schema: Json, value: Any, old: Any, path: str, errors: Errors, root: bool = False
) -> None:
    if value is old or (old is not NO_OLD_VALUE and type(value) is type(old) and value == old):
        return
    if value is None and schema.get("nullable"):
        return
    wanted = _wanted(schema)
    if wanted and not _fits(wanted, value):
        actual = schema_type_name(value)
        shown = f'{path} in body must be of type {",".join(wanted)}: "{actual}"'
        errors.type_invalid(path, actual, shown)
        if actual == "number" and "integer" in wanted:  # its range is checked nevertheless
            form = f"with format {schema['format']}" if schema.get("format") else "(default format)"
            errors.append(
                FieldError(
                    "<nil>", "FieldValueInvalid", INTEGER_OUT_OF_RANGE.format(form=form, path=path)
                )
            )
            _number(schema, value, path, errors)
        return
    if "enum" in schema and not any(
        type(item) is type(value) and item == value for item in schema["enum"]
    ):
        errors.not_supported(path, value, schema["enum"])
    if isinstance(value, dict):
        _object(schema, value, old, path, errors, root)
    elif isinstance(value, list):
        _list(schema, value, old, path, errors)
    elif isinstance(value, str):
        _string(schema, value, path, errors)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _number(schema, value, path, errors)
    _junctors(schema, value, path, errors)


def _wanted(schema: Json) -> list[str]:
    if schema.get("x-kubernetes-int-or-string"):
        return ["integer", "string"]
    return [schema["type"]] if schema.get("type") else []


def _fits(wanted: list[str], value: Any) -> bool:
    actual = schema_type_name(value)
    if actual in wanted or (actual == "integer" and "number" in wanted):
        return True
    return (
        actual == "number"
        and "integer" in wanted
        and isinstance(value, float)
        and value.is_integer()
    )


def schema_type_name(value: Any) -> str:
    """The JSON schema type of a value."""
    if value is None:
        return "null"
    for kind, name in (
        (bool, "boolean"),
        (str, "string"),
        (int, "integer"),
        (float, "number"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "object"


def _object(schema: Json, value: Json, old: Any, path: str, errors: Errors, root: bool) -> None:
    before = old if isinstance(old, dict) else {}
    for name in schema.get("required") or ():
        if name not in value and not (root and name in IMPLICIT):
            errors.required(_join(path, name))
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        if root and key in IMPLICIT:
            continue
        inner = properties.get(key, additional if isinstance(additional, dict) else None)
        if inner is not None:
            _value(inner, item, before.get(key, NO_OLD_VALUE), _join(path, key), errors)
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        errors.invalid(path, len(value), f"{path} in body should have at least {least} properties")
    if most is not None and len(value) > most:
        errors.too_many(path, len(value), most)
    if schema.get("x-kubernetes-embedded-resource"):
        for name in ("apiVersion", "kind"):
            if not value.get(name):
                errors.required(_join(path, name), "must not be empty")


def _list(schema: Json, value: list[Any], old: Any, path: str, errors: Errors) -> None:
    items = schema.get("items")
    if isinstance(items, dict):
        before = _correlated(schema, old)
        for position, item in enumerate(value):
            known = before.get(_identity(schema, item), NO_OLD_VALUE) if before else NO_OLD_VALUE
            _value(items, item, known, f"{path}[{position}]", errors)
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        errors.invalid(path, len(value), f"{path} in body should have at least {least} items")
    if most is not None and len(value) > most:
        errors.too_many(path, len(value), most)
    if schema.get("x-kubernetes-list-type") in ("map", "set"):
        errors += [
            duplicate(f"{path}[{position}]", what) for position, what in duplicates(schema, value)
        ]


def _correlated(schema: Json, old: Any) -> dict[Any, Any]:
    """The old elements of a list that is a map, by their keys."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return {}
    return {_identity(schema, item): item for item in old}


def _identity(schema: Json, item: Any) -> Any:
    if not isinstance(item, dict):
        return None
    return tuple(str(item.get(key)) for key in schema.get("x-kubernetes-list-map-keys") or ())


def _string(schema: Json, value: str, path: str, errors: Errors) -> None:
    least, most = schema.get("minLength"), schema.get("maxLength")
    pattern = schema.get("pattern")
    if most is not None and len(value) > most:  # only the first error is reported
        errors.too_long(path, most)
    elif least is not None and len(value) < least:
        errors.invalid(path, value, f"{path} in body should be at least {least} chars long")
    elif pattern and compiled_pattern(pattern).search(value) is None:
        errors.invalid(path, value, f"{path} in body should match '{pattern}'")
    form = schema.get("format") or ""
    if form in FORMATS and not FORMATS[form](value):
        errors.type_invalid(path, value, f'{path} in body must be of type {form}: "{value}"')


def _number(schema: Json, value: float, path: str, errors: Errors) -> None:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
        bound = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        errors.invalid(path, value, f"{path} in body should be {bound} {_plain(low)}")
    if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
        bound = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        errors.invalid(path, value, f"{path} in body should be {bound} {_plain(high)}")
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        errors.invalid(path, value, f'{path} in body must be of type int32: "{_plain(value)}"')
    if step is not None and not is_multiple(value, step):
        errors.invalid(path, value, f"{path} in body should be a multiple of {_plain(step)}")


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _junctors(schema: Json, value: Any, path: str, errors: Errors) -> None:
    for part in schema.get("allOf") or ():
        _value(part, value, NO_OLD_VALUE, path, errors)
    for name, words in (
        ("anyOf", "at least one schema (anyOf)"),
        ("oneOf", "one and only one schema (oneOf)"),
    ):
        parts = schema.get(name)
        if not parts:
            continue
        good = sum((test := checker(part)) is None or test(value) for part in parts)
        if good == 0 or (name == "oneOf" and good > 1):
            suffix = (
                ""
                if name == "anyOf"
                else ". Found none valid"
                if good == 0
                else f". Found {good} valid alternatives"
            )
            why = f'"{path}" must validate {words}{suffix}'
            errors.invalid(path, value if not isinstance(value, (dict, list)) else "", why)
    if schema.get("not"):
        test = checker(schema["not"])
        if test is None or test(value):
            errors.invalid(path, "", f'"{path}" must not validate the schema (not)')


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
