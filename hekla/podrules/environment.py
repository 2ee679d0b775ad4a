"""The environment variables of a container, and their sources."""

from __future__ import annotations

import re

from hekla.api.text.fieldrules import Errors, Tree, label_key, named
from hekla.api.text.quantity import Quantity
from hekla.api.text.syntax import (
    Reasons,
    configuration_key,
    dns_label,
    dns_subdomain,
    environment_name,
    relaxed_environment_name,
)
from hekla.podrules.options import Options
from hekla.podrules.paths import descending
from hekla.podrules.walking import KINDS, containers_of

SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
FIELD_PATHS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
"""What a variable can hold of its pod."""
KNOWN_PATHS = frozenset(
    {
        *FIELD_PATHS,
        "metadata.annotations",
        "metadata.labels",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    }
)
"""Paths that have a meaning at all."""
RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
PAGES = ("requests.hugepages-", "limits.hugepages-")
CPU_DIVISORS = ("1m", "1")
BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_DIVIDED = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}
_subscript = re.compile(r"(.+?)\['(.*)'\]", re.DOTALL).fullmatch


def check(container: Tree, path: str, options: Options, found: Errors) -> None:
    for position, variable in enumerate(container.get("env") or ()):
        name = variable.get("name") or ""
        if not name:
            found.required(f"{path}.env[{position}].name")
        elif not (name.isascii() and name.isidentifier()):
            found.malformed(f"{path}.env[{position}].name", name, _name(name, options))
        if variable.get("valueFrom") is not None:
            _value_from(
                variable["valueFrom"],
                f"{path}.env[{position}].valueFrom",
                bool(variable.get("value")),
                options,
                found,
            )
    for position, source in enumerate(container.get("envFrom") or ()):
        _whole_source(source, f"{path}.envFrom", position, options, found)


def _name(text: str, options: Options) -> Reasons:
    return relaxed_environment_name(text) if options.features else environment_name(text)


def _value_from(source: Tree, path: str, has_value: bool, options: Options, found: Errors) -> None:
    given = [name for name in SOURCES if source.get(name) is not None]
    for name in given:
        _SOURCES[name](source[name], f"{path}.{name}", found)
    if not given:
        named = SOURCES if options.features else SOURCES[:-1]
        shown = ", ".join(f"`{name}`" for name in named[:-1])
        found.invalid(path, "", f"must specify one of: {shown} or `{named[-1]}`")
    elif has_value:
        found.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        found.invalid(path, "", "may not have more than one field specified at a time")


def _own_field(body: Tree, path: str, found: Errors) -> None:
    own_field(body, FIELD_PATHS, path, found)


def own_field(body: Tree, allowed: tuple[str, ...], path: str, found: Errors) -> None:
    """Check a reference to a field of the pod itself."""
    text = body.get("fieldPath") or ""
    version = body.get("apiVersion") or "v1"
    where = f"{path}.fieldPath"
    subscript = _subscript(text)
    if not text:
        found.required(where)
    elif version != "v1":
        found.invalid(
            where, text, f"error converting fieldPath: unsupported pod version: {version}"
        )
    elif subscript is not None:
        if subscript[1] not in ("metadata.annotations", "metadata.labels"):
            why = f"error converting fieldPath: field label does not support subscript: {text}"
            found.invalid(where, text, why)
            return
        key = subscript[2].lower() if subscript[1] == "metadata.annotations" else subscript[2]
        found.malformed(path, key, label_key(key))
    elif text not in KNOWN_PATHS and text != "spec.host":
        found.invalid(where, text, f"error converting fieldPath: field label not supported: {text}")
    else:
        text = "spec.nodeName" if text == "spec.host" else text  # as it was called once
        if text not in allowed:
            found.not_supported(where, text, allowed, plain=True)


def _resource(body: Tree, path: str, found: Errors) -> None:
    resource(body, path, found)


def resource(body: Tree, path: str, found: Errors, *, in_volume: bool = False) -> None:
    """Check a reference to a container's resources.  In a volume the container must be named."""
    name, divisor = body.get("resource") or "", body.get("divisor")
    if in_volume and not body.get("containerName"):
        found.required(f"{path}.containerName")
    elif not name:
        found.required(f"{path}.resource")
    elif name not in RESOURCES and not name.startswith(PAGES):
        found.not_supported(f"{path}.resource", name, RESOURCES, plain=True)
    if divisor is None or not (given := Quantity.parse(divisor)):
        return
    kind = (
        _DIVIDED.get(name.partition(".")[2], "")
        if name in RESOURCES
        else "hugepages"
        if name.startswith(PAGES)
        else ""
    )
    choices = CPU_DIVISORS if kind == "cpu" else BYTE_DIVISORS
    if kind and str(given) not in choices:
        listed = " and ".join(choices) if kind == "cpu" else ", ".join(choices)
        why = f"only divisor's values {listed} are supported with the {kind} resource"
        found.invalid(f"{path}.divisor", name, why)


def _key(body: Tree, path: str, found: Errors) -> None:
    """Check a reference to a key of a ConfigMap or a Secret."""
    name = body.get("name") or ""
    found.malformed(f"{path}.name", name, dns_subdomain(name))
    named(body.get("key"), configuration_key, f"{path}.key", found)


def _line(body: Tree, path: str, found: Errors) -> None:
    """Check a reference to a line of a file in a volume."""
    named(body.get("key"), relaxed_environment_name, f"{path}.key", found)
    named(body.get("volumeName"), dns_label, f"{path}.volumeName", found)
    if not body.get("path"):
        found.required(f"{path}.path")
    else:
        descending(body["path"], f"{path}.path", found, relative=False)


_SOURCES = {
    "fieldRef": _own_field,
    "resourceFieldRef": _resource,
    "configMapKeyRef": _key,
    "secretKeyRef": _key,
    "fileKeyRef": _line,
}


def _whole_source(source: Tree, path: str, position: int, options: Options, found: Errors) -> None:
    prefix = source.get("prefix")
    if prefix:
        found.malformed(f"{path}[{position}].prefix", prefix, _name(prefix, options))
    given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
    for name in given:
        named(source[name].get("name"), dns_subdomain, f"{path}[{position}].{name}.name", found)
    if not given:
        found.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
    elif len(given) > 1:
        found.invalid(path, "", "may not have more than one field specified at a time")


def reads_files(spec: Tree) -> bool:
    """Whether a variable is read from a file."""
    for kind in KINDS:
        for container in spec.get(kind) or ():
            for variable in container.get("env") or ():
                if "valueFrom" in variable and "fileKeyRef" in (variable["valueFrom"] or ()):
                    return True
    return False


def files(spec: Tree, path: str, found: Errors) -> None:
    """Variables that are lines of files: these lie in a directory that the pod brings along."""
    for container, where in containers_of(spec, path):
        for position, variable in enumerate(container.get("env") or ()):
            line = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if line is None:
                continue
            name = line.get("volumeName") or ""
            at = f"{where}.env[{position}].valueFrom.fileKeyRef.volumeName"
            volume = {volume.get("name") or "": volume for volume in spec.get("volumes") or ()}.get(
                name
            )
            if volume is None:
                found.not_found(at, name)
            elif volume.get("emptyDir") is None and len(volume) > 1:
                found.invalid(at, name, "referenced volume must be of type emptyDir")
