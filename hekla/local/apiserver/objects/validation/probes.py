"""The rules of probes and lifecycle hooks."""

from __future__ import annotations

from typing import Any

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import forbidden, invalid, not_supported, required
from hekla.local.apiserver.objects.validation.metadata import Errors, not_negative

Json = dict[str, Any]
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOKS = ("exec", "httpGet", "tcpSocket", "sleep")


def probe(value: Json, path: str, name: str, found: Errors) -> None:
    _handler(value, path, _HANDLERS, found)
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        not_negative(value.get(field), f"{path}.{field}", found)
    if name != "readinessProbe" and value.get("successThreshold", 1) != 1:
        found.append(invalid(f"{path}.successThreshold", value["successThreshold"], "must be 1"))
    grace = value.get("terminationGracePeriodSeconds")
    if grace is not None:
        if name == "readinessProbe":
            why = "must not be set for readinessProbes"
            found.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, why))
        elif grace <= 0:
            found.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))


def lifecycle(value: Json, path: str, found: Errors) -> None:
    for name in ("postStart", "preStop"):
        if value.get(name) is not None:
            _handler(value[name], f"{path}.{name}", _HOOKS, found)


def _handler(value: Json, path: str, allowed: tuple[str, ...], found: Errors) -> None:
    given = [name for name in allowed if value.get(name) is not None]
    if not given:
        found.append(required(path, "must specify a handler type"))
        return
    for name in given[1:]:
        found.append(forbidden(f"{path}.{name}", "may not specify more than 1 handler type"))
    action, where = value[given[0]], f"{path}.{given[0]}"
    if given[0] == "exec":
        if not action.get("command"):
            found.append(required(f"{where}.command"))
    elif given[0] == "httpGet":
        if not action.get("path"):
            found.append(required(f"{where}.path"))
        _port(action.get("port"), f"{where}.port", found)
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            found.append(not_supported(f"{where}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS")))
    elif given[0] in ("tcpSocket", "grpc"):
        _port(action.get("port"), f"{where}.port", found)
    elif given[0] == "sleep" and (action.get("seconds") or 0) < 0:
        found.append(invalid(f"{where}.seconds", action.get("seconds"), "must be non-negative"))


def _port(value: Any, path: str, found: Errors) -> None:
    reasons = names.port_name(value) if isinstance(value, str) else names.port_number(value or 0)
    found += [invalid(path, value if value is not None else 0, reason) for reason in reasons]
