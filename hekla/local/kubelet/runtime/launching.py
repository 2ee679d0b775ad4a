"""What a container is started with: command, environment, user, mounts and limits. Reference:
local-cluster 8.6 to 8.8, 8.12."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hekla.api.kubernetes import core
from hekla.local.kubelet import environment
from hekla.local.kubelet.host import Host
from hekla.local.kubelet.hosts import kernel_hostname
from hekla.local.kubelet.pods import containers
from hekla.local.kubelet.records import Launch, PodDirectory
from hekla.local.kubelet.runtime import capabilities, isolation, preload
from hekla.local.kubelet.runtime.pod_groups import oom_score
from hekla.local.kubelet.volumes import volumes

SPLIT_LOG_STREAMS = "hekla.io/split-log-streams"
"""An annotation of a pod: `true` keeps standard output and standard error apart."""


@dataclass(slots=True)
class Launching:
    """A pod that is ready for its containers: everything that they have in common."""

    host: Host
    pod: core.Pod
    directory: PodDirectory
    volumes: dict[str, Path]
    """Name of a volume -> its directory."""
    sources: environment.Sources
    address: str
    network_namespace: str | None
    """The path of the pod's network namespace; "" or None if it shares the machine's."""
    warn: Callable[[str, str, str], None]
    """(reason, message, container) of problems that do not keep the container from starting."""

    def of(self, spec: core.Container, attempt: int) -> Launch:
        """What to start for a container. Raises ImageError, ConfigError, MountError."""
        pod, host = self.pod, self.host
        image = host.image_environment()
        if programs := host.images.path(spec.image):
            image["PATH"] = ":".join((*programs, image["PATH"]))
        if not spec.command:
            image["HEKLA_POD_IP"] = (
                self.address
                if host.isolation.private_addresses and not self.network_namespace
                else ""
            )
        built = environment.build(pod, spec, self.sources, image)
        if built.skipped:
            names = ", ".join(built.skipped)
            self.warn(
                "InvalidEnvironmentVariableNames",
                f"Keys [{names}] were skipped: they are no names of variables",
                spec.name,
            )
        known = built.variables
        command = [environment.expand(word, known) for word in spec.command]
        args = [environment.expand(word, known) for word in spec.args]
        port = spec.ports[0].container_port if spec.ports else None
        argv = host.images.argv(spec.image, command, args, port)
        user, group, groups = user_of(pod, spec)
        security = spec.security_context or core.SecurityContext()
        whole = pod.spec.security_context or core.PodSecurityContext()
        refuses_root = (
            whole.run_as_non_root if security.run_as_non_root is None else security.run_as_non_root
        )
        if (
            refuses_root
            and (user if user is not None and host.isolation.change_user else os.geteuid()) == 0
        ):
            raise environment.ConfigError("container has runAsNonRoot and image will run as root")
        slot = self.directory.slot(spec.name, attempt)
        slot.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = self.directory.scratch / spec.name
        scratch.mkdir(exist_ok=True)
        os.chmod(scratch, 0o777)
        mounts, beneath = volumes.mounts(spec, self.volumes, known)
        message = spec.termination_message_path or "/dev/termination-log"
        mounts.append((str(containers.message_file(slot)), message, False))
        cwd = environment.expand(spec.working_dir, known)
        if host.isolation.mounts:
            if not pod.spec.host_network or not any(
                target == "/etc/hosts" for _, target, _ in mounts
            ):
                mounts.append((str(self.directory.hosts), "/etc/hosts", False))
            taken = {target for _, target, _ in mounts}
            if (
                self.network_namespace
                or pod.spec.dns_policy == "None"
                or pod.spec.dns_config is not None
            ):
                mounts.append((str(self.directory.path / "resolv.conf"), "/etc/resolv.conf", False))
                if self.network_namespace and (switch := host.names.name_switch()) is not None:
                    mounts.append((switch, "/etc/nsswitch.conf", True))
            if os.path.exists("/etc/hostname"):
                mounts.append((str(self.directory.path / "hostname"), "/etc/hostname", False))
            mounts = [
                entry for at, entry in enumerate(mounts) if at < len(taken) or entry[1] not in taken
            ]
            if (
                cwd
                and not os.path.isdir(cwd)
                and not any((cwd + "/").startswith(t.rstrip("/") + "/") for _, t, _ in mounts)
            ):
                mounts.append((str(scratch), cwd, False))
        else:
            paths = isolation.Paths(mounts)
            argv = paths.rewrite_all(argv)
            known = isolation.hints(known, self.directory.hosts, paths)
            cwd = paths.rewrite(cwd) if cwd else cwd
            mounts = []
            if cwd and not os.path.isdir(cwd):
                cwd = str(scratch)
        if library := self.preloaded(user, mounts):
            own_name = "" if "uts" in host.isolation.namespaces else kernel_hostname(pod)
            known = preload.variables(known, library, self.address, own_name)
        cgroup = host.groups.make(pod, spec, attempt) if host.groups is not None else ""
        return Launch(
            argv=argv,
            env=known,
            cwd=cwd or str(scratch),
            mounts=mounts,
            hostname=kernel_hostname(pod),
            oom_score=oom_score(pod, spec, host.memory),
            cgroup=cgroup,
            user=user if host.isolation.change_user else None,
            group=group if host.isolation.change_user else None,
            groups=groups if host.isolation.change_user else [],
            beneath=beneath,
            namespaces=[
                kind for kind in host.isolation.namespaces if kind != "pid" or not pod.spec.host_pid
            ],
            read_only=bool(security.read_only_root_filesystem),
            closed=host.closed,
            shown=host.shown(scratch),
            fixed=self.fixed(security),
            machine=self.reaches_machine(security),
            dropped=capabilities.dropped(security) if host.isolation.mounts else [],
            no_new_privileges=security.allow_privilege_escalation is False,
            stdin=spec.stdin,
            stdin_once=spec.stdin_once,
            tty=spec.tty,
            split=not spec.tty
            and (pod.metadata.annotations or {}).get(SPLIT_LOG_STREAMS) == "true",
            network=self.network_namespace or "",
        )

    def fixed(self, security: core.SecurityContext) -> list[str]:
        """Paths that the container sees and may not write. A privileged container could remount
        them."""
        if not self.host.isolation.mounts or security.privileged:
            return []
        return [*self.host.programs, str(self.host.root / "bin")]

    def reaches_machine(self, security: core.SecurityContext) -> bool:
        """Whether /proc/1 in the container is to lead to the machine's namespaces, as for a pod
        with hostPID on Kubernetes."""
        return bool(
            security.privileged
            and self.pod.spec.host_pid
            and self.host.isolation.mounts
            and os.geteuid() == 0
        )

    def preloaded(self, user: int | None, mounts: list[tuple[str, str, bool]]) -> str:
        """The path of the library that separates ports and names, as the container sees it; "" if
        it gets none."""
        host = self.host
        if not host.preload or self.network_namespace or self.pod.spec.host_network:
            return ""
        # At its own path: a volume may be mounted over the kubelet's directory.
        if host.isolation.mounts:
            mounts.append((host.preload, preload.MOUNT_PATH, True))
            return preload.MOUNT_PATH
        # Other users cannot read the directory.
        return host.preload if user is None or not host.isolation.change_user else ""


def user_of(pod: core.Pod, spec: core.Container) -> tuple[int | None, int | None, list[int]]:
    """(user, group, supplementary groups) of a container."""
    whole = pod.spec.security_context or core.PodSecurityContext()
    own = spec.security_context or core.SecurityContext()
    user = own.run_as_user if own.run_as_user is not None else whole.run_as_user
    group = own.run_as_group if own.run_as_group is not None else whole.run_as_group
    groups = [*whole.supplemental_groups, *([whole.fs_group] if whole.fs_group is not None else [])]
    if user is not None and group is None:
        group = 0
    return user, group, groups
