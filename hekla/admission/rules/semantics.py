"""Equality of two trees as a typed client sees it.

A client that reads an object into types and writes it back drops zeros and empty lists, and may
spell a quantity another way; that is no change.  Where absence has a meaning of its own (a pointer
in the original's types), zero and absent differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.api.text import quantity
from hekla.api.text.durations import seconds

QUANTITY_MAPS = frozenset({"requests", "limits", "capacity", "overhead"})
QUANTITIES = frozenset({"sizeLimit", "divisor"})
DURATIONS = frozenset({"timeout", "runningEstimate"})
"""A typed client writes `60s` back as `1m0s`."""

# Numbers and booleans whose zero is the same as their absence; every other one is a pointer in the
# original's types.
ZERO_IS_ABSENT = frozenset({
    "maxRetry", "minPartitions", "totalPartitions", "partitionSize", "replicas",
    "hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly",
    "containerPort", "hostPort", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold", "weight", "maxSkew", "partition", "port",
})  # fmt: skip

# Texts whose emptiness differs from their absence.
EMPTY_TEXT_COUNTS = frozenset(
    {"storageClassName", "runtimeClassName", "volumeAttributesClassName", "apiGroup"}
)

# Structs whose emptiness differs from their absence: pointers in the original's types.
EMPTY_COUNTS = frozenset({
    "dependsOn", "partitionPolicy", "networkTopology", "volumeClaim", "emptyDir", "securityContext", "affinity",
    "nodeAffinity", "podAffinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "lifecycle",
    "preStop", "postStart", "livenessProbe", "readinessProbe", "startupProbe", "httpGet", "exec", "tcpSocket", "grpc",
    "labelSelector", "namespaceSelector", "selector", "dnsConfig", "capabilities", "configMap", "secret", "downwardAPI",
    "projected", "ephemeral",
})  # fmt: skip

# Mappings whose keys are the user's: an entry counts, however empty its value.
USER_MAPS = frozenset(
    {
        "plugins",
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "options",
        "volumeAttributes",
    }
)


def same(one: Any, other: Any) -> bool:
    return bool(_normal(one) == _normal(other))


def _normal(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        if key in QUANTITY_MAPS:
            return {name: quantity.milli(amount) for name, amount in value.items()}
        if key in USER_MAPS:
            return {name: item or None for name, item in value.items()}
        return dict(_entries(value))
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if key in QUANTITIES and value is not None:
        return quantity.milli(value)
    if key in DURATIONS and isinstance(value, str):
        return _seconds(value)
    return value


def _seconds(text: str) -> float | str:
    """A duration in seconds; any other text is left as it is, for the schema to refuse."""
    try:
        return seconds(text)
    except ValueError:
        return text


def _entries(tree: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, value in tree.items():
        normal = _normal(value, key)
        if not _is_absent(key, normal):
            yield key, normal


def _is_absent(key: str, value: Any) -> bool:
    if value is None or value == []:
        return True
    if value == {}:
        return key not in EMPTY_COUNTS
    if value == "":
        return key not in EMPTY_TEXT_COUNTS
    return key in ZERO_IS_ABSENT and not value
