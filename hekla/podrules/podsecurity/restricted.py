"""The further checks of the level restricted, which enforces hardening."""

from __future__ import annotations

from hekla.api.text.fieldrules import Tree
from hekla.podrules.podsecurity import baseline
from hekla.podrules.podsecurity.finding import (
    Check,
    Finding,
    containers,
    context_of,
    in_quotes,
    name_of,
    named,
    plural,
    setters,
    use,
)

VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
OTHER_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd", "flexVolume", "cinder",
    "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume",
    "scaleIO", "storageos",
)  # fmt: skip


def escalation(metadata: Tree, spec: Tree) -> Finding | None:
    bad = [
        name_of(one)
        for one in containers(spec)
        if context_of(one).get("allowPrivilegeEscalation") is not False
    ]
    if not bad:
        return None
    detail = f"{named('container', bad)} must set securityContext.allowPrivilegeEscalation=false"
    return Finding("allowPrivilegeEscalation != false", detail)


def capabilities(metadata: Tree, spec: Tree) -> Finding | None:
    keeping, adding, added = [], [], set[str]()
    for container in containers(spec):
        said = context_of(container).get("capabilities") or {}
        if "ALL" not in (said.get("drop") or ()):
            keeping.append(name_of(container))
        more = {name for name in said.get("add") or () if name != "NET_BIND_SERVICE"}
        if more:
            adding.append(name_of(container))
            added |= more
    details = []
    if keeping:
        details.append(
            f'{named("container", keeping)} must set securityContext.capabilities.drop=["ALL"]'
        )
    if adding:
        details.append(
            f"{named('container', adding)} must not include {in_quotes(sorted(added))} in securityContext.capabilities.add"
        )
    return Finding("unrestricted capabilities", "; ".join(details)) if details else None


def volumes(metadata: Tree, spec: Tree) -> Finding | None:
    bad, kinds = [], set[str]()
    for volume in spec.get("volumes") or ():
        sources = {name for name, value in volume.items() if value is not None}
        if not sources & VOLUMES:
            bad.append(name_of(volume))
            kinds.add(next((name for name in OTHER_VOLUMES if name in sources), "unknown"))
    if not bad:
        return None
    what = plural("restricted volume type", kinds)
    return Finding(
        "restricted volume types",
        f"{named('volume', bad)} {use(bad)} {what} {in_quotes(sorted(kinds))}",
    )


def non_root(metadata: Tree, spec: Tree) -> Finding | None:
    pod = context_of(spec).get("runAsNonRoot")
    said = [(name_of(one), context_of(one).get("runAsNonRoot")) for one in containers(spec)]
    bad = [name for name, value in said if value is False]
    reason = "runAsNonRoot != true"
    if pod is False or bad:
        return Finding(
            reason, f"{setters(pod is False, bad)} must not set securityContext.runAsNonRoot=false"
        )
    silent = [] if pod else [name for name, value in said if value is None]
    return (
        Finding(
            reason,
            f"pod or {named('container', silent)} must set securityContext.runAsNonRoot=true",
        )
        if silent
        else None
    )


def user(metadata: Tree, spec: Tree) -> Finding | None:
    pod = context_of(spec).get("runAsUser") == 0
    bad = [name_of(one) for one in containers(spec) if context_of(one).get("runAsUser") == 0]
    return (
        Finding("runAsUser=0", f"{setters(pod, bad)} must not set runAsUser=0")
        if pod or bad
        else None
    )


def seccomp(metadata: Tree, spec: Tree) -> Finding | None:
    """The pod or each container must have a seccomp profile."""
    found = baseline.seccomp(metadata, spec)
    if found is not None or context_of(spec).get("seccompProfile") is not None:
        return found
    silent = [
        name_of(one) for one in containers(spec) if context_of(one).get("seccompProfile") is None
    ]
    if not silent:
        return None
    wanted = " or ".join(f'"{kind}"' for kind in baseline.CONFINED)
    detail = f"pod or {named('container', silent)} must set securityContext.seccompProfile.type to {wanted}"
    return Finding("seccompProfile", detail)


def unless_windows(check: Check) -> Check:
    """The check for pods that are not of Windows, which has no such feature."""

    def relaxed(metadata: Tree, spec: Tree) -> Finding | None:
        return None if (spec.get("os") or {}).get("name") == "windows" else check(metadata, spec)

    return relaxed
