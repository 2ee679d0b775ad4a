"""What this machine allows the kubelet to use for isolating pods, found out at start by trying.

None of it is required: without it users lose what `survey` names. `hekla doctor` prints the survey.
Reference: local-cluster 8.12.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hekla.local.kubelet.runtime import cgroups
from hekla.local.kubelet.runtime.cgroups import Base
from hekla.local.kubelet.runtime.preload import compiler

SPAWNER = Path(__file__).with_name("spawner.py")
NAMES_FOR_PYTHON = Path(__file__).parents[1] / "substitutes" / "names"
PROBE_TIMEOUT = 20.0
KINDS = ("mount", "uts", "pid")
NETWORK_NEEDS_ROOT = "only root can connect network namespaces with this machine"
MIN_USERS = 65536
"""How many users and groups must be mapped so that containers can run as any of them: images rely
on that."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One means of isolation: whether it is available, why not, and what users lose without it."""

    name: str
    available: bool
    why_not: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What the kubelet may use."""

    namespaces: tuple[str, ...] = ()
    """Of user, mount, uts and pid, as Launch takes them."""
    private_addresses: bool = False
    change_user: bool = False
    cgroup: Base | None = None
    network: bool = False
    """Pods can have a network namespace with an address that the other pods and this machine can
    reach."""
    policies: bool = False
    """Network policies are enforced between pods with such namespaces."""
    findings: tuple[Finding, ...] = field(default=(), compare=False)

    def without(self, wanted: str = "auto") -> str:
        """The isolation that pods lack, as text for the annotation of their node. `wanted` is the
        kubelet's flag --isolation."""
        missing = [finding.name for finding in self.findings if not finding.available]
        if wanted == "none":
            missing = [
                finding.name
                for finding in self.findings
                if finding.name not in ("process group and session", "address of its own")
            ]
        elif not self.network:
            missing += ["network of its own", "network policies"]
        return ", ".join(dict.fromkeys(missing))

    @property
    def unenforced(self) -> str:
        """Why network policies are not enforced; "" if they are."""
        if not self.network:
            return "pods have no network of their own here"
        if self.policies:
            return ""
        return next(
            (finding.why_not for finding in self.findings if finding.name == "network policies"),
            "the kernel does not filter",
        )

    @property
    def mounts(self) -> bool:
        """Whether containers get their own view of the files."""
        return "mount" in self.namespaces


def try_namespaces() -> dict[str, str]:
    """Kind of namespace -> why it is refused, "" if it is available."""
    if sys.platform != "linux":
        return dict.fromkeys(("user", *KINDS), f"{sys.platform} has no namespaces")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SPAWNER), "probe"],
            capture_output=True,
            timeout=PROBE_TIMEOUT,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return dict.fromkeys(("user", *KINDS), f"the attempt failed: {error}")
    return {str(name): str(why) for name, why in answer.items()}


def network_refused() -> tuple[str, str]:
    """Why pods cannot have their own network, and why policies cannot be enforced in it; "" if they
    can."""
    if sys.platform != "linux":
        return (f"{sys.platform} has no network namespaces",) * 2
    if os.geteuid():
        return (NETWORK_NEEDS_ROOT,) * 2
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hekla.local.kubelet.network.probe"],
            capture_output=True,
            timeout=PROBE_TIMEOUT,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return (f"the attempt failed: {error}",) * 2
    network, policies = [*done.stdout.splitlines(), "", ""][:2]
    return network.strip(), policies.strip()


def private_address_refused() -> str:
    """Why pods cannot have their own loopback addresses; "" if they can."""
    try:
        with socket.socket() as one:
            one.bind(("127.83.71.2", 0))
    except OSError as error:
        return f"127.83.71.2 cannot be used: {error.strerror}"
    return ""


def change_of_user_refused(maps: Path = Path("/proc/self")) -> str:
    """Why containers cannot run as other users; "" if they can. `maps` is the directory of this
    process's uid_map and gid_map."""
    if os.geteuid():
        return "only root can change users"
    for name in ("uid_map", "gid_map"):
        try:
            known = sum(int(line.split()[2]) for line in (maps / name).read_text().splitlines())
        except (OSError, ValueError, IndexError):
            continue  # without user namespaces every user is mapped
        if known < MIN_USERS:
            return f"this root is of a user namespace with {known} users"
    return ""


def detect() -> Isolation:
    """Try everything; takes some tens of milliseconds."""
    refused = try_namespaces()
    root = os.geteuid() == 0
    by_user = not root or bool(refused.get("mount"))
    base = ["user"] if by_user else []
    if root and by_user and refused.get("mount by user", "refused"):
        usable: list[str] = []
    else:
        usable = [
            kind
            for kind in KINDS
            if not refused.get(kind) or (root and by_user and kind == "mount")
        ]
    if "mount" not in usable and usable:
        for kind in usable:  # a pid namespace needs its own /proc, and a host name alone is useless
            refused[kind] = "of no use without a private view of the files"
        usable = []
    namespaces = (*base, *usable) if usable else ()
    why = refused.get("mount", "") or NETWORK_NEEDS_ROOT
    network, policies = (
        network_refused() if "mount" in usable and "user" not in base else (why, why)
    )
    address = private_address_refused()
    cgroup, cgroup_refused = cgroups.find()
    users = change_of_user_refused()
    findings = (
        Finding("process group and session", True),
        Finding(
            "private view of the files",
            "mount" in usable,
            refused.get("mount", ""),
            "volumes lie under the pod's directory: their paths are rewritten in the container's command, arguments and environment, "
            "but not inside scripts and programs; names of other pods resolve in "
            + (
                "programs that are linked dynamically"
                if compiler()
                else "Python programs only (with a C compiler: in most)"
            ),
        ),
        Finding(
            "host name of its own",
            "uts" in usable,
            refused.get("uts", ""),
            "`hostname` gives this machine's name; $HOSTNAME is right, and so is gethostname() in Python programs",
        ),
        Finding(
            "process tree of its own",
            "pid" in usable,
            refused.get("pid", ""),
            "a container sees this machine's processes, and one that leaves its session outlives the container",
        ),
        Finding(
            "address of its own",
            not address,
            address,
            "all pods share 127.0.0.1: two of them cannot listen on one port",
        ),
        Finding(
            "user and groups of its choice",
            not users,
            users,
            "runAsUser, runAsGroup and fsGroup are ignored: everything runs as you",
        ),
        Finding(
            "cpu and memory limits",
            cgroup is not None,
            cgroup_refused,
            "limits of cpu are not enforced; memory is looked at twice a second, and a container above its limit is killed",
        ),
        Finding(
            "network of its own",
            not network,
            network,
            "pods share this machine's ports; a program that listens on every address (0.0.0.0) listens on its pod's, "
            "unless it is linked statically"
            if compiler()
            else "a pod that listens on every address (0.0.0.0) takes the port from all others; listen on the pod's name instead, "
            "or install a C compiler",
        ),
        Finding(
            "network policies",
            not policies,
            policies,
            "nothing enforces a NetworkPolicy: every pod reaches every other, and an event on the policy says so",
        ),
    )
    return Isolation(
        namespaces, not address, not users, cgroup, not network, not policies, findings
    )


def survey() -> list[Finding]:
    """What `hekla doctor` prints about the kubelet."""
    return list(detect().findings)


# --- doing without a private view of the files ----------------------------------------------------


class Paths:
    """Replaces mount paths in a container's command and environment by the directories that they
    stand for.

    Only whole path prefixes are replaced: with a volume at /data, that of `cat /data/x` is, those
    of `cat /database` and `my/data` are not.
    """

    def __init__(self, mounts: Iterable[tuple[str, str, bool]]) -> None:
        self.targets = {target: source for source, target, _ in mounts if target != "/"}
        longest = sorted(self.targets, key=len, reverse=True)
        self.pattern = (
            re.compile(rf"(?<![\w./~-])({'|'.join(map(re.escape, longest))})(?![\w-]|\.\w)")
            if longest
            else None
        )

    def rewrite(self, text: str) -> str:
        """The text with all mount paths replaced."""
        if self.pattern is None:
            return text
        return self.pattern.sub(lambda match: self.targets[match[1]], text)

    def rewrite_all(self, texts: Iterable[str]) -> list[str]:
        """Each text with all mount paths replaced."""
        return [self.rewrite(text) for text in texts]


def hints(variables: Mapping[str, str], hosts: Path, paths: Paths) -> dict[str, str]:
    """Environment variables for programs in containers without their own view of the files:
    rewritten values, and where the hosts file is."""
    found = {
        name: value if name == "PATH" else paths.rewrite(value) for name, value in variables.items()
    }
    found["HEKLA_HOSTS"] = str(hosts)
    python = found.get("PYTHONPATH")
    found["PYTHONPATH"] = f"{NAMES_FOR_PYTHON}:{python}" if python else str(NAMES_FOR_PYTHON)
    for target, source in paths.targets.items():
        found["HEKLA_MOUNT_" + re.sub(r"\W", "_", target.strip("/")).upper()] = source
    return found
