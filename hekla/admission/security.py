"""Security settings of containers and pods.  Reference: api-and-admission 5.3.5; the texts are Kubernetes'.

Whether a container may be privileged is not asked: that is a cluster's policy, which the pods will meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hekla.admission.fielderrors import duplicate, invalid, required, unsupported
from hekla.admission.review import Tree

LARGEST_ID = 2**31 - 1
ID_RANGE = f"must be between 0 and {LARGEST_ID}, inclusive"
PROC_MOUNTS = ("Default", "Unmasked")
PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
SYSCTL = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
LONGEST_SYSCTL = 253
_IDS = ("runAsUser", "runAsGroup")
_SYSCTL = re.compile(SYSCTL[1:-1])


def container_problems(context: Tree, path: str) -> Iterator[str]:
    yield from _ids(context, path, _IDS)
    mount = context.get("procMount")
    if mount is not None and mount not in PROC_MOUNTS:
        yield unsupported(f"{path}.procMount", mount, PROC_MOUNTS)
    yield from _profiles(context, path)


def pod_problems(context: Tree, path: str) -> Iterator[str]:
    yield from _ids(context, path, ("fsGroup", *_IDS))
    for index, group in enumerate(context.get("supplementalGroups") or []):
        if not 0 <= group <= LARGEST_ID:
            yield invalid(f"{path}.supplementalGroups[{index}]", group, ID_RANGE)
    yield from _sysctls(context.get("sysctls") or [], f"{path}.sysctls")
    for field, choices in (("fsGroupChangePolicy", ("Always", "OnRootMismatch")), ("supplementalGroupsPolicy", ("Merge", "Strict"))):
        value = context.get(field)
        if value is not None and value not in choices:
            yield unsupported(f"{path}.{field}", value, choices)
    yield from _profiles(context, path)


def _ids(context: Tree, path: str, fields: tuple[str, ...]) -> Iterator[str]:
    for field in fields:
        number = context.get(field)
        if number is not None and not 0 <= number <= LARGEST_ID:
            yield invalid(f"{path}.{field}", number, ID_RANGE)


def _profiles(context: Tree, path: str) -> Iterator[str]:
    for field, word in (("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")):
        profile = context.get(field)
        if profile is None:
            continue
        kind, local, where = profile.get("type") or "", profile.get("localhostProfile"), f"{path}.{field}"
        if not kind:
            yield required(f"{where}.type", "type is required when seccompProfile is set" if word == "seccomp" else "")
        elif kind not in PROFILES:
            yield unsupported(f"{where}.type", kind, PROFILES)
        elif kind == "Localhost" and not local:
            yield required(f"{where}.localhostProfile", f"must be set when {word} type is Localhost")
        elif kind != "Localhost" and local is not None:
            yield invalid(f"{where}.localhostProfile", local, f"can only be set when {word} type is Localhost")


def _sysctls(entries: list[Tree], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        name, where = entry.get("name") or "", f"{path}[{index}].name"
        if not name:
            yield required(where)
        elif len(name) > LONGEST_SYSCTL or not _SYSCTL.fullmatch(name):
            yield invalid(where, name, f"must have at most {LONGEST_SYSCTL} characters and match regex {SYSCTL}")
        elif name in seen:
            yield duplicate(where, name)
        seen.add(name)
