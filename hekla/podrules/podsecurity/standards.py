"""The table of the standards: which check applies at which level since which version, and which
check it replaces."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from hekla.api.text.fieldrules import Tree
from hekla.podrules.podsecurity import baseline, restricted
from hekla.podrules.podsecurity.finding import Check, Finding
from hekla.podrules.podsecurity.levels import BASELINE, PRIVILEGED, RESTRICTED, LevelVersion


class Revision(NamedTuple):
    """A check from one version of Kubernetes until its next revision."""

    id: str
    level: str
    since: int
    """The minor version."""
    check: Check
    overrides: str = ""
    """The check of baseline that this one has in it."""


REVISIONS = (
    Revision("appArmorProfile", BASELINE, 0, baseline.app_armor),
    Revision("capabilities_baseline", BASELINE, 0, baseline.capabilities),
    Revision("hostNamespaces", BASELINE, 0, baseline.host_namespaces),
    Revision("hostPathVolumes", BASELINE, 0, baseline.host_paths),
    Revision("hostPorts", BASELINE, 0, baseline.host_ports),
    Revision("hostProbesAndHostLifecycle", BASELINE, 34, baseline.probed_hosts),
    Revision("privileged", BASELINE, 0, baseline.privileged),
    Revision("procMount", BASELINE, 0, baseline.proc_mount),
    Revision("procMount", BASELINE, 35, baseline.unless_own_users(baseline.proc_mount)),
    Revision("seLinuxOptions", BASELINE, 0, baseline.selinux(baseline.SELINUX)),
    Revision("seLinuxOptions", BASELINE, 31, baseline.selinux(baseline.SELINUX_31)),
    Revision("seccompProfile_baseline", BASELINE, 0, baseline.seccomp_annotations),
    Revision("seccompProfile_baseline", BASELINE, 19, baseline.seccomp),
    Revision("sysctls", BASELINE, 0, baseline.sysctls(baseline.SYSCTLS)),
    Revision("sysctls", BASELINE, 27, baseline.sysctls(baseline.SYSCTLS_27)),
    Revision("sysctls", BASELINE, 29, baseline.sysctls(baseline.SYSCTLS_29)),
    Revision("sysctls", BASELINE, 32, baseline.sysctls(baseline.SYSCTLS_32)),
    Revision("windowsHostProcess", BASELINE, 0, baseline.host_process),
    Revision("allowPrivilegeEscalation", RESTRICTED, 8, restricted.escalation),
    Revision(
        "allowPrivilegeEscalation", RESTRICTED, 25, restricted.unless_windows(restricted.escalation)
    ),
    Revision(
        "capabilities_restricted", RESTRICTED, 22, restricted.capabilities, "capabilities_baseline"
    ),
    Revision(
        "capabilities_restricted",
        RESTRICTED,
        25,
        restricted.unless_windows(restricted.capabilities),
        "capabilities_baseline",
    ),
    Revision("procMount_restricted", RESTRICTED, 35, baseline.proc_mount, "procMount"),
    Revision("restrictedVolumes", RESTRICTED, 0, restricted.volumes, "hostPathVolumes"),
    Revision("runAsNonRoot", RESTRICTED, 0, restricted.non_root),
    Revision("runAsNonRoot", RESTRICTED, 35, baseline.unless_own_users(restricted.non_root)),
    Revision("runAsUser", RESTRICTED, 23, restricted.user),
    Revision("runAsUser", RESTRICTED, 35, baseline.unless_own_users(restricted.user)),
    Revision(
        "seccompProfile_restricted", RESTRICTED, 19, restricted.seccomp, "seccompProfile_baseline"
    ),
    Revision(
        "seccompProfile_restricted",
        RESTRICTED,
        25,
        restricted.unless_windows(restricted.seccomp),
        "seccompProfile_baseline",
    ),
)
"""In the order in which they are made and said: those of baseline first, each level by id, each
check by version."""
NEWEST = max(revision.since for revision in REVISIONS)


@cache
def _checks(level: str, minor: int) -> tuple[Check, ...]:
    found: dict[str, Revision] = {}
    for revision in REVISIONS:
        if revision.since <= minor and revision.level in (BASELINE, level):
            found[revision.id] = revision
    overridden = {revision.overrides for revision in found.values()}
    return tuple(revision.check for revision in found.values() if revision.id not in overridden)


def findings(asked: LevelVersion, metadata: Tree, spec: Tree) -> list[Finding]:
    """The findings of a level in a pod or a pod template."""
    if asked.level == PRIVILEGED:
        return []
    minor = NEWEST if asked.minor is None else min(asked.minor, NEWEST)
    return [
        found
        for check in _checks(asked.level, minor)
        if (found := check(metadata, spec)) is not None
    ]


def in_detail(found: list[Finding]) -> str:
    return ", ".join(f"{one.reason} ({one.detail})" if one.detail else one.reason for one in found)


def in_short(found: list[Finding]) -> str:
    return ", ".join(one.reason for one in found)
