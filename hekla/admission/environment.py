"""Where the variables of a container come from.  Reference: api-and-admission 5.3.5; the texts are Kubernetes'."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hekla.admission.fielderrors import invalid, required, unsupported
from hekla.admission.review import Tree
from hekla.admission.syntax import configuration_key, dns_subdomain, environment_name, qualified_name
from hekla.api.quantity import Quantity

SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
FIELD_PATHS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
OTHER_PATHS = frozenset({"spec.restartPolicy", "spec.schedulerName", "spec.hostNetwork", "status.phase", "status.nominatedNodeName"})
"""Paths that a pod can be selected by, but that no variable can hold."""
RESOURCES = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
CPU_DIVISORS = ("1m", "1")
BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SUBSCRIPT = re.compile(r"metadata\.(annotations|labels)\['(.*)'\]", re.DOTALL)


def problems(container: Tree, where: str) -> Iterator[str]:
    for index, variable in enumerate(container.get("env") or []):
        yield from _variable(variable, f"{where}.env[{index}]")
    for index, source in enumerate(container.get("envFrom") or []):
        yield from _whole_source(source, f"{where}.envFrom", index)


def _variable(variable: Tree, where: str) -> Iterator[str]:
    name = variable.get("name") or ""
    if not name:
        yield required(f"{where}.name")
    else:
        yield from (invalid(f"{where}.name", name, reason) for reason in environment_name(name))
    source = variable.get("valueFrom")
    if source is None:
        return
    where += ".valueFrom"
    given = [key for key in SOURCES if source.get(key) is not None]
    for key in given:
        yield from _source(key, source[key], f"{where}.{key}")
    if not given:
        yield invalid(where, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`")
    elif variable.get("value"):
        yield invalid(where, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield invalid(where, "", "may not have more than one field specified at a time")


def _source(kind: str, body: Tree, where: str) -> Iterator[str]:
    if kind == "fieldRef":
        yield from _field(body, where)
    elif kind == "resourceFieldRef":
        yield from resource_field(body, where)
    elif kind != "fileKeyRef":
        yield from (invalid(f"{where}.name", body.get("name") or "", reason) for reason in dns_subdomain(body.get("name") or ""))
        key = body.get("key") or ""
        if not key:
            yield required(f"{where}.key")
        else:
            yield from (invalid(f"{where}.key", key, reason) for reason in configuration_key(key))


def _field(body: Tree, where: str) -> Iterator[str]:
    path, version = body.get("fieldPath") or "", body.get("apiVersion") or "v1"
    where += ".fieldPath"
    subscript = _SUBSCRIPT.fullmatch(path)
    if not path:
        yield required(where)
    elif version != "v1":
        yield invalid(where, path, f"error converting fieldPath: unsupported pod version: {version}")
    elif subscript is not None:
        key = subscript[2].lower() if subscript[1] == "annotations" else subscript[2]
        yield from (invalid(where, path, reason) for reason in qualified_name(key))
    elif path in OTHER_PATHS:
        yield unsupported(where, path, FIELD_PATHS)
    elif path not in FIELD_PATHS:
        yield invalid(where, path, f"error converting fieldPath: field label not supported: {path}")


def resource_field(body: Tree, where: str) -> Iterator[str]:
    resource, divisor = body.get("resource") or "", body.get("divisor")
    if not resource:
        yield required(f"{where}.resource")
        return
    if resource not in RESOURCES and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield unsupported(f"{where}.resource", resource, RESOURCES)
        return
    if divisor is None or not (given := Quantity.parse(divisor)):
        return
    kind, choices = ("cpu", CPU_DIVISORS) if resource.endswith(".cpu") else (resource.partition(".")[2], BYTE_DIVISORS)
    if str(given) not in choices:
        listed = "1m and 1" if kind == "cpu" else ", ".join(BYTE_DIVISORS)
        yield invalid(f"{where}.divisor", resource, f"only divisor's values {listed} are supported with the {kind} resource")


def _whole_source(source: Tree, field: str, index: int) -> Iterator[str]:
    prefix = source.get("prefix")
    if prefix:
        yield from (invalid(f"{field}[{index}].prefix", prefix, reason) for reason in environment_name(prefix))
    given = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
    for key in given:
        name, where = source[key].get("name") or "", f"{field}[{index}].{key}.name"
        if not name:
            yield required(where)
        else:
            yield from (invalid(where, name, reason) for reason in dns_subdomain(name))
    if not given:
        yield invalid(field, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        yield invalid(field, "", "may not have more than one field specified at a time")
