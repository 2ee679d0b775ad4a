"""A local cluster as a directory: where its state, logs and sockets live, and the settings it was made with.

Everything that a cluster is stands below one directory, so that two clusters side by side share nothing, `down` and `up`
find the same state, and removing the directory removes the cluster.  The processes of the cluster are a table here: the
supervisor walks it, `hekla status` prints it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

LONGEST_SOCKET_PATH = 100
"""Bytes: the kernel keeps 108 (104 on macOS) for the path of a Unix socket."""

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


class ClusterError(Exception):
    """Something about the cluster that its user must know; the text is the whole message."""


class Settings(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a cluster was made with; kept in cluster.json, so that the next `up` starts the same cluster."""

    port: int = 0
    """Of the HTTPS door on 127.0.0.1; 0 until one has been chosen."""
    admission_port: int = 0
    """Of the webhooks, also on 127.0.0.1; kept, so that a webhook server that starts again is where it was."""
    nodes: int = 1
    node_cpu: str = ""
    """Size of each node as a quantity; empty is the machine's own."""
    node_memory: str = ""
    fake_nodes: int = 0
    fake_node_cpu: str = "32"
    fake_node_memory: str = "256Gi"
    fake_node_pods: int = 110
    node_grace: str = ""
    """How long a node may be silent before it counts as lost; empty is what Kubernetes takes."""
    isolation: str = "auto"
    """Or none: pods go without namespaces, as they do on a machine that allows none."""
    images: str = ""
    """A file that adds to the agent's table of images."""
    scheduler_conf: str = ""
    """A policy file of the user's own; empty is scheduler.yaml in the cluster's directory."""


@dataclass(frozen=True, slots=True)
class Program:
    """One daemon of the cluster: the name that users see and the arguments that it is started with."""

    name: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "hekla", *self.arguments]


def state_home() -> Path:
    """The directory of all clusters of this user: $XDG_STATE_HOME/hekla, by default ~/.local/state/hekla."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "hekla"


class Cluster:
    """The directory of one cluster, and the names of what stands in it."""

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
        self.status_file = self.run / "status.json"
        self.lock_file = self.run / "supervisor.lock"

    @classmethod
    def named(cls, name: str) -> Cluster:
        """The cluster of this name under the user's state directory.  Raises ClusterError for a name that is no DNS label."""
        if not NAME.fullmatch(name):
            raise ClusterError(f'--name: "{name}" is not a name for a cluster: use up to 40 lower case letters, digits and "-"')
        return cls(state_home() / name)

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def socket(self) -> Path:
        """The API server's Unix socket: in the cluster's directory, or in a private short one where that path is too long."""
        inside = self.run / "api.sock"
        if len(os.fsencode(inside)) <= LONGEST_SOCKET_PATH:
            return inside
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"hekla-{os.getuid()}-{digest}" / "api.sock"

    @property
    def closed(self) -> list[Path]:
        """What pods must not see: the keys, the sockets and the data, of this cluster and of its neighbours."""
        around = self.directory.parent
        return [around if around == state_home().absolute() else self.directory, self.socket.parent]

    def exists(self) -> bool:
        """Whether the cluster was made.  Raises ClusterError where the system does not let this user look."""
        try:
            return self.settings_file.exists()
        except OSError as error:
            raise ClusterError(refusal(error)) from error

    def make_directories(self) -> None:
        """Makes the directories, private to the user.  Raises ClusterError where the system refuses."""
        try:
            own = (self.directory, self.pki, self.data, self.logs, self.run, self.pods, self.volumes, self.socket.parent)
            for directory in (self.directory.parent, *own):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ClusterError(refusal(error)) from error
        if self.socket.parent.stat().st_uid != os.getuid():
            raise ClusterError(f"{self.socket.parent} belongs to another user; remove it or set TMPDIR")

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
        """The settings that the cluster was made with, or the defaults.  Raises ClusterError when the file is damaged."""
        try:
            return msgspec.json.decode(self.settings_file.read_bytes(), type=Settings)
        except FileNotFoundError:
            return Settings()
        except OSError as error:
            raise ClusterError(refusal(error)) from error
        except msgspec.MsgspecError as error:
            raise ClusterError(f"{self.settings_file} is damaged ({error}); mend it or remove the cluster's directory") from error

    def keep(self, settings: Settings) -> None:
        """Writes the settings, atomically."""
        write_atomically(self.settings_file, msgspec.json.format(msgspec.json.encode(settings)))

    def keep_policy(self) -> None:
        """Puts the first policy where the user can edit it; one that is there stays."""
        if not self.policy.exists():
            write_atomically(self.policy, Path(__file__).with_name("policy.yaml").read_bytes())

    def programs(self, settings: Settings) -> list[Program]:
        """The daemons of the cluster in the order in which they are started."""
        internal = f"--kubeconfig={self.internal_kubeconfig}"
        admission = f"https://127.0.0.1:{settings.admission_port}"
        alone = "--leader-elect=false"  # the supervisor runs one of each; an election would cost seconds at every start
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
                    f"--inside-webhooks={admission}=hekla.admission.inside:reviewers",
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
                    "/queues/mutate,/queues/validate,/pods/mutate,/pods/validate,/hypernodes/validate,/jobflows/validate",
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
                    *([f"--node-monitor-grace-period={settings.node_grace}"] if settings.node_grace else []),
                ),
            ),
            Program(
                "agent",
                (
                    "agent",
                    internal,
                    f"--root-dir={self.pods}",
                    f"--nodes={settings.nodes}",
                    f"--api-server-address=127.0.0.1:{settings.port}",
                    f"--closed-paths={','.join(str(path) for path in self.closed)}",
                    *([f"--node-cpu={settings.node_cpu}"] if settings.node_cpu else []),
                    *([f"--node-memory={settings.node_memory}"] if settings.node_memory else []),
                    *([f"--isolation={settings.isolation}"] if settings.isolation != "auto" else []),
                    *([f"--images={settings.images}"] if settings.images else []),
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
            Program("controllers", ("controllers", internal, alone)),
            Program(
                "scheduler",
                (
                    "scheduler",
                    internal,
                    "--default-scheduler",
                    alone,
                    f"--scheduler-conf={settings.scheduler_conf or self.policy}",
                ),
            ),
        ]


HINTS = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "your quota of the disk is used up; free some space and try again",
    errno.EACCES: "choose another place with XDG_STATE_HOME",
    errno.EPERM: "choose another place with XDG_STATE_HOME",
    errno.EROFS: "choose another place with XDG_STATE_HOME",
    errno.EMFILE: 'too many files are open; raise the limit ("ulimit -n")',
}


def refusal(error: OSError) -> str:
    """A message for what the system refused: which file, why, and what would help."""
    hint = HINTS.get(error.errno or 0)
    return f"{error.filename or 'a file'}: {error.strerror or error}" + (f": {hint}" if hint else "")


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file in one step, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # a write that fails names no file
        raise
