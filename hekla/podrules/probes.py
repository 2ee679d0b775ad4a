"""Probes and lifecycle hooks of a container."""

from __future__ import annotations

import re
from typing import Any

from hekla.api.text.fielderrors import forbidden
from hekla.api.text.fieldrules import Errors, Tree, not_negative
from hekla.api.text.syntax import port_name, port_number
from hekla.podrules.options import Options

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
SCHEMES = ("HTTP", "HTTPS")
GRACE = 30
"""Seconds of grace of a pod that says nothing about it."""
_COUNTS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_is_header = re.compile(r"[-A-Za-z0-9]+").fullmatch
_HEADER = (
    "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is "
    "'[-A-Za-z0-9]+')"
)
_SLEEP = "must be non-negative and less than terminationGracePeriodSeconds ({})"
_SOME_SLEEP = (
    "must be greater than 0 and less than terminationGracePeriodSeconds ({}). Enable AllowPodLifecycleSleepActionZeroValue "
    "feature gate for zero sleep."
)
WINDOWS_SIGNALS = ("SIGKILL", "SIGTERM")
_NAMED = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU "
    "URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX"
)
LINUX_SIGNALS = tuple(
    sorted(
        [f"SIG{name}" for name in _NAMED.split()]
        + [f"SIGRTMIN+{number}" for number in range(1, 16)]
        + [f"SIGRTMAX-{number}" for number in range(1, 15)]
    )
)


def handlers(container: Tree, spec: Tree, path: str, options: Options, found: Errors) -> None:
    """Check the hooks and probes of a container."""
    lifecycle, grace = container.get("lifecycle"), spec.get("terminationGracePeriodSeconds")
    grace = GRACE if grace is None else grace
    if lifecycle:
        for name in ("postStart", "preStop"):
            if lifecycle.get(name) is not None:
                _handler(
                    lifecycle[name],
                    HOOK_HANDLERS,
                    grace,
                    f"{path}.lifecycle.{name}",
                    options,
                    found,
                )
        if lifecycle.get("stopSignal") is not None and not options.features:
            _signal(lifecycle["stopSignal"], spec.get("os"), f"{path}.lifecycle.stopSignal", found)
    for name in PROBES:
        if container.get(name) is not None:
            _probe(container[name], name, grace, f"{path}.{name}", options, found)


def _signal(signal: str, system: Tree | None, path: str, found: Errors) -> None:
    name = (system or {}).get("name")
    if system is None:
        found.forbidden(path, "may not be set for containers with empty `spec.os.name`")
    elif name in ("linux", "windows"):
        signals = LINUX_SIGNALS if name == "linux" else WINDOWS_SIGNALS
        if signal not in signals:
            found.not_supported(path, signal, signals)


def _probe(probe: Tree, name: str, grace: int, path: str, options: Options, found: Errors) -> None:
    _handler(probe, PROBE_HANDLERS, grace, path, options, found)
    for count in _COUNTS:
        not_negative(probe.get(count), f"{path}.{count}", found)
    own = probe.get("terminationGracePeriodSeconds")
    if own is not None and own <= 0:
        found.invalid(f"{path}.terminationGracePeriodSeconds", own, "must be greater than 0")
    if name == "readinessProbe":
        if own is not None:
            found.invalid(
                f"{path}.terminationGracePeriodSeconds", own, "must not be set for readinessProbes"
            )
    elif (probe.get("successThreshold") or 1) != 1:
        found.invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(
    action: Tree, allowed: tuple[str, ...], grace: int, path: str, options: Options, found: Errors
) -> None:
    """Check that a probe or hook has exactly one complete handler."""
    given = [name for name in allowed if action.get(name) is not None]
    if not given:
        found.required(path, "must specify a handler type")
        return
    body, where = action[given[0]], f"{path}.{given[0]}"
    if given[0] == "exec":
        if not body.get("command"):
            found.required(f"{where}.command")
    elif given[0] == "sleep":
        seconds = body.get("seconds") or 0
        if not (0 if options.features else 1) <= seconds <= grace:
            found.invalid(
                where, seconds, (_SLEEP if options.features else _SOME_SLEEP).format(grace)
            )
    else:
        _port(body.get("port"), f"{where}.port", found)
        if given[0] == "httpGet":
            _request(body, where, found)
    found += [
        forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
        for extra in given[1:]
    ]


def _request(body: Tree, path: str, found: Errors) -> None:
    scheme = body.get("scheme")
    if scheme and scheme not in SCHEMES:
        found.not_supported(f"{path}.scheme", scheme, SCHEMES)
    for header in body.get("httpHeaders") or ():
        if not _is_header(header.get("name") or ""):
            found.invalid(f"{path}.httpHeaders", header.get("name") or "", _HEADER)


def _port(port: Any, path: str, found: Errors) -> None:
    reasons = port_name(port) if isinstance(port, str) else port_number(port or 0)
    found.malformed(path, port or ("" if isinstance(port, str) else 0), reasons)
