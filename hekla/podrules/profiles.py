"""Annotations of pods that mean something to Kubernetes.  Most have become fields since, and must
agree with these."""

from __future__ import annotations

import re

from hekla.api.text.fieldrules import Errors, Tree
from hekla.api.text.quoting import quoted
from hekla.podrules.paths import descending
from hekla.podrules.walking import containers_of

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
STATIC = "kubernetes.io/config.mirror"
"""Of a pod that a node runs by itself."""
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
LOCAL = "localhost/"
DEFAULTS = ("runtime/default", "docker/default")
_is_cost = re.compile(r"-?(?:0|[1-9][0-9]*)").fullmatch


def annotated(given: Tree, spec: Tree, path: str, found: Errors) -> None:
    if STATIC in given and not spec.get("nodeName"):
        why = "must set spec.nodeName if mirror pod annotation is set"
        found.invalid(f"{path}[{STATIC}]", given[STATIC], why)
    cost = given.get(DELETION_COST)
    if cost is not None and not (_is_cost(cost) and -(2**31) <= int(cost[:20]) < 2**31):
        found.invalid(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer")
    for key, profile in given.items():
        if key == SECCOMP_POD or key.startswith(SECCOMP):
            _seccomp(profile, f"{path}.{key}", found)
        elif key.startswith(APP_ARMOR):
            _app_armor(key, profile, spec, f"{path}[{key}]", found)


def _seccomp(profile: str, path: str, found: Errors) -> None:
    if profile.startswith(LOCAL):
        descending(profile.removeprefix(LOCAL), path, found)
    elif profile not in (*DEFAULTS, "unconfined"):
        found.invalid(path, profile, "must be a valid seccomp profile")


def _app_armor(key: str, profile: str, spec: Tree, path: str, found: Errors) -> None:
    name = key.removeprefix(APP_ARMOR)
    if all((container.get("name") or "") != name for container, _ in containers_of(spec, "")):
        found.invalid(path, name, "container not found")
    if profile not in ("", DEFAULTS[0], "unconfined") and not profile.startswith(LOCAL):
        found.invalid(path, profile, f"invalid AppArmor profile name: {quoted(profile)}")


def agreement(given: Tree, spec: Tree, path: str, found: Errors, *, inherited: bool = True) -> None:
    """A profile that is set both in an annotation and in its field must be the same.

    `inherited`: whether a container without an AppArmor profile has that of its pod; in a new pod
    it has that of its annotation.
    """
    if not any("security." in key for key in given):
        return
    context = spec.get("securityContext") or {}
    if SECCOMP_POD in given and context.get("seccompProfile") is not None:
        _agrees(
            given[SECCOMP_POD],
            context["seccompProfile"],
            "seccomp",
            DEFAULTS,
            f"{path}.securityContext.seccompProfile",
            found,
        )
    armored = Errors()
    for container, where in containers_of(spec, path):
        own, name = container.get("securityContext") or {}, container.get("name") or ""
        said, field = given.get(SECCOMP + name), own.get("seccompProfile")
        if said is not None and field is not None:
            _agrees(
                said, field, "seccomp", DEFAULTS, f"{where}.securityContext.seccompProfile", found
            )
        said, field = given.get(APP_ARMOR + name), own.get("appArmorProfile")
        if field is None and inherited:
            field = context.get("appArmorProfile")
        if (
            said is not None
            and field is not None
            and (spec.get("os") or {}).get("name") != "windows"
        ):
            _agrees(
                said,
                field,
                "apparmor",
                DEFAULTS[:1],
                f"{where}.securityContext.appArmorProfile",
                armored,
            )
    found += armored


def _agrees(
    said: str, field: Tree, what: str, defaults: tuple[str, ...], path: str, found: Errors
) -> None:
    kind, local = field.get("type"), said.startswith(LOCAL)
    same = {
        "Unconfined": said == "unconfined",
        "RuntimeDefault": said in defaults,
        "Localhost": local,
    }.get(kind or "", True)
    if not same:
        found.forbidden(f"{path}.type", f"{what} type in annotation and field must match")
    elif kind == "Localhost" and said.removeprefix(LOCAL) != field.get("localhostProfile"):
        found.forbidden(
            f"{path}.localhostProfile", f"{what} profile in annotation and field must match"
        )
