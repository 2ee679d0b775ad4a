"""What an answer says once everything is taken out of it that a server chooses freely: uids, times,
versions, random names."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.cluster.api import Answer

HEADERS = (
    "content-type",
    "cache-control",
    "retry-after",
    "warning",
    "allow",
    "www-authenticate",
    "x-content-type-options",
    "location",
)
"""Those that are compared; the others belong to the transport or are informative."""

UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b20(?:2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?(?:\.\d+)?Z")
TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+")
PATCHED = re.compile(r'^(.*patch: )?Invalid value: "(?:\{\\".*\}|map\[.*\])":', re.DOTALL)
"""What a patch made, as far as it was read; Kubernetes shows it in the form of its own types."""
MISTAKES = re.compile(r"is invalid: \[.*\]$", re.DOTALL)
"""The causes once more, in their order."""
UNDECLARED = re.compile(
    r"(failed to create typed patch object \([^)]*\): ).*field not declared in schema.*", re.DOTALL
)
"""An applied configuration is read up to the first field that is not declared, and what Go's maps
gave before it comes along."""
ERRORS = re.compile(r"(?<=: errors:\n)(?:  .*\n?)+$")
"""What is wrong with an applied configuration, in the order of Go's maps."""
MADE_UP = re.compile(r"(?<=[-_])[bcdfghjklmnpqrstvwxz2456789]{5}(?=\"|$)")
"""The end of a name that the server has chosen."""
SUFFIX = re.compile(r"^[bcdfghjklmnpqrstvwxz2456789]{5}$")
CURRENT = re.compile(
    r"(Too large resource version: \d+, current|match the ResourceVersion in record)(:? \(?)\d+"
)
STORED = re.compile(
    r"StorageError: invalid object, Code: 4, Key: \S+, ResourceVersion: 0, AdditionalErrorMsg: "
)
"""How a refused precondition is told: Kubernetes names the key in etcd besides."""
CREDENTIAL = re.compile(r"^X509SHA256=[0-9a-f]{64}$")
PORT = re.compile(r"\b(\d+):3\d{4}/")
"""A service's port and the one that its nodes were given for it."""
ACCESS = re.compile(r"\bkube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
AGE = re.compile(r"^\d+s$")
SERVICE_ADDRESS = re.compile(r"\b10\.96\.\d+\.\d+\b")


def headers(answer: Answer) -> dict[str, str]:
    """The headers that are compared; every warning."""
    found = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    if answer.warnings:
        # Of fields, which have no order in an object.
        found["warning"] = text(" | ".join(sorted(answer.warnings)))
    return found


def body(answer: Answer) -> Any:
    """A tree, a list of trees for a stream of events, or a text."""
    raw = answer.body
    if raw.startswith(b"k8s\x00"):
        return "<protobuf>"
    try:
        return tree(json.loads(raw))
    except ValueError:
        pass
    if answer.headers.get("content-type", "").startswith("application/yaml"):
        return tree(yaml.load(raw, yaml.BaseLoader))
    try:
        return [tree(json.loads(line)) for line in raw.splitlines() if line]
    except ValueError:
        return text(raw.decode("utf-8", "replace"))


def tree(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        result = {name: tree(inner, name) for name, inner in _named(value).items()}
        if (
            isinstance(result.get("message"), str)
            and len(((result.get("details") or {}).get("causes")) or ()) > 1
        ):
            result["message"] = MISTAKES.sub("is invalid: [the causes]", result["message"])
        return result
    if isinstance(value, list):
        items = [tree(inner, key) for inner in value]
        # In the order of their times, which may be of the same second or of two.
        if key == "managedFields":
            return sorted(
                items,
                key=lambda entry: [
                    str(entry.get(name))
                    for name in ("manager", "operation", "subresource", "apiVersion")
                ],
            )
        if key in ("resourceRules", "nonResourceRules"):  # in no order
            return sorted(items, key=lambda rule: json.dumps(rule, sort_keys=True))
        if key == "causes":
            # Kubernetes says the same mistake of metadata up to three times: its generic rules and
            # the kind's overlap. The order is that of Go's maps in places, which is another one
            # each time.
            once = [item for place, item in enumerate(items) if item not in items[:place]]
            return sorted(once, key=lambda cause: json.dumps(cause, sort_keys=True))
        return items
    if isinstance(value, str):
        if key == "resourceVersion" and value.isdigit() and value != "0":
            return "<version>"
        if key == "continue" and value:
            return "<continue>"
        if key == "name" and "_" in value:
            return MADE_UP.sub("<random>", value)
        return AGE.sub("<age>", text(value)) if key == "cells" else text(value)
    if key in ("nodePort", "healthCheckNodePort") and isinstance(value, int) and value:
        return "<port>"
    return value


def _named(tree: dict[str, Any]) -> dict[str, Any]:
    """The same with a name that was made from generateName cut to it."""
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        return tree
    start, name = metadata.get("generateName"), metadata.get("name")
    if (
        isinstance(start, str)
        and isinstance(name, str)
        and name.startswith(start)
        and SUFFIX.match(name[len(start) :])
    ):
        return {**tree, "metadata": {**metadata, "name": start + "<random>"}}
    return tree


def text(value: str) -> str:
    value = PATCHED.sub("Invalid value: <the whole object>:", UID.sub("<uid>", value))
    value = TIME.sub(lambda found: "<microtime>" if found.group(1) else "<time>", value)
    value = TOKEN.sub("<token>", value)
    if "_" in value:
        value = MADE_UP.sub("<random>", value)
    value = CURRENT.sub(
        r"\1\2<version>",
        STORED.sub("", CREDENTIAL.sub("<credential>", PORT.sub(r"\1:<port>/", value))),
    )
    value = UNDECLARED.sub(r"\1<what is not declared>", value)
    if ": errors:\n" in value:
        value = ERRORS.sub(lambda found: "\n".join(sorted(found.group().splitlines())), value)
    value = ACCESS.sub("kube-api-access-<random>", value)
    return SERVICE_ADDRESS.sub("<service address>", value)
