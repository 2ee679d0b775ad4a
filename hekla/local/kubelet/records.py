"""What the kubelet keeps on disk of pods and containers, so that it may be killed at any moment and
go on afterwards.

    <root>/pods/<pod uid>/
        pod.json                        namespace, name, address: what is needed of a pod whose
                                        object is already gone
        hosts, volumes/, scratch/       what its containers see
        containers/<name>/<attempt>/    one slot for each time that a container was started
            launch.json                 what to start; written whole before anything starts
            claim                       pid and start time of the process that took the slot;
                                        made by link(2), so at most once
            log, log.times, log.start   output as written, when it grew, and where what is left
                                        of it begins
            err, err.times, err.start   the same of standard error alone, where the pod wants
                                        the two streams apart
            exit                        the exit code, written by the shim; empty while the
                                        container runs
            error                       why it could not be started

A slot is started at most once, whoever tries and however often: the claim decides.  An attempt
without a claim may be started again; an attempt with one is running, ended, or lost with its shim.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hekla.local.machine.processes import start_of

UNKNOWN_EXIT = 137


MEMORY = Path("/dev/shm")
"""The machine's memory as a file system: volumes of medium Memory lie there."""


def name_of(root: Path) -> str:
    """The name for a kubelet's directory where the kubelet makes something outside of it: control
    groups, volumes of memory."""
    return "hekla-" + hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:12]


def container_digest(uid: str, container: str, attempt: int) -> str:
    """The id of one instance of a container: in its pod's status, and the name of its control
    group."""
    return hashlib.sha256(f"{uid}/{container}/{attempt}".encode()).hexdigest()


class Launch(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything that starting one container takes; the spawner reads it as JSON."""

    argv: list[str]
    env: dict[str, str] = {}
    cwd: str = ""
    """Made where it is missing."""
    mounts: list[tuple[str, str, bool]] = []
    """(source on this machine, path in the container, read only)."""
    beneath: dict[str, str] = {}
    """By source, the directory of the volume that it must not lead out of, whatever links a
    container has made there."""
    read_only: bool = False
    """The container may write to its volumes alone."""
    closed: list[str] = []
    """Directories of this machine that the container does not see."""
    shown: list[str] = []
    """What it does see of them, where it is: its working directory, our own programs."""
    fixed: list[str] = []
    """What it may read and not change."""
    machine: bool = False
    """It finds the machine's namespaces at /proc/1."""
    dropped: list[int] = []
    """Numbers of the capabilities that it can never have."""
    no_new_privileges: bool = False
    """Programs that belong to root and say so get nobody root's rights."""
    hostname: str = ""
    user: int | None = None
    group: int | None = None
    groups: list[int] = []
    oom_score: int = 0
    """How much sooner than others the kernel kills it when memory is short: -1000 to 1000."""
    cgroup: str = ""
    """The control groups to join, joined by ":"; empty for none."""
    namespaces: list[str] = []
    """Of user, mount, uts and pid, what this machine allows."""
    network: str = ""
    """Path of the pod's network namespace; empty where it shares the machine's."""
    stdin: bool = False
    """Its standard input stays open for those who attach."""
    stdin_once: bool = False
    """The first who attaches and leaves ends the input."""
    tty: bool = False
    split: bool = False
    """Standard error has a log of its own."""


class StartError(msgspec.Struct):
    """Why a container that was claimed never ran."""

    reason: str
    message: str
    code: int = 128


class PodRecord(msgspec.Struct, rename="camel"):
    """What must be known of a pod without its object."""

    namespace: str
    name: str
    uid: str
    node: str
    address: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Which process took a slot."""

    pid: int
    start: str
    """Start time in the system's form, with the boot that it belongs to, because a pid alone may be
    reused."""

    def alive(self) -> bool:
        """Whether exactly that process still runs."""
        return start_of(self.pid) == self.start


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended."""

    code: int
    finished: float
    """Seconds since the epoch."""
    reason: str = ""
    """Set where it is not simply Completed or Error."""
    message: str = ""


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replaces a file in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


class Slot:
    """One attempt of one container."""

    __slots__ = ("attempt", "container", "directory")
    stream = "log"

    def __init__(self, directory: Path, container: str, attempt: int) -> None:
        self.directory = directory
        self.container = container
        self.attempt = attempt

    @property
    def log(self) -> Path:
        return self.directory / self.stream

    @property
    def log_start(self) -> Path:
        return self.directory / f"{self.stream}.start"

    @property
    def times(self) -> Path:
        return self.directory / f"{self.stream}.times"

    @property
    def errors(self) -> Errors:
        """What was written to standard error, where that is kept apart."""
        return Errors(self.directory, self.container, self.attempt)

    @property
    def split(self) -> bool:
        """Whether the two streams are kept apart."""
        return os.path.exists(self.directory / "err")

    def prepare(self, launch: Launch) -> None:
        """Writes down what is to be started; nothing may start before this is on disk."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.log.touch(mode=0o600)
        if launch.split:
            self.errors.log.touch(mode=0o600)
        write_atomically(self.directory / "launch.json", msgspec.json.encode(launch))

    def launch(self) -> Launch | None:
        try:
            return msgspec.json.decode((self.directory / "launch.json").read_bytes(), type=Launch)
        except (OSError, msgspec.MsgspecError):
            return None

    def claim(self) -> Claim | None:
        """The claim on the slot; None when nobody has it.  One whose content a power cut has lost
        counts as that of a dead process."""
        try:
            text = (self.directory / "claim").read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        pid, _, start = text.strip().partition(" ")
        return (
            Claim(int(pid), start)
            if pid.isascii() and pid.isdigit() and start
            else Claim(0, "lost")
        )

    def started(self) -> float:
        """When the slot was taken, in seconds since the epoch; 0 when it was not."""
        try:
            return (self.directory / "claim").stat().st_mtime
        except OSError:
            return 0.0

    def exit(self) -> Exit | None:
        """How the container ended; None while no exit code is on disk."""
        path = self.directory / "exit"
        try:
            text = path.read_text()
            finished = path.stat().st_mtime
        except OSError:
            return None
        if not text.endswith("\n"):
            return None
        code = int(text)
        try:
            error = msgspec.json.decode((self.directory / "error").read_bytes(), type=StartError)
        except (OSError, msgspec.MsgspecError):
            return Exit(code, finished)
        return Exit(code, finished, error.reason, error.message)

    def give_up(self, reason: str, message: str) -> Exit:
        """Writes down an end that no shim reported; an exit code that is there already wins."""
        if (known := self.exit()) is not None:
            return known
        error = StartError(reason, message, UNKNOWN_EXIT)
        write_atomically(self.directory / "error", msgspec.json.encode(error))
        write_atomically(self.directory / "exit", b"%d\n" % UNKNOWN_EXIT)
        known = self.exit()
        assert known is not None
        return known


class Errors(Slot):
    """A slot as readers of its standard error see it."""

    __slots__ = ()
    stream = "err"

    @property
    def split(self) -> bool:
        return False


class PodDirectory:
    """The directory of one pod."""

    __slots__ = ("path",)

    def __init__(self, root: Path, uid: str) -> None:
        if not uid or "/" in uid or uid.startswith("."):
            raise ValueError(f'"{uid}" is no uid of a pod')  # it is used as a directory's name
        self.path = root / "pods" / uid

    @property
    def hosts(self) -> Path:
        return self.path / "hosts"

    @property
    def volumes(self) -> Path:
        return self.path / "volumes"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def make(self, record: PodRecord) -> None:
        """Makes the directory.  The pod's own users may walk through it, so it is open, below a
        private root."""
        for directory in (self.path, self.volumes, self.scratch, self.path / "containers"):
            directory.mkdir(parents=True, exist_ok=True)
            os.chmod(directory, 0o755)
        os.chmod(self.path.parent, 0o711)  # other users of the machine cannot list the pods
        write_atomically(self.path / "pod.json", msgspec.json.encode(record))

    def record(self) -> PodRecord | None:
        try:
            return msgspec.json.decode((self.path / "pod.json").read_bytes(), type=PodRecord)
        except (OSError, msgspec.MsgspecError):
            return None

    def slot(self, container: str, attempt: int) -> Slot:
        return Slot(self.path / "containers" / container / str(attempt), container, attempt)

    def slots(self) -> Iterator[Slot]:
        """Every attempt of every container, in order."""
        base = self.path / "containers"
        if not base.is_dir():
            return
        for container in sorted(base.iterdir()):
            for attempt in sorted(int(d.name) for d in container.iterdir() if d.name.isdigit()):
                yield Slot(container / str(attempt), container.name, attempt)

    def forget_before(self, container: str, attempt: int) -> None:
        """Removes attempts that nobody can ask for any more: `kubectl logs --previous` reaches one
        back."""
        base = self.path / "containers" / container
        if not base.is_dir():
            return
        for directory in base.iterdir():
            if directory.name.isdigit() and int(directory.name) < attempt:
                shutil.rmtree(directory, ignore_errors=True)

    def remove(self) -> None:
        """Removes everything of the pod."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.rmtree(
            MEMORY / name_of(self.path.parent.parent) / self.path.name, ignore_errors=True
        )


def pod_directories(root: Path) -> Iterator[PodDirectory]:
    """Every pod that has left something on disk."""
    base = root / "pods"
    if base.is_dir():
        for entry in sorted(base.iterdir()):
            if entry.is_dir():
                yield PodDirectory(root, entry.name)
