"""Probes and hooks of containers.  Reference: api-and-admission 5.3.5; the texts are Kubernetes'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hekla.admission.fielderrors import forbidden, invalid, required, unsupported
from hekla.admission.review import Tree
from hekla.admission.syntax import port_name

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
SCHEMES = ("HTTP", "HTTPS")
PORT_RANGE = "must be between 1 and 65535, inclusive"
NOT_NEGATIVE = "must be greater than or equal to 0"
GRACE = 30
"""Seconds of grace of a pod that says nothing about it."""
_HEADER = re.compile(r"[-A-Za-z0-9]+")


def hooks(container: Tree, grace: int, where: str) -> Iterator[str]:
    lifecycle = container.get("lifecycle") or {}
    for field in ("postStart", "preStop"):
        if lifecycle.get(field) is not None:
            yield from _handler(lifecycle[field], HOOK_HANDLERS, grace, f"{where}.lifecycle.{field}")


def probes(container: Tree, grace: int, where: str) -> Iterator[str]:
    for field in PROBES:
        if container.get(field) is not None:
            yield from _probe(container[field], field, grace, f"{where}.{field}")


def _probe(probe: Tree, field: str, grace: int, where: str) -> Iterator[str]:
    yield from _handler(probe, PROBE_HANDLERS, grace, where)
    for number in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if (probe.get(number) or 0) < 0:
            yield invalid(f"{where}.{number}", probe[number], NOT_NEGATIVE)
    own = probe.get("terminationGracePeriodSeconds")
    if field == "readinessProbe":
        if own is not None:
            yield invalid(f"{where}.terminationGracePeriodSeconds", own, "must not be set for readinessProbes")
        return
    if own is not None and own <= 0:
        yield invalid(f"{where}.terminationGracePeriodSeconds", own, "must be greater than 0")
    if (probe.get("successThreshold") or 1) != 1:
        yield invalid(f"{where}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(action: Tree, allowed: tuple[str, ...], grace: int, where: str) -> Iterator[str]:
    """One way of asking, and that one complete."""
    given = [handler for handler in allowed if action.get(handler) is not None]
    if not given:
        yield required(where, "must specify a handler type")
        return
    yield from _action(given[0], action[given[0]], grace, f"{where}.{given[0]}")
    for extra in given[1:]:
        yield forbidden(f"{where}.{extra}", "may not specify more than 1 handler type")


def _action(handler: str, body: Tree, grace: int, where: str) -> Iterator[str]:
    if handler == "exec":
        if not body.get("command"):
            yield required(f"{where}.command")
        return
    if handler == "sleep":
        seconds = body.get("seconds") or 0
        if not 0 <= seconds <= grace:
            yield invalid(where, seconds, SLEEP.format(grace))
        return
    yield from _port(body.get("port"), f"{where}.port")
    if handler == "httpGet":
        scheme = body.get("scheme") or "HTTP"
        if scheme not in SCHEMES:
            yield unsupported(f"{where}.scheme", scheme, SCHEMES)
        for header in body.get("httpHeaders") or []:
            name = header.get("name") or ""
            if not _HEADER.fullmatch(name):
                yield invalid(f"{where}.httpHeaders", name, HEADER)


SLEEP = (
    "must be greater than 0 and less than terminationGracePeriodSeconds ({}). Enable AllowPodLifecycleSleepActionZeroValue "
    "feature gate for zero sleep."
)
HEADER = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is "
    "'[-A-Za-z0-9]+')"
)


def _port(port: Any, where: str) -> Iterator[str]:
    if isinstance(port, str):
        yield from (invalid(where, port, reason) for reason in port_name(port))
    elif not 0 < (port or 0) < 65536:
        yield invalid(where, port or 0, PORT_RANGE)
