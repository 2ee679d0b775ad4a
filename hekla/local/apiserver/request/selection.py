"""Label and field selectors, compiled once a request and asked for every row.

The grammar is that of local-cluster 2.12; rows carry their labels and the values of their
selectable fields, so no object is decoded to be selected.
"""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.selectors import Operator, Requirement, SelectorError, parse_fields, parse_labels
from hekla.api.trees import Json
from hekla.local.apiserver.request.status import bad_request
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row

Test = Callable[[Row], bool]
EVENT_SOURCE = ("source", "component")


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


UNSELECTABLE = {
    "replicasets": '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"',
    "jobs": 'field label "{}" not supported for Job',
    "resourceslices": "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}",
}
"""How kinds of their own manner refuse a field."""


def check_selectors(labels: str, fields: str) -> None:
    """Raises 400 for what is no selector."""
    try:
        parse_labels(labels)
        parse_fields(fields)
    except SelectorError as error:
        raise bad_request(str(error)) from error


def select(resource: Resource, namespace: str, name: str, labels: str, fields: str) -> Selection:
    """Compiles the selectors of a request; raises 400 as Kubernetes words it."""
    tests: list[Test] = []
    selection = Selection(namespace, name, tests)
    try:
        if labels:
            tests.extend(_label_test(wanted) for wanted in parse_labels(labels).requirements)
        for wanted in parse_fields(fields).requirements if fields else ():
            _add_field(
                resource,
                selection,
                wanted.field.strip(),
                "=" if wanted.equal else "!=",
                wanted.value,
            )
    except SelectorError as error:
        raise bad_request(str(error)) from error
    return selection


def _add_field(resource: Resource, selection: Selection, field: str, sign: str, value: str) -> None:
    tests = selection.tests
    if field == "metadata.name":
        if sign == "=" and not selection.name and value:
            selection.name = value
        else:
            tests.append(
                (lambda row: row.name == value) if sign == "=" else (lambda row: row.name != value)
            )
    elif field == "metadata.namespace" and (
        resource.kind.namespaced or resource.kind.custom or not resource.kind.selectable
    ):
        tests.append(
            (lambda row: row.namespace == value)
            if sign == "="
            else (lambda row: row.namespace != value)
        )
    else:
        kind = resource.kind
        if field not in kind.selectable:
            if kind.selectable or kind.custom:
                raise bad_request(
                    UNSELECTABLE.get(kind.plural, "field label not supported: {}").format(field)
                )
            raise bad_request(
                f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            )
        position = resource.field_position(field)
        if kind.selectable[field] == EVENT_SOURCE:
            # An event of the newer form names its controller where one of the older names its
            # source.
            controller = resource.field_position("reportingComponent")
            tests.append(
                lambda row: (
                    ((row.fields[position] or row.fields[controller]) == value) is (sign == "=")
                )
            )
            return
        if (
            value in ("true", "false")
            and sign == "="
            and resource.kind.selectable[field][-1] in ("unschedulable", "hostNetwork")
        ):
            # an absent boolean is false
            tests.append(lambda row: (row.fields[position] or "false") == value)
        else:
            tests.append(
                (lambda row: row.fields[position] == value)
                if sign == "="
                else (lambda row: row.fields[position] != value)
            )


def _label_test(wanted: Requirement) -> Test:
    key = wanted.key
    if wanted.operator is Operator.IN and len(wanted.values) == 1:
        (value,) = wanted.values
        return lambda row: row.labels.get(key) == value
    return lambda row: wanted.matches(row.labels)


def selects(selector: Json | None, labels: object) -> bool:
    """Whether a LabelSelector of policy/v1 selects: absent nothing, empty everything."""
    if selector is None or not isinstance(labels, dict):
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for term in selector.get("matchExpressions") or []:
        value, values = labels.get(term.get("key")), term.get("values") or []
        match term.get("operator"):
            case "In":
                good = value in values
            case "NotIn":
                good = value not in values
            case "Exists":
                good = value is not None
            case "DoesNotExist":
                good = value is None
            case _:
                good = False
        if not good:
            return False
    return True
