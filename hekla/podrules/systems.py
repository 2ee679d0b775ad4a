"""Operating systems: fields that pods of one cannot set, and options of Windows."""

from __future__ import annotations

import re

from hekla.api.text.fielderrors import forbidden, invalid
from hekla.api.text.fieldrules import Errors, Tree
from hekla.api.text.syntax import dns_subdomain
from hekla.podrules.walking import KINDS, containers_of

SYSTEMS = ("linux", "windows")
LARGEST_CREDENTIALS = 64
"""KiB of a description of an account of Windows."""
LONGEST_DOMAIN, LONGEST_USER = 256, 104
NOT_ON_WINDOWS = "cannot be set for a windows pod"
_OF_PODS = (
    ("securityContext.appArmorProfile", "appArmorProfile"), ("securityContext.seLinuxOptions", "seLinuxOptions"),
    ("hostUsers", ""), ("hostPID", ""), ("hostIPC", ""), ("securityContext.seccompProfile", "seccompProfile"),
    ("securityContext.fsGroup", "fsGroup"), ("securityContext.fsGroupChangePolicy", "fsGroupChangePolicy"),
    ("securityContext.sysctls", "sysctls"), ("shareProcessNamespace", ""), ("securityContext.runAsUser", "runAsUser"),
    ("securityContext.runAsGroup", "runAsGroup"), ("securityContext.supplementalGroups", "supplementalGroups"),
    ("securityContext.supplementalGroupsPolicy", "supplementalGroupsPolicy"),
    ("securityContext.seLinuxChangePolicy", "seLinuxChangePolicy"),
)  # fmt: skip
"""Path below the spec, and the field of the security context that it is (none: it is one of the
spec)."""
_OF_CONTAINERS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
_EMPTY_IS_NONE = frozenset({"hostPID", "hostIPC", "sysctls"})
_has_control = re.compile(r"[\x00-\x1f\x7f]").search
_is_netbios = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}').fullmatch
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_is_domain = re.compile(rf"{_LABEL}(?:\.{_LABEL})*").fullmatch
_has_bad_sign = re.compile(r'["/\\:;|=,+*?<>@\[\]]').search
_is_dots = re.compile(r"[. ]+").fullmatch


def check(spec: Tree, path: str, found: Errors) -> None:
    """Check `spec.os`, and the fields that do not go with it."""
    name = spec["os"].get("name") or ""
    if not name:
        found.required(f"{path}.os.name")
    elif name not in SYSTEMS:
        found.not_supported(f"{path}.os", name, SYSTEMS)
    elif name == "linux":
        _linux(spec, path, found)
    else:
        _windows(spec, path, found)


def _linux(spec: Tree, path: str, found: Errors) -> None:
    if (spec.get("securityContext") or {}).get("windowsOptions") is not None:
        why = "windows options cannot be set for a linux pod"
        found.forbidden(f"{path}.securityContext.windowsOptions", why)
    for container, where in containers_of(spec, path):
        if (container.get("securityContext") or {}).get("windowsOptions") is not None:
            why = "windows options cannot be set for a linux pod"
            found.forbidden(f"{where}.securityContext.windowsOptions", why)


def _windows(spec: Tree, path: str, found: Errors) -> None:
    context = spec.get("securityContext") or {}
    for where, field in _OF_PODS:
        value = context.get(field) if field else spec.get(where)
        if value is not None and (value or (field or where) not in _EMPTY_IS_NONE):
            found.forbidden(f"{path}.{where}", NOT_ON_WINDOWS)
    for container, where in containers_of(spec, path):
        own = container.get("securityContext") or {}
        found += [
            forbidden(f"{where}.securityContext.{field}", NOT_ON_WINDOWS)
            for field in _OF_CONTAINERS
            if own.get(field) is not None
        ]


def windows_options(options: Tree, path: str, found: Errors) -> None:
    name = options.get("gmsaCredentialSpecName")
    credentials = options.get("gmsaCredentialSpec")
    user = options.get("runAsUserName")
    if name is not None:
        found.malformed(f"{path}.gmsaCredentialSpecName", name, dns_subdomain(name))
    if credentials is not None:
        where = f"{path}.gmsaCredentialSpec"
        if not credentials:
            found.invalid(where, credentials, "gmsaCredentialSpec cannot be an empty string")
        elif len(credentials.encode()) > LARGEST_CREDENTIALS * 1024:
            why = f"gmsaCredentialSpec size must be under {LARGEST_CREDENTIALS} KiB"
            found.invalid(where, credentials, why)
    if user is not None:
        found += [
            invalid(f"{path}.runAsUserName", user, f"runAsUserName{reason}")
            for reason in _user_reasons(user)
        ]


def _user_reasons(text: str) -> list[str]:
    if not text:
        return [" cannot be an empty string"]
    if _has_control(text):
        return [" cannot contain control characters"]
    if text.count("\\") > 1:
        return [" cannot contain more than one backslash"]
    domain, slash, user = text.rpartition("\\")
    reasons = []
    if len(domain) >= LONGEST_DOMAIN:
        reasons.append(f"'s Domain length must be under {LONGEST_DOMAIN} characters")
    if slash and not (_is_netbios(domain) or _is_domain(domain)):
        reasons.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        reasons.append("'s User cannot be empty")
    elif len(user) > LONGEST_USER:
        reasons.append(f"'s User length must not be longer than {LONGEST_USER} characters")
    if _is_dots(user):
        reasons.append("'s User cannot contain only periods or spaces")
    if _has_bad_sign(user):
        reasons.append("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return reasons


def has_options(spec: Tree) -> bool:
    """Whether a spec has any option of Windows."""
    if "windowsOptions" in (spec.get("securityContext") or ()):
        return True
    for kind in KINDS:
        for container in spec.get(kind) or ():
            if "windowsOptions" in (container.get("securityContext") or ()):
                return True
    return False


def _host_process(context: Tree | None) -> bool | None:
    given: bool | None = ((context or {}).get("windowsOptions") or {}).get("hostProcess")
    return given


def host_processes(spec: Tree, path: str, found: Errors) -> None:
    """Check Windows host process containers: all containers of a pod are, or none."""
    whole = _host_process(spec.get("securityContext"))
    count = those = 0
    for container, where in containers_of(spec, path):
        own = _host_process(container.get("securityContext"))
        count += 1
        those += bool(whole if own is None else own)
        if whole is not None and own is not None and whole != own:
            why = f"pod hostProcess value must be identical if both are specified, was {str(whole).lower()}"
            found.invalid(f"{where}.securityContext.windowsOptions.hostProcess", own, why)
    if not those:
        return
    if those != count:
        why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        found.invalid(path, "", why)
    if not spec.get("hostNetwork"):
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        found.invalid(f"{path}.hostNetwork", False, why)
