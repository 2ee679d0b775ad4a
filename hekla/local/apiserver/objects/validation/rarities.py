"""The rules of what few pods say: aliases of hosts, kernel parameters, gates of readiness, an operating system, claims of devices."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.errors import duplicate, invalid, not_supported, required
from hekla.local.apiserver.objects.validation.metadata import Errors

Json = dict[str, Any]

FIELDS = frozenset(("hostAliases", "readinessGates", "os", "resourceClaims", "shareProcessNamespace"))
"""Fields of a spec that are looked at here."""
SYSTEMS = ("linux", "windows")
SYSCTL_LONGEST = 253
SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
_is_sysctl = re.compile(SYSCTL[:-1] + r"\Z").match
_CLAIM_FORMS = ("resourceClaimName", "resourceClaimTemplateName")


def check(spec: Json, path: str, found: Errors) -> None:
    for position, alias in enumerate(spec.get("hostAliases") or ()):
        _alias(alias, f"{path}.hostAliases[{position}]", found)
    for position, gate in enumerate(spec.get("readinessGates") or ()):
        text = gate.get("conditionType") or ""
        found += [invalid(f"{path}.readinessGates[{position}].conditionType", text, why) for why in names.qualified_name(text)]
    system = spec.get("os")
    if system is not None and not system.get("name"):
        found.append(required(f"{path}.os.name"))
    elif system is not None and system["name"] not in SYSTEMS:
        found.append(not_supported(f"{path}.os", system["name"], SYSTEMS))
    _claims(spec.get("resourceClaims") or [], f"{path}.resourceClaims", found)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(f"{path}.securityContext.shareProcessNamespace", True, why))


def sysctls(entries: list[Json], path: str, found: Errors) -> None:
    """Kernel parameters of a pod's security context."""
    seen: set[str] = set()
    for position, entry in enumerate(entries):
        name, where = entry.get("name") or "", f"{path}[{position}].name"
        if not name:
            found.append(required(where))
        elif len(name) > SYSCTL_LONGEST or _is_sysctl(name) is None:
            found.append(invalid(where, name, f"must have at most {SYSCTL_LONGEST} characters and match regex {SYSCTL}"))
        elif name in seen:
            found.append(duplicate(where, name))
        seen.add(name)


def _alias(alias: Json, path: str, found: Errors) -> None:
    address = alias.get("ip") or ""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        found.append(invalid(f"{path}.ip", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
    for position, name in enumerate(alias.get("hostnames") or ()):
        found += [invalid(f"{path}.hostnames[{position}]", name, why) for why in names.dns_subdomain(name)]


def _claims(claims: list[Json], path: str, found: Errors) -> None:
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        name, where = claim.get("name") or "", f"{path}[{position}]"
        if not name:
            found.append(required(f"{where}.name"))
        elif name in seen:
            found.append(duplicate(f"{where}.name", name))
        else:
            found += [invalid(f"{where}.name", name, why) for why in names.dns_label(name)]
        seen.add(name)
        given = [form for form in _CLAIM_FORMS if claim.get(form) is not None]
        if len(given) == len(_CLAIM_FORMS):
            found.append(invalid(where, claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
        elif not given:
            found.append(invalid(where, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
        for form in given:
            found += [invalid(f"{where}.{form}", claim[form], why) for why in names.dns_subdomain(claim[form])]
