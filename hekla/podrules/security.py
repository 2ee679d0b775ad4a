"""Security contexts: users, profiles, sysctls.  Whether a container may be privileged is decided
elsewhere, by the cluster."""

from __future__ import annotations

import re

from hekla.api.text.fieldrules import Errors, Tree, one_of
from hekla.podrules import systems
from hekla.podrules.options import Options
from hekla.podrules.paths import descending

LARGEST_ID = 2**31 - 1
ID_RANGE = f"must be between 0 and {LARGEST_ID}, inclusive"
PROC_MOUNTS = ("Default", "Unmasked")
PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
GROUP_CHANGES = ("Always", "OnRootMismatch")
GROUP_POLICIES = ("Merge", "Strict")
LABEL_CHANGES = ("MountOption", "Recursive")
SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
LONGEST_SYSCTL = 253
LONGEST_PROFILE = 4095
"""Bytes of a path of AppArmor's."""
_is_sysctl = re.compile(SYSCTL[1:-1]).fullmatch
_IDS = ("runAsUser", "runAsGroup")
_OF_IPC = frozenset(
    {
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    }
)


def container(context: Tree, path: str, host_users: bool, found: Errors) -> None:
    """Check the security context of a container.  `host_users`: whether the pod uses the node's
    users."""
    _ids(context, _IDS, path, found)
    mount = context.get("procMount")
    if mount is not None:
        if mount not in PROC_MOUNTS:
            found.not_supported(f"{path}.procMount", mount, PROC_MOUNTS)
        elif mount == "Unmasked" and host_users:
            found.invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    if context.get("allowPrivilegeEscalation") is False:
        _escalation(context, path, found)
    _profiles(context, path, found)


def _escalation(context: Tree, path: str, found: Errors) -> None:
    """A container that is privileged or adds CAP_SYS_ADMIN cannot forbid privilege escalation."""
    if context.get("privileged"):
        found.invalid(
            path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        )
    for capability in (context.get("capabilities") or {}).get("add") or ():
        if capability == "CAP_SYS_ADMIN":
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            found.invalid(path, context, why)


def pod(spec: Tree, path: str, options: Options, found: Errors) -> None:
    """Check the security context of a pod."""
    context = spec.get("securityContext") or {}
    if context:
        _ids(context, ("fsGroup", *_IDS), path, found)
        for position, group in enumerate(context.get("supplementalGroups") or ()):
            if not 0 <= group <= LARGEST_ID:
                found.invalid(f"{path}.supplementalGroups[{position}]", group, ID_RANGE)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.invalid(f"{path}.shareProcessNamespace", True, why)
    if not context:
        return
    if context.get("sysctls"):
        _sysctls(context["sysctls"], spec, f"{path}.sysctls", found)
    for field, choices in (
        ("fsGroupChangePolicy", GROUP_CHANGES),
        ("supplementalGroupsPolicy", GROUP_POLICIES),
    ):
        if context.get(field) is not None:
            one_of(context[field], choices, f"{path}.{field}", found, known=True)
    _profiles(context, path, found)
    if context.get("seLinuxChangePolicy") is not None:
        allowed: tuple[str, ...] = LABEL_CHANGES[1:] if options.features else LABEL_CHANGES
        one_of(
            context["seLinuxChangePolicy"],
            allowed,
            f"{path}.seLinuxChangePolicy",
            found,
            known=True,
        )


def _ids(context: Tree, fields: tuple[str, ...], path: str, found: Errors) -> None:
    for field in fields:
        number = context.get(field)
        if number is not None and not 0 <= number <= LARGEST_ID:
            found.invalid(f"{path}.{field}", number, ID_RANGE)


def _profiles(context: Tree, path: str, found: Errors) -> None:
    if context.get("seccompProfile") is not None:
        _seccomp(context["seccompProfile"], f"{path}.seccompProfile", found)
    if context.get("windowsOptions") is not None:
        systems.windows_options(context["windowsOptions"], f"{path}.windowsOptions", found)
    if context.get("appArmorProfile") is not None:
        _app_armor(context["appArmorProfile"], f"{path}.appArmorProfile", found)


def _seccomp(profile: Tree, path: str, found: Errors) -> None:
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if not kind:
        found.required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in PROFILES:
        found.not_supported(f"{path}.type", kind, PROFILES)
    if kind == "Localhost" and local is None:
        found.required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
    elif kind == "Localhost" and local is not None:
        descending(local, f"{path}.localhostProfile", found)
    elif local is not None:
        found.invalid(
            f"{path}.localhostProfile", profile, "can only be set when seccomp type is Localhost"
        )


def _app_armor(profile: Tree, path: str, found: Errors) -> None:
    kind = profile.get("type") or ""
    local = profile.get("localhostProfile")
    where = f"{path}.localhostProfile"
    if not kind:
        found.required(f"{path}.type", "type is required when appArmorProfile is set")
    elif kind not in PROFILES:
        found.not_supported(f"{path}.type", kind, PROFILES)
    elif kind != "Localhost":
        if local is not None:
            found.invalid(where, local, "can only be set when AppArmor type is Localhost")
    elif not local:
        found.required(where, "must be set when AppArmor type is Localhost")
    else:
        if local != local.strip():
            found.invalid(where, local, "must not be padded with whitespace")
        if len(local.encode()) > LONGEST_PROFILE:
            found.too_long(where, LONGEST_PROFILE)


def _sysctls(entries: list[Tree], spec: Tree, path: str, found: Errors) -> None:
    """Check sysctls: a pod that shares a namespace with its node cannot set the sysctls of that
    namespace."""
    seen: set[str] = set()
    for position, entry in enumerate(entries):
        name, where = entry.get("name") or "", f"{path}[{position}].name"
        if not name:
            found.required(where)
        elif len(name) > LONGEST_SYSCTL or _is_sysctl(name) is None:
            why = f"must have at most {LONGEST_SYSCTL} characters and match regex {SYSCTL}"
            found.invalid(where, name, why)
        elif name in seen:
            found.duplicate(where, name)
        seen.add(name)
        plain = _dotted(name)
        if spec.get("hostNetwork") and plain.startswith("net."):
            found.invalid(where, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and (plain in _OF_IPC or plain.startswith("fs.mqueue.")):
            found.invalid(where, name, "may not be specified when 'hostIPC' is true")


def _dotted(name: str) -> str:
    """The name of a sysctl with dots, whichever of the two separators it is written with."""
    first = next((sign for sign in name if sign in "./"), ".")
    return name.translate(str.maketrans("./", "/.")) if first == "/" else name
