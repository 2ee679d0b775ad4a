"""What an answer says once everything is taken out of it that a server chooses freely: uids, times, versions, random names."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.cluster.api import Answer

HEADERS = ("content-type", "cache-control", "retry-after", "warning", "allow", "www-authenticate", "x-content-type-options", "location")
"""Those that are compared; the others belong to the transport or are informative."""

UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b20(?:2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?(?:\.\d+)?Z")
TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+")
PATCHED = re.compile(r'^(.*patch: )?Invalid value: "(?:\{\\".*\}|map\[.*\])":', re.DOTALL)
"""What a patch made, as far as it was read; Kubernetes shows it in the form of its own types."""
SUFFIX = re.compile(r"^[bcdfghjklmnpqrstvwxz2456789]{5}$")
ACCESS = re.compile(r"\bkube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
AGE = re.compile(r"^\d+s$")
SERVICE_ADDRESS = re.compile(r"\b10\.96\.\d+\.\d+\b")


def headers(answer: Answer) -> dict[str, str]:
    """The headers that are compared; every warning."""
    found = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
    if answer.warnings:
        found["warning"] = text(" | ".join(answer.warnings))
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
    try:
        return [tree(json.loads(line)) for line in raw.splitlines() if line]
    except ValueError:
        return text(raw.decode("utf-8", "replace"))


def tree(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: tree(inner, name) for name, inner in _named(value).items()}
    if isinstance(value, list):
        items = [tree(inner, key) for inner in value]
        if key == "causes":
            # Kubernetes says the same mistake of metadata up to three times: its generic rules and the kind's overlap.
            return [item for place, item in enumerate(items) if item not in items[:place]]
        return items
    if isinstance(value, str):
        if key == "resourceVersion" and value.isdigit() and value != "0":
            return "<version>"
        if key == "continue" and value:
            return "<continue>"
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
    if isinstance(start, str) and isinstance(name, str) and name.startswith(start) and SUFFIX.match(name[len(start) :]):
        return {**tree, "metadata": {**metadata, "name": start + "<random>"}}
    return tree


def text(value: str) -> str:
    value = PATCHED.sub("Invalid value: <the whole object>:", UID.sub("<uid>", value))
    value = TIME.sub(lambda found: "<microtime>" if found.group(1) else "<time>", value)
    value = TOKEN.sub("<token>", value)
    value = ACCESS.sub("kube-api-access-<random>", value)
    return SERVICE_ADDRESS.sub("<service address>", value)
