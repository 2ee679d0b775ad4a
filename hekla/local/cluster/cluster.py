"""A local cluster as a directory: where its state, logs and sockets are, and the settings it was
made with.

Everything of a cluster is below one directory, so that two clusters side by side share nothing,
`down` and `up` find the same state, and removing the directory removes the cluster.  The processes
of the cluster are a table here: the supervisor walks it, `hekla status` prints it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hekla.api import names
from hekla.api.sizes import MOST_PODS
from hekla.local.machine.files import ClusterError, write_atomically

LONGEST_SOCKET_PATH = 100
"""Bytes: the kernel keeps 108 (104 on macOS) for the path of a Unix socket."""

FIRST_COLOCATION = Path(__file__).with_name("colocation.json")
"""The configuration that a colocation agent begins with; what is in force is in a ConfigMap."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class Settings(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a cluster was made with; kept in cluster.json, so that the next `up` starts the same
    cluster."""

    port: int = 0
    """Port of the HTTPS listener on 127.0.0.1; 0 until one has been chosen."""
    admission_port: int = 0
    """Port of the webhooks, also on 127.0.0.1; kept, so that a restarted webhook server is where it
    was."""
    nodes: int = 1
    node_cpu: str = ""
    """Size of each node as a quantity; empty is the machine's own."""
    node_memory: str = ""
    fake_nodes: int = 0
    fake_node_cpu: str = "32"
    fake_node_memory: str = "256Gi"
    fake_node_pods: int = 110
    node_grace: str = ""
    """How long a node may go without heartbeats before it counts as lost; empty for Kubernetes'
    default."""
    isolation: str = "auto"
    """`none`: pods run without namespaces, as they do on a machine that allows none."""
    images: str = ""
    """A file that adds to the kubelet's table of images."""
    max_job_pods: int = MOST_PODS
    """Pods that one batch job may have; 0 is any number."""
    scheduler_conf: str = ""
    """A policy file of the user's own; empty is scheduler.yaml in the cluster's directory."""
    record: str = ""
    """Where the scheduler records what goes into its cycles; empty is nowhere."""
    metrics_port: int = 0
    """Port on 127.0.0.1 of the scheduler's metrics, the next are the controllers' and the colocation
    agent's; 0 is none."""
    colocation: bool = False
    """Whether online and offline pods share the node, with an agent that keeps them apart."""


@dataclass(frozen=True, slots=True)
class Program:
    """One daemon of the cluster: the name that users see and the arguments that it is started with."""

    name: str
    arguments: tuple[str, ...]
    after: str = ""
    """The program that must have been ready once before this is started for the first time; empty
    where it waits for nobody."""
    environment: tuple[tuple[str, str], ...] = ()
    """What it finds in its environment beside what all do."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "hekla", *self.arguments]


def state_home() -> Path:
    """The directory of all clusters of this user: $XDG_STATE_HOME/hekla, by default
    ~/.local/state/hekla."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "hekla"


def clusters() -> list[Cluster]:
    """Every cluster of this user that was made and not removed, by name."""
    try:
        return [Cluster(file.parent) for file in sorted(state_home().glob("*/cluster.json"))]
    except OSError:
        return []


class Cluster:
    """The directory of one cluster, and the paths in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.pki = self.directory / "pki"
        self.data = self.directory / "data"
        self.logs = self.directory / "logs"
        self.run = self.directory / "run"
        self.pods = self.directory / "pods"
        self.volumes = self.directory / "volumes"
        self.kubeconfig = self.directory / "kubeconfig"
        self.internal_kubeconfig = self.directory / "internal.kubeconfig"
        self.settings_file = self.directory / "cluster.json"
        self.policy = self.directory / "scheduler.yaml"
        self.admission_file = self.directory / "admission.yaml"
        self.status_file = self.run / "status.json"
        self.lock_file = self.run / "supervisor.lock"
        self.command_lock = self.directory.with_name(f".{self.directory.name}.lock")

    @classmethod
    def named(cls, name: str) -> Cluster:
        """The cluster of this name under the user's state directory.  Raises ClusterError for a
        name that is no DNS label."""
        if not NAME.fullmatch(name):
            raise ClusterError(
                f'--name: "{name}" is not a name for a cluster: use up to 40 lower case letters, digits and "-"'
            )
        return cls(state_home() / name)

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def socket(self) -> Path:
        """The API server's Unix socket: in the cluster's directory, or in a private short one where
        that path is too long."""
        inside = self.run / "api.sock"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"hekla-{os.getuid()}-{digest}" / "api.sock"

    @property
    def closed(self) -> list[Path]:
        """Directories that pods must not see: the keys, the sockets and the data, of this cluster
        and of its neighbours."""
        around = self.directory.parent
        return [around if around == state_home().absolute() else self.directory, self.socket.parent]

    def exists(self) -> bool:
        """Whether the cluster was made.  Raises ClusterError where the system does not let this
        user look."""
        try:
            return self.settings_file.exists()
        except OSError as error:
            raise ClusterError(refusal(error)) from error

    @contextmanager
    def held(self, patience: float) -> Iterator[None]:
        """Keep every other command that starts or ends this cluster waiting meanwhile.

        The lock file is beside the cluster's directory, which may be removed and made in between,
        and is removed with it.  Raises ClusterError when another command still holds the lock after
        so many seconds, or where the system refuses.
        """
        descriptor = self._hold(time.monotonic() + patience)
        try:
            yield
        finally:
            if not self.directory.exists():
                self.command_lock.unlink(missing_ok=True)
            os.close(descriptor)

    def _hold(self, deadline: float) -> int:
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            while True:
                descriptor = os.open(self.command_lock, os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                    os.close(descriptor)
                    if time.monotonic() > deadline:
                        raise ClusterError(
                            f'another command (process {holder or "unknown"}) is starting or stopping the cluster "{self.name}"; '
                            "wait for it, or end it, and try again"
                        ) from None
                    time.sleep(0.05)
                    continue
                if self._still_names(descriptor):
                    # The holder's name matters less than that a full disk is reported.
                    with suppress(OSError):
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                    return descriptor
                os.close(descriptor)  # it was removed with a cluster meanwhile
        except OSError as error:
            raise ClusterError(refusal(error)) from error

    def _still_names(self, descriptor: int) -> bool:
        """Whether the opened file is still the one at its path."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.command_lock.stat())
        except FileNotFoundError:
            return False

    def make_directories(self) -> None:
        """Makes the directories, private to the user.  Raises ClusterError where the system
        refuses."""
        try:
            own = (
                self.directory,
                self.pki,
                self.data,
                self.logs,
                self.run,
                self.pods,
                self.volumes,
                self.socket.parent,
            )
            for directory in (self.directory.parent, *own):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ClusterError(refusal(error)) from error
        if self.socket.parent.stat().st_uid != os.getuid():
            raise ClusterError(
                f"{self.socket.parent} belongs to another user; remove it or set TMPDIR"
            )

    def remove_socket_directory(self) -> None:
        """Removes the short directory of the sockets, where there is one."""
        if self.socket.parent != self.run:
            shutil.rmtree(self.socket.parent, ignore_errors=True)

    def delete(self) -> None:
        """Removes everything of the cluster.  Raises ClusterError where the system refuses."""
        try:
            shutil.rmtree(self.directory)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise ClusterError(refusal(error)) from error
        self.remove_socket_directory()

    def settings(self) -> Settings:
        """The settings that the cluster was made with, or the defaults.  Raises ClusterError when
        the file is damaged."""
        try:
            return msgspec.json.decode(self.settings_file.read_bytes(), type=Settings)
        except FileNotFoundError:
            return Settings()
        except OSError as error:
            raise ClusterError(refusal(error)) from error
        except msgspec.MsgspecError as error:
            raise ClusterError(
                f"{self.settings_file} is damaged ({error}); mend it or remove the cluster's directory"
            ) from error

    def keep(self, settings: Settings) -> None:
        """Writes the settings, atomically."""
        write_atomically(self.settings_file, msgspec.json.format(msgspec.json.encode(settings)))

    def keep_policy(self) -> None:
        """Puts the first policy where the user can edit it; one that is there stays."""
        if not self.policy.exists():
            write_atomically(self.policy, Path(__file__).with_name("policy.yaml").read_bytes())

    def nodes_leaving(self, settings: Settings) -> list[str]:
        """The nodes that were run with other settings and are not run with these."""
        from hekla.local.kubelet.nodes.own_nodes import OwnNodes, fake_names, real_names

        return OwnNodes(self.pods).leaving(
            [*real_names(settings.nodes), *fake_names(settings.fake_nodes)]
        )

    def programs(self, settings: Settings) -> list[Program]:
        """The daemons of the cluster in the order in which they are started."""
        internal = f"--kubeconfig={self.internal_kubeconfig}"
        admission = f"https://127.0.0.1:{settings.admission_port}"
        own_bound = optional("max-job-pods", settings.max_job_pods, MOST_PODS)
        # the supervisor runs one of each; leader election would cost seconds at every start
        alone = "--leader-elect=false"
        # what daemons write for each other; the namespace that they have on other clusters is not here
        home = "--leader-elect-resource-namespace=kube-system"
        return [
            Program(
                "apiserver",
                (
                    "apiserver",
                    f"--data-dir={self.data}",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={settings.port}",
                    f"--unix-socket={self.socket}",
                    f"--tls-cert-file={self.pki / 'apiserver.crt'}",
                    f"--tls-private-key-file={self.pki / 'apiserver.key'}",
                    f"--client-ca-file={self.pki / 'ca.crt'}",
                    f"--service-account-key-file={self.pki / 'sa.key'}",
                    f"--kubelet-client-certificate={self.pki / 'kubelet-client.crt'}",
                    f"--kubelet-client-key={self.pki / 'kubelet-client.key'}",
                    f"--proxy-client-cert-file={self.pki / 'front-proxy-client.crt'}",
                    f"--proxy-client-key-file={self.pki / 'front-proxy-client.key'}",
                    f"--requestheader-client-ca-file={self.pki / 'front-proxy-ca.crt'}",
                    # Inside, the rules are as of a daemon without flags; a cluster with a bound of
                    # its own asks the daemon.
                    *(
                        []
                        if own_bound
                        else [f"--inside-webhooks={admission}=hekla.admission.in_process:reviewers"]
                    ),
                    *(
                        [f"--admission-control-config-file={self.admission_file}"]
                        if self.admission_file.exists()
                        else ()
                    ),
                ),
            ),
            Program(
                "admission",
                (
                    "admission",
                    internal,
                    f"--port={settings.admission_port}",
                    f"--ca-cert-file={self.pki / 'ca.crt'}",
                    f"--tls-cert-file={self.pki / 'admission.crt'}",
                    f"--tls-private-key-file={self.pki / 'admission.key'}",
                    f"--webhook-url={admission}",
                    "--enabled-admission=/jobs/mutate,/jobs/validate,/cronjobs/validate,/podgroups/mutate,/podgroups/validate,"
                    "/queues/mutate,/queues/validate,/pods/mutate,/pods/validate,/hypernodes/validate,/jobflows/validate,"
                    "/reservations/mutate,/reservations/validate",
                    *own_bound,
                ),
            ),
            Program(
                "kube-controllers",
                (
                    "kube-controllers",
                    internal,
                    f"--root-ca-file={self.pki / 'ca.crt'}",
                    f"--cluster-signing-cert-file={self.pki / 'ca.crt'}",
                    f"--cluster-signing-key-file={self.pki / 'ca.key'}",
                    f"--storage-dir={self.volumes}",
                    *optional("node-monitor-grace-period", settings.node_grace),
                ),
            ),
            Program(
                "kubelet",
                (
                    "kubelet",
                    internal,
                    f"--root-dir={self.pods}",
                    f"--nodes={settings.nodes}",
                    f"--api-server-address=127.0.0.1:{settings.port}",
                    f"--closed-paths={','.join(str(path) for path in self.closed)}",
                    *(
                        [
                            "--cgroups-per-qos",
                            f"--node-labels={names.COLOCATION}=true,{names.OVERSUBSCRIPTION}=true",
                        ]
                        if settings.colocation
                        else []
                    ),
                    *optional("node-cpu", settings.node_cpu),
                    *optional("node-memory", settings.node_memory),
                    *optional("isolation", settings.isolation, "auto"),
                    *optional("images", settings.images),
                    *(
                        [
                            f"--fake-nodes={settings.fake_nodes}",
                            f"--fake-node-cpu={settings.fake_node_cpu}",
                            f"--fake-node-memory={settings.fake_node_memory}",
                            f"--fake-node-pods={settings.fake_node_pods}",
                        ]
                        if settings.fake_nodes
                        else []
                    ),
                    f"--tls-cert-file={self.pki / 'kubelet.crt'}",
                    f"--tls-private-key-file={self.pki / 'kubelet.key'}",
                    f"--client-ca-file={self.pki / 'ca.crt'}",
                ),
            ),
            Program(
                "controllers",
                ("controllers", internal, alone, home, *own_bound, *metrics(settings, 1)),
            ),
            Program(
                "scheduler",
                (
                    "scheduler",
                    internal,
                    "--default-scheduler",
                    alone,
                    home,
                    f"--scheduler-conf={settings.scheduler_conf or self.policy}",
                    f"--learned-walltimes={self.directory / 'walltimes.db'}",
                    *optional("record", settings.record),
                    *metrics(settings, 0),
                    "--snapshot-address=127.0.0.1:0",
                    f"--client-ca-file={self.pki / 'ca.crt'}",
                ),
                after="kubelet"
                if self.nodes_leaving(settings)
                else "",  # else it would bind pods to them until they are deleted
            ),
            Program(
                "metrics-server",
                (
                    "metrics-server",
                    internal,
                    f"--tls-cert-file={self.pki / 'metrics-server.crt'}",
                    f"--tls-private-key-file={self.pki / 'metrics-server.key'}",
                    f"--tls-ca-file={self.pki / 'ca.crt'}",
                    f"--requestheader-client-ca-file={self.pki / 'front-proxy-ca.crt'}",
                ),
            ),
            *([self.colocation_agent(settings)] if settings.colocation else ()),
        ]

    def colocation_agent(self, settings: Settings) -> Program:
        """The agent of the one node that this machine is.  It looks ten times as often as elsewhere,
        because somebody sits before this machine and waits, and lends all that pods leave idle,
        because here nothing else is kept free for them either.  The directory of best-effort pods
        may be idle: our kubelet does not write its share again."""
        from hekla.local.kubelet.nodes.own_nodes import real_names
        from hekla.local.kubelet.runtime import cgroups

        (node,) = real_names(settings.nodes)
        base, _ = cgroups.find()
        return Program(
            "agent",
            (
                "agent",
                f"--kubeconfig={self.internal_kubeconfig}",
                f"--kube-node-name={node}",
                "--kube-pod-namespace=kube-system",
                "--supported-features=*",
                "--cgroup-driver=cgroupfs",
                "--idle-best-effort=yes",
                f"--kube-cgroup-root={base.cgroup_root(self.pods) if base is not None else ''}",
                "--oversubscription-ratio=100",
                "--sampling-interval=1s",
                f"--default-config={FIRST_COLOCATION}",
                f"--state-dir={self.run / 'agent'}",
                "--healthz-address=127.0.0.1",
                f"--healthz-port={settings.metrics_port + 2 if settings.metrics_port else 0}",
            ),
            after="kubelet",
            environment=(
                ("KUBELET_ROOT_DIR", str(self.pods)),
                ("POD_NETWORK", str(self.pods / "network.json")),
            ),
        )


def metrics(settings: Settings, number: int) -> list[str]:
    """The flags of the `number`th daemon that serves metrics; none where no port is set."""
    if not settings.metrics_port:
        return []
    return ["--enable-metrics", f"--listen-address=127.0.0.1:{settings.metrics_port + number}"]


def optional(flag: str, value: object, default: object = "") -> list[str]:
    """The flag for a setting; none when it is what the daemon takes anyway."""
    return [f"--{flag}={value}"] if value != default else []


HINTS = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "your quota of the disk is used up; free some space and try again",
    errno.EACCES: "choose another place with XDG_STATE_HOME",
    errno.EPERM: "choose another place with XDG_STATE_HOME",
    errno.EROFS: "choose another place with XDG_STATE_HOME",
    errno.EMFILE: 'too many files are open; raise the limit ("ulimit -n")',
}


def refusal(error: OSError) -> str:
    """A message about a file operation that the system refused: which file, why, and what would
    help."""
    hint = HINTS.get(error.errno or 0)
    return f"{error.filename or 'a file'}: {error.strerror or error}" + (
        f": {hint}" if hint else ""
    )
