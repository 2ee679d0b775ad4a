"""Label and field selectors, compiled once a request and asked for every row.

The grammar is that of local-cluster 2.12; rows carry their labels and the values of their selectable fields, so no object is
decoded to be selected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.registry import Resource
from hekla.local.apiserver.status import bad_request
from hekla.local.apiserver.store import Row

Test = Callable[[Row], bool]
_TOKEN = re.compile(r"\s*(?:(?P<sign>==|!=|=|!|<|>|\(|\)|,)|(?P<word>[^\s=!<>(),]+))")


class Selection:
    """What a request asked to see of a collection."""

    __slots__ = ("name", "namespace", "tests")

    def __init__(self, namespace: str, name: str, tests: list[Test]) -> None:
        self.namespace = namespace
        self.name = name
        self.tests = tests

    @property
    def everything(self) -> bool:
        """True when only the namespace restricts."""
        return not self.tests and not self.name

    def matches(self, row: Row) -> bool:
        if self.namespace and row.namespace != self.namespace:
            return False
        if self.name and row.name != self.name:
            return False
        return all(test(row) for test in self.tests)


def select(resource: Resource, namespace: str, name: str, labels: str, fields: str) -> Selection:
    """Compiles the selectors of a request; raises 400 as Kubernetes words it."""
    tests: list[Test] = []
    selection = Selection(namespace, name, tests)
    if labels:
        tests.extend(_label_test(wanted) for wanted in parse_labels(labels))
    if fields:
        for field, sign, value in parse_fields(fields):
            _add_field(resource, selection, field, sign, value)
    return selection


def _add_field(resource: Resource, selection: Selection, field: str, sign: str, value: str) -> None:
    tests = selection.tests
    if field == "metadata.name":
        if sign == "=" and not selection.name and value:
            selection.name = value
        else:
            tests.append((lambda row: row.name == value) if sign == "=" else (lambda row: row.name != value))
    elif field == "metadata.namespace":
        tests.append((lambda row: row.namespace == value) if sign == "=" else (lambda row: row.namespace != value))
    else:
        kind = resource.kind
        if field not in kind.selectable:
            if kind.selectable or kind.custom:
                raise bad_request(f"field label not supported: {field}")
            raise bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        position = resource.field_position(field)
        if value in ("true", "false") and sign == "=" and resource.kind.selectable[field][-1] in ("unschedulable", "hostNetwork"):
            # an absent boolean is false
            tests.append(lambda row: (row.fields[position] or "false") == value)
        else:
            tests.append((lambda row: row.fields[position] == value) if sign == "=" else (lambda row: row.fields[position] != value))


def parse_fields(text: str) -> list[tuple[str, str, str]]:
    """`a=b,c!=d` as (field, "=" or "!=", value)."""
    found = []
    for term in _split_fields(text):
        if not term:
            continue
        for sign in ("!=", "==", "="):
            field, middle, value = term.partition(sign)
            if middle:
                found.append((field.strip(), "!=" if sign == "!=" else "=", re.sub(r"\\(.)", r"\1", value)))
                break
        else:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    return found


def _split_fields(text: str) -> list[str]:
    return re.split(r"(?<!\\),", text)


class Requirement:
    """One term of a label selector."""

    __slots__ = ("key", "operator", "values")

    def __init__(self, key: str, operator: str, values: tuple[str, ...] = ()) -> None:
        self.key = key
        self.operator = operator
        self.values = values

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        try:
            number, limit = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > limit if self.operator == ">" else number < limit


def _label_test(wanted: Requirement) -> Test:
    key = wanted.key
    if wanted.operator == "in" and len(wanted.values) == 1:
        value = wanted.values[0]
        return lambda row: row.labels.get(key) == value
    return lambda row: wanted.matches(row.labels)


def parse_labels(text: str) -> list[Requirement]:
    """The requirements of a label selector; raises 400."""
    tokens: list[str] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: found '{text[position:]}'")
        tokens.append(match.group().strip())
        position = match.end()
    requirements: list[Requirement] = []
    at = 0

    def peek() -> str:
        return tokens[at] if at < len(tokens) else ""

    while at < len(tokens):
        if tokens[at] == "!":
            at += 1
            requirements.append(Requirement(_key(peek()), "!"))
            at += 1
        else:
            key = _key(tokens[at])
            at += 1
            sign = peek()
            if sign in ("", ","):
                requirements.append(Requirement(key, "exists"))
            elif sign in ("=", "==", "!="):
                at += 1
                value = ""
                if peek() not in ("", ","):
                    value = peek()
                    at += 1
                requirements.append(Requirement(key, "notin" if sign == "!=" else "in", (_value(key, value),)))
            elif sign in ("<", ">"):
                at += 1
                limit = peek()
                at += 1
                if not re.fullmatch(r"-?\d+", limit):
                    raise bad_request(
                        f"values[0][{key}]: Invalid value: \"{limit}\": for 'Gt', 'Lt' operators, the value must be an integer"
                    )
                requirements.append(Requirement(key, sign, (limit,)))
            elif sign in ("in", "notin"):
                at += 1
                values, at = _values(tokens, at, key)
                requirements.append(Requirement(key, sign, values))
            else:
                raise bad_request(f"unable to parse requirement: found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        if at < len(tokens):
            if tokens[at] != ",":
                raise bad_request(f"unable to parse requirement: found '{tokens[at]}', expected: ',' or 'end of string'")
            at += 1
            if at == len(tokens):
                raise bad_request("unable to parse requirement: found '', expected: identifier after ','")
    return requirements


def _values(tokens: list[str], at: int, key: str) -> tuple[tuple[str, ...], int]:
    if at >= len(tokens) or tokens[at] != "(":
        raise bad_request(f"unable to parse requirement: found '{tokens[at] if at < len(tokens) else ''}' expected: '('")
    at += 1
    values: list[str] = [""]
    while at < len(tokens) and tokens[at] != ")":
        if tokens[at] == ",":
            values.append("")
        else:
            values[-1] = _value(key, tokens[at])
        at += 1
    if at >= len(tokens):
        raise bad_request("unable to parse requirement: found '', expected: ',', or ')'")
    return tuple(values), at + 1


def _key(text: str) -> str:
    for reason in names.qualified_name(text):
        raise bad_request(f'unable to parse requirement: <nil>: Invalid value: "{text}": {reason}')
    return text


def _value(key: str, text: str) -> str:
    for reason in names.label_value(text):
        raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{text}": {reason}')
    return text
