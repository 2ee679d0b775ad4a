"""Which capabilities root keeps in a container, as container engines choose them.

A container runs on this machine's files. Empty directories that are mounted over them keep it away
from the cluster's keys and other pods' secrets (spawner.py); it cannot unmount these, because that
needs CAP_SYS_ADMIN. `privileged: true` keeps all capabilities.
"""

from __future__ import annotations

from hekla.api.kubernetes import core

NAMES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
    "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
    "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
"""In the order of <linux/capability.h>: the position is the capability's number."""
DEFAULT_CAPABILITIES = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)
"""The default of container engines, without MKNOD: here nothing would keep a container from opening
a device that it creates."""


def dropped(security: core.SecurityContext | None) -> list[int]:
    """The numbers of the capabilities that a container does not get."""
    if security is not None and security.privileged:
        return []
    kept = set(DEFAULT_CAPABILITIES)
    asked = security.capabilities if security is not None else None
    if asked is not None:
        gone, more = (_names(texts) for texts in (asked.drop, asked.add))
        kept = (set() if "ALL" in gone else kept - gone) | (set(NAMES) if "ALL" in more else more)
    return [number for number, name in enumerate(NAMES) if name not in kept]


def _names(texts: list[str]) -> set[str]:
    return {text.upper().removeprefix("CAP_") for text in texts}
