"""Where this machine keeps what the agent reads: paths by environment variables, as in a container
with the host's directories mounted (reference: agent 2.2)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """The paths; those below /host are the machine's own where there is no /host."""

    cgroup: Path
    """Where cgroups are mounted: of v1 a directory a controller."""
    kubelet_root: Path
    """With `cpu_manager_state`."""
    proc_stat: Path
    meminfo: Path
    os_release: Path
    cni_conf: Path
    proc: Path = Path("/proc")
    etc_kubernetes: Path = Path("/etc/kubernetes")
    cgroup_driver: str = ""
    cgroup_version: str = ""
    """Forced by tests."""

    @property
    def pressure(self) -> Path:
        """Pressure stall information, per resource."""
        return self.proc / "pressure"


def machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """What the environment says."""

    def path(variable: str, default: str) -> Path:
        if text := environment.get(variable):
            return Path(text)
        own = Path(default.removeprefix("/host"))
        return Path(default) if Path(default).exists() else own

    sys_fs = path("SYS_FS_PATH", "/sys/fs")
    return Machine(
        cgroup=sys_fs / "cgroup",
        kubelet_root=path("KUBELET_ROOT_DIR", "/var/lib/kubelet"),
        proc_stat=path("PROC_STAT_PATH", "/host/proc/stat"),
        meminfo=path("MEM_INFO_PATH_ENV", "/host/proc/meminfo"),
        os_release=path("HOST_OS_RELEASE", "/host/etc/os-release"),
        cni_conf=path("CNI_CONF_FILE_PATH", "/etc/cni/net.d/cni.conflist"),
        cgroup_driver=environment.get("CGROUP_DRIVER", ""),
        cgroup_version=environment.get("VOLCANO_TEST_CGROUP_VERSION", ""),
    )
