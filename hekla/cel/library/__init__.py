"""The functions that expressions may call.  A module is imported when an expression names one of
its functions for the first time."""

from __future__ import annotations

from importlib import import_module

from hekla.cel.functions import FUNCTIONS, Overload

_MODULES: dict[str, str] = {
    "access": "path group serviceAccount resource subresource namespace name fieldSelector labelSelector check errored error allowed "
    "reason jsonpatch.escapeKey",
    "formats": "validate",
    "lists": "isSorted min max sum indexOf lastIndexOf slice flatten lists.range distinct reverse sort first last sets.contains "
    "sets.equivalent sets.intersects",
    "moments": "getFullYear getMonth getDayOfYear getDayOfMonth getDate getDayOfWeek getHours getMinutes getSeconds getMilliseconds",
    "network": "ip isIP ip.isCanonical family isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast cidr "
    "isCIDR containsIP containsCIDR prefixLength masked",
    "optionals": "optional.of optional.ofNonZeroValue optional.none hasValue value or orValue optional.unwrap unwrapOpt",
    "quantity": "quantity isQuantity sign isGreaterThan isLessThan compareTo asApproximateFloat asInteger isInteger add sub",
    "regex": "matches find findAll",
    "semver": "semver isSemver major minor patch isGreaterThan isLessThan compareTo",
    "strings": "charAt indexOf lastIndexOf lowerAscii upperAscii replace split substring trim join format strings.quote",
    "urls": "url isURL getScheme getHost getHostname getPort getEscapedPath getQuery",
}
_OF: dict[str, list[str]] = {}
for _module, _names in _MODULES.items():
    for _name in _names.split():
        _OF.setdefault(_name, []).append(_module)


def load(module: str) -> None:
    import_module(f"hekla.cel.library.{module}")


def known(name: str) -> bool:
    return name in FUNCTIONS or name in _OF or name.startswith("format.")


def overloads(name: str) -> list[Overload] | None:
    """All overloads of a function; None where there is no such function."""
    for module in _OF.pop(name, ()):
        load(module)
    if name.startswith("format."):
        load("formats")
    return FUNCTIONS.get(name)


load("operators")
