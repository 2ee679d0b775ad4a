"""Starts containers: a small process beside the kubelet that forks cheaply and makes the namespaces.

Run as a script with nothing but the standard library, because what it imports every fork pays for.
It reads lines `<id> <slot directory>` and answers `<id> <pid> <start>` or `<id> ! <message>`.  Each
container becomes two processes: the command, and above it a shim, a shell that waits for it and
writes its exit code into the slot.  So the spawner and the kubelet may both be killed: containers run
on, their output goes straight to their files, and their exit codes are kept.

The order in `begin` matters: everything that can fail comes before the claim, except looking up the
command, whose failure is the container's own.  Called as `spawner.py probe` it says which
namespaces this machine allows, by trying.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:  # the real `typing` costs every fork its memory
    from collections.abc import Callable
    from typing import Any, NoReturn

SHIM = 'exec 4>&2 2>/dev/null; (exec "$@" 2>&4 3>&- 4>&-); echo $? >&3'
"""Waits for the command.  The shell's own remarks ("Terminated") must not reach the log, hence the
detour by descriptor 4, and the subshell, because dash would point its own standard error there too
while it waits.
"""
SHIM_AT_TERMINAL = "trap : INT QUIT HUP TERM; " + SHIM
"""^C at the container's terminal is for the command; the shim, which is in the same group, goes
on waiting."""
SWEEP = "; kill -9 0"
"""Without a pid namespace: ends what the command has left behind in its process group, and the
shim itself."""

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
CLONE_NEWNET = 0x40000000
FLAGS = {"user": CLONE_NEWUSER, "mount": CLONE_NEWNS, "uts": CLONE_NEWUTS, "pid": CLONE_NEWPID}
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_UNBINDABLE, MS_PRIVATE = 1 << 17, 1 << 18
PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 24, 36, 38
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MNT_DETACH = 2
MOUNT_SETATTR, MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD = 442, 1, 0x8000, -100

DEVICES = {
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "ptmx",
    "pts",
    "shm",
    "mqueue",
    "fd",
    "stdin",
    "stdout",
    "stderr",
    "fuse",
    "kfd",
    "dri",
    "infiniband",
    "kvm",
}
"""What a container sees of /dev, and nvidia*: a mirror of all of it would cost a mount for each of
two hundred terminals."""

ERRORS = "HEKLA_EXEC_ERRORS"
"""The descriptor on which `join` says that there is no such command: an error of the request, not
output of the command."""

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    try:
        check(libc.unshare(flags), "unshare")
    except OSError as error:
        if error.errno == errno.ENOSPC:  # which means no disk here
            raise OSError(
                error.errno,
                "unshare: the system's limit of namespaces (user.max_*_namespaces) is reached",
            ) from None
        raise


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    encode = os.fsencode
    check(
        libc.mount(
            encode(source),
            encode(target),
            encode(kind) or None,
            ctypes.c_ulong(flags),
            encode(data) or None,
        ),
        f"mount {source} on {target}",
    )


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def enter(namespaces: list[str]) -> None:
    """Leave the machine's namespaces for new ones; an ordinary user needs a user namespace for
    that, and keeps his user id."""
    uid, gid = os.geteuid(), os.getegid()
    flags = 0
    for name in namespaces:
        flags |= FLAGS[name]
    unshare(flags)
    if "user" in namespaces:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", f"{uid} {uid} 1")
        write("/proc/self/gid_map", f"{gid} {gid} 1")
    if "mount" in namespaces:
        mount("none", "/", flags=MS_REC | MS_PRIVATE)


def enter_network(path: str) -> None:
    """Enter the pod's network namespace."""
    descriptor = os.open(path, os.O_RDONLY)
    check(libc.setns(descriptor, CLONE_NEWNET), "enter the pod's network namespace")
    os.close(descriptor)


def open_beneath(source: str, root: str) -> int:
    """Open the source of a mount. In a volume no symbolic link is followed on the way from the
    volume's directory to it."""
    flags = os.O_PATH | os.O_CLOEXEC
    if not root:
        return os.open(source, flags)
    held = os.open(root, flags)
    for part in os.path.relpath(source, root).split("/"):
        if part == "..":
            raise OSError(errno.EPERM, f"{source} leads out of its volume")
        following = os.open(part, flags | os.O_NOFOLLOW, dir_fd=held)
        os.close(held)
        held = following
        if stat.S_ISLNK(os.fstat(held).st_mode):
            raise OSError(errno.ELOOP, f"{source} has become a link")
    return held


def set_read_only(path: str, closed: bool) -> None:
    """Make a mount and all mounts below it read-only, or writable again."""
    attributes = struct.pack(
        "=QQQQ", MOUNT_ATTR_RDONLY if closed else 0, 0 if closed else MOUNT_ATTR_RDONLY, 0, 0
    )
    result = libc.syscall(
        MOUNT_SETATTR,
        AT_FDCWD,
        os.fsencode(path),
        AT_RECURSIVE,
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    check(result, f"make {path} {'read-only' if closed else 'writable'}")


class Tree:
    """The container's view of the files: this machine's files with the pod's mounts."""

    def __init__(self, slot: str) -> None:
        self.made: set[int] = set()
        """Device numbers of the file systems that are ours: there, directories may be made."""
        self.volumes: list[str] = []
        self.slot = slot
        self.old_root = ""

    def build(self, launch: dict[str, Any]) -> None:
        """Make all mounts, outer ones first. All sources are opened before, because a mount may
        cover the source of another."""
        beneath, read_only = launch.get("beneath", {}), launch.get("read_only", False)
        ordered = sorted(launch.get("mounts", ()), key=lambda entry: entry[1].count("/"))
        held = [open_beneath(source, beneath.get(source, "")) for source, _, _ in ordered]
        self.cover(launch.get("closed", []), launch.get("shown", []))
        for path in launch.get("fixed", []):
            self.fix(path)
        if launch.get("dropped"):
            self.mirror("/dev")  # root's rights to files are enough to read a whole disk
        if any(not os.path.lexists("/" + target.split("/")[1]) for _, target, _ in ordered):
            self.mirror_root()
        for descriptor, (_, target, closed) in zip(held, ordered):
            self.place(f"/proc/self/fd/{descriptor}", target, closed)
            os.close(descriptor)
        if self.old_root:
            check(libc.umount2(self.old_root.encode(), MNT_DETACH), "umount the old root")
            os.rmdir(self.old_root)
        if read_only:
            set_read_only("/", True)
            for target in [*(t for _, t, shut in ordered if not shut), "/dev/shm", "/dev/pts"]:
                if os.path.ismount(target) or os.path.isfile(target):
                    set_read_only(target, False)

    def cover(self, closed: list[str], shown: list[str]) -> None:
        """Mount an empty directory over each path that the container must not see, and mount the
        parts that it may see back into it.

        No directory that the container starts in may be below a covered path: from there, `..`
        would lead around the cover.
        """
        held = [(os.open(path, os.O_PATH | os.O_CLOEXEC), path) for path in shown]
        for path in closed:
            if os.path.isdir(path):
                mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=711,size=1m")
                self.made.add(os.stat(path).st_dev)
            elif os.path.lexists(path):  # a file, or a socket
                mount("/dev/null", path, flags=MS_BIND)
        for descriptor, path in held:
            os.makedirs(path, 0o711, exist_ok=True)
            mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
            os.close(descriptor)

    def place(self, source: str, target: str, read_only: bool) -> None:
        """Mount `source` at `target`; creates the path if it does not exist."""
        directory = os.path.isdir(source)
        target = os.path.realpath(target)
        self.make_room(target, directory)
        mount(source, target, flags=MS_BIND | MS_REC)
        if read_only:
            self.remount_read_only(target)
        self.volumes.append(target.rstrip("/") + "/")

    def fix(self, path: str) -> None:
        """Make a path read-only in place."""
        try:
            mount(path, path, flags=MS_BIND | MS_REC)
            self.remount_read_only(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise  # what is covered, or has gone, cannot be written

    def show_machine(self, process: str, targets: list[str]) -> None:
        """Lets /proc/1 lead to the machine's namespaces, where the kernel keeps this root from
        those of the first process: it has a right that we lack, as inside of another container.
        Then they are those of a process of ours, for as long as that lives.
        """
        for root in ("", *targets):
            place = f"{root.rstrip('/')}/proc/1/ns"
            try:
                names = os.listdir(place)
                os.stat(f"{place}/mnt")
            except PermissionError:
                mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k")
                for name in names:
                    os.symlink(f"/proc/{process}/ns/{name}", f"{place}/{name}")
            except OSError:
                continue  # no processes are shown there

    @staticmethod
    def remount_read_only(target: str) -> None:
        flags = MS_BIND | MS_REMOUNT | MS_RDONLY
        kept = os.statvfs(target).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
        # A user namespace may not drop what the machine's mount has; the numbers of ST_ and MS_ are
        # the same.
        mount("none", target, flags=flags | kept)

    def make_room(self, target: str, directory: bool) -> None:
        try:
            found = os.stat(target)
            if stat.S_ISDIR(found.st_mode) == directory:
                return
        except OSError:
            pass
        ancestor = os.path.dirname(target)
        while not os.path.isdir(ancestor):
            ancestor = os.path.dirname(ancestor)
        inside = any((ancestor + "/").startswith(volume) for volume in self.volumes)
        if not inside and os.stat(ancestor).st_dev not in self.made:
            self.mirror(ancestor)
        if directory:
            os.makedirs(target, 0o755, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))

    def mirror(self, path: str) -> None:
        """Replace a directory by a copy that shares its entries, so that entries can be added
        without changing the machine."""
        try:
            entries = list(os.scandir(path))
        except OSError:
            entries = []  # unreadable for us, hence for the container
        mode = stat.S_IMODE(os.stat(path).st_mode)
        old = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mount("tmpfs", path, "tmpfs", MS_NOSUID, f"mode={mode:o},size=25%")
        self.fill(path, old, entries, path == "/dev")
        self.made.add(os.stat(path).st_dev)

    def mirror_root(self) -> None:
        """The same for the root, which cannot be mounted over: the process moves to a copy beside
        it."""
        base = f"{self.slot}/root"
        os.makedirs(base, exist_ok=True)
        entries = list(os.scandir("/"))
        old = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mount("tmpfs", base, "tmpfs", MS_NOSUID, "mode=755,size=25%")
        # Or it would be part of its own copy of the directory that it is in.
        mount("none", base, flags=MS_UNBINDABLE)
        self.fill(base, old, entries, False)
        self.made.add(os.stat(base).st_dev)
        number = PIVOT_ROOT.get(os.uname().machine)
        os.mkdir(f"{base}/.old")
        os.chdir(base)
        if number is not None and libc.syscall(number, b".", b".old") == 0:
            self.old_root = "/.old"
        else:
            os.chroot(".")
        os.chdir("/")

    def fill(self, base: str, old: int, entries: list[os.DirEntry[str]], devices: bool) -> None:
        for entry in entries:
            if devices and entry.name not in DEVICES and not entry.name.startswith("nvidia"):
                continue
            self.copy_entry(f"/proc/self/fd/{old}/{entry.name}", f"{base}/{entry.name}", entry)
        os.close(old)

    @staticmethod
    def copy_entry(source: str, target: str, entry: os.DirEntry[str]) -> None:
        try:
            if entry.is_symlink():
                os.symlink(os.readlink(source), target)
                return
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(target, 0o755)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            mount(source, target, flags=MS_BIND | MS_REC)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EINVAL):
                raise  # an entry that vanished or is closed to us is simply not there


def whole_path(command: str, cwd: str, path: str) -> str | None:
    """The path of the command; None if it is not found."""
    if "/" in command:
        return os.path.join(cwd, command) if os.path.exists(os.path.join(cwd, command)) else None
    for directory in path.split(":"):
        candidate = os.path.join(directory or cwd, command)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def myself() -> tuple[int, str]:
    """Pid and start time of this process as the rest of the machine sees them, also from inside a
    pid namespace that still has the outer /proc."""
    try:
        pid = int(os.readlink("/proc/self"))
        with open("/proc/self/stat", "rb") as file:
            start = file.read().rpartition(b") ")[2].split()[19].decode()
        with open("/proc/sys/kernel/random/boot_id") as file:
            return pid, f"{start}@{file.read().strip()}"
    except OSError:
        return os.getpid(), "-"  # no /proc: the kubelet completes it


def oldest() -> str:
    """The oldest ancestor of this process that has the same view of the files and may be inspected."""
    here, found, above = os.readlink("/proc/self/ns/mnt"), "self", os.getppid()
    while above:
        try:
            if os.readlink(f"/proc/{above}/ns/mnt") != here:
                break
            found = str(above)
            with open(f"/proc/{above}/stat", "rb") as file:
                above = int(file.read().rpartition(b") ")[2].split()[1])
        except OSError:
            break
    return found


def begin(slot: str, answer: Callable[[str], None]) -> None:
    """Runs in the child: becomes the shim of the container of `slot`. Never returns."""
    with open(f"{slot}/launch.json", "rb") as file:
        launch = json.load(file)
    for number in (signal.SIGCHLD, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    log = os.open(f"{slot}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    errors = (
        os.open(f"{slot}/err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if launch.get("split")
        else log
    )
    directory = os.open(slot, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    tty = launch.get("tty", False)
    reads, go = (
        leave_holder(slot, launch, log)
        if tty or launch.get("stdin")
        else (os.open("/dev/null", os.O_RDONLY), -1)
    )
    namespaces = launch.get("namespaces", [])
    for group in launch.get("cgroup", "").split(":") if launch.get("cgroup") else ():
        join_group(group)
    rank_for_oom(launch)
    if launch.get("network"):
        enter_network(launch["network"])
    process = oldest() if launch.get("machine") else ""
    if namespaces:
        enter(namespaces)
    if "mount" in namespaces:
        tree = Tree(slot)
        tree.build(launch)
        if process:
            tree.show_machine(
                process, [target for source, target, _ in launch.get("mounts", ()) if source == "/"]
            )
    if "uts" in namespaces and launch.get("hostname"):
        hostname = launch["hostname"].encode()
        check(libc.sethostname(hostname, len(hostname)), "sethostname")
    if "pid" in namespaces and os.fork():
        os._exit(0)
    pid, start = myself()
    if "pid" in namespaces:
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    cwd = launch.get("cwd") or "/"
    try:
        os.chdir(cwd)
    except FileNotFoundError:
        os.makedirs(cwd, exist_ok=True)
        os.chdir(cwd)
    if not take(directory, pid, start):
        answer("! the slot was taken already")
        os._exit(0)
    result = os.open("exit", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=directory)
    if go >= 0:
        os.write(go, b"!")
    answer(f"{pid} {start}")
    env, argv = launch.get("env", {}), launch["argv"]
    if tty:
        env.setdefault("TERM", "xterm")
    command = whole_path(argv[0], cwd, env.get("PATH", "/usr/bin:/bin"))
    if command is None:
        where = (
            "no such file or directory" if "/" in argv[0] else "executable file not found in $PATH"
        )
        fail(
            directory,
            result,
            f'failed to create containerd task: failed to create shim task: exec: "{argv[0]}": {where}',
        )
    # Descriptors are moved above the ones that they will take, so that none overwrites another.
    if tty:
        log = errors = reads
    reads, log, errors, result = (
        duplicate(descriptor) for descriptor in (reads, log, errors, result)
    )
    for place, descriptor in enumerate((reads, log, errors, result)):
        os.dup2(descriptor, place, inheritable=True)
    if tty:
        own_terminal(launch.get("user"), leader="pid" not in namespaces)
    become(launch)
    # Not before: a kubelet that has died must not take this child with it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    shim = SHIM_AT_TERMINAL if tty else SHIM
    script = shim if "pid" in namespaces else shim + SWEEP
    os.execve("/bin/sh", ["sh", "-c", script, "hekla-shim", command, *argv[1:]], env)


def leave_holder(slot: str, launch: dict[str, Any], log: int) -> tuple[int, int]:
    """Starts the process that holds the far end of the container's standard input or terminal
    (holder.py).

    Gives what the container reads from, and the pipe on which the holder is told that the container
    was really started.
    """
    os.chdir(slot)  # the path of a socket may have 107 bytes only
    try:
        os.unlink("console")
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    listener.bind("console")
    os.umask(mask)
    listener.listen(8)
    tty = bool(launch.get("tty"))
    if tty:
        held, reads = os.openpty()
    else:
        reads, held = os.pipe()
    hears, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():  # no child of the shim's: whose children are the container
            os._exit(0)
        kept = (listener.fileno(), hears, log, held)
        nothing = os.open("/dev/null", os.O_RDWR)
        for place in (0, 1, 2):
            os.dup2(nothing, place)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "holder.py")
        numbers = [*map(str, kept), str(int(tty)), str(int(bool(launch.get("stdin_once"))))]
        os.execv(sys.executable, [sys.executable, "-I", "-S", script, *numbers, f"{slot}/console"])
    os.waitpid(child, 0)
    for descriptor in (held, hears):
        os.close(descriptor)
    listener.close()
    return reads, go


def become(launch: dict[str, Any]) -> None:
    """Drop the capabilities that the container does not get, and change to its user and groups;
    only root can."""
    user, group, groups = launch.get("user"), launch.get("group"), launch.get("groups", [])
    for number in launch.get("dropped", ()):
        # An older kernel does not know the newest ones, nor an ordinary user any.
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    if launch.get("no_new_privileges"):
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if group is not None:
        os.setgroups(groups)
        os.setgid(group)
    elif groups:
        os.setgroups([*os.getgroups(), *groups])
    if user is not None:
        os.setuid(user)


def duplicate(descriptor: int) -> int:
    """A copy of a descriptor above the low numbers, which is closed on exec."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)


def take(directory: int, pid: int, start: str) -> bool:
    """Claim the slot; False if it was claimed before. A link appears completely or not at all."""
    name = f".claim.{pid}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=directory)
    os.write(descriptor, f"{pid} {start}\n".encode())
    os.close(descriptor)
    try:
        os.link(name, "claim", src_dir_fd=directory, dst_dir_fd=directory)
        return True
    except FileExistsError:
        return False
    finally:
        os.unlink(name, dir_fd=directory)


def fail(directory: int, result: int, message: str) -> NoReturn:
    """The container was claimed but cannot run: write that as its end."""
    descriptor = os.open("error", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=directory)
    os.write(
        descriptor, json.dumps({"reason": "StartError", "message": message, "code": 128}).encode()
    )
    os.close(descriptor)
    os.write(result, b"128\n")
    os._exit(128)


def serve() -> None:
    """Start containers on request until the kubelet has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if sys.platform == "linux":
        # A shim in a pid namespace loses its parent at once; it must come to us, where zombies
        # are buried, and not to a process 1 that may not bury any.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for line in sys.stdin:
        number, _, slot = line.rstrip("\n").partition(" ")
        try:
            child = os.fork()
        except OSError as error:
            os.write(1, f"{number} ! cannot fork: {error.strerror}\n".encode())
            continue
        if child == 0:
            become_container(number, slot)


def become_container(number: str, slot: str) -> None:
    """What the child does, from the fork to the shim or to an error."""
    # Descriptor 1 becomes the log; the copy of the kubelet's pipe closes itself on exec.
    out = duplicate(1)

    def answer(text: str) -> None:
        try:
            os.write(out, f"{number} {text}\n".encode())
        except BrokenPipeError:
            pass  # the kubelet has died; the next one reads the slot

    try:
        begin(slot, answer)
    except BaseException as error:  # in the forked child: the kubelet must be told of any error
        message = str(error.strerror or error) if isinstance(error, OSError) else repr(error)
        answer("! " + message.replace("\n", " "))
    finally:
        os._exit(1)


def probe() -> None:
    """Try every combination of namespaces from the best down; print why each kind of namespace is
    refused ("" if it works)."""
    findings = {}
    base = ["user"] if os.geteuid() else []
    for name in ("user", "mount", "uts", "pid"):
        findings[name] = attempt([*base, *({"mount", name} if name == "pid" else {name})])
    if not os.geteuid() and findings["mount"]:
        findings["mount by user"] = attempt(["user", "mount"])
    print(json.dumps(findings))


def attempt(namespaces: list[str]) -> str:
    read, wrote = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            enter(list(dict.fromkeys(namespaces)))
            if "mount" in namespaces:
                mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID)
            if "uts" in namespaces:
                check(libc.sethostname(b"probe", 5), "sethostname")
            if "pid" in namespaces:
                inner = os.fork()
                if inner:
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) and 1)
                mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
            os._exit(0)
        except (OSError, AttributeError) as error:
            os.write(wrote, (getattr(error, "strerror", None) or str(error)).encode())
            os._exit(1)
    os.close(wrote)
    text = os.read(read, 4096).decode()
    code = os.waitpid(child, 0)[1]
    os.close(read)
    return text or ("refused" if code else "")


def join_group(group: str) -> None:
    """Move this process, which has one thread, into a control group.

    Version 1 can move a thread alone, which waits for nobody; for a process the kernel first waits
    until nobody on the machine forks, ten milliseconds and more."""
    try:
        write(f"{group}/tasks", "0")
    except FileNotFoundError:
        write(f"{group}/cgroup.procs", "0")


def rank_for_oom(launch: dict[str, Any]) -> None:
    """Say how soon the kernel is to kill this process when memory is short; only root may ask to be
    spared."""
    if score := launch.get("oom_score"):
        try:
            write("/proc/self/oom_score_adj", str(score))
        except OSError:
            pass


def join(pid: int, slot: str, argv: list[str], tty: bool = False) -> None:
    """Run a command in a running container, for exec and exec probes; its exit code becomes that of
    this process."""
    with open(f"{slot}/launch.json", "rb") as file:
        launch = json.load(file)
    if launch.get("cgroup"):
        try:
            for group in launch["cgroup"].split(":"):
                join_group(group)
        except OSError:
            # the limits protect the machine; that a command runs outside of them is no reason to
            # fail
            pass
    rank_for_oom(launch)
    kinds = [
        kind for kind in ("user", "mount", "uts", "pid") if kind in launch.get("namespaces", ())
    ]
    if launch.get("network"):
        enter_network(f"/proc/{pid}/ns/net")
    opened = [
        os.open(f"/proc/{pid}/ns/{'mnt' if kind == 'mount' else kind}", os.O_RDONLY)
        for kind in kinds
    ]
    for descriptor, kind in zip(opened, kinds):
        check(libc.setns(descriptor, FLAGS[kind]), f"enter the {kind} namespace")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    cwd, env = launch.get("cwd") or "/", launch.get("env", {})
    errors = int(os.environ.get(ERRORS, "2"))
    os.set_inheritable(errors, errors == 2)
    if tty:
        own_terminal(launch.get("user"))
        env.setdefault("TERM", "xterm")
    os.chdir(cwd)
    command = whole_path(argv[0], cwd, env.get("PATH", "/usr/bin:/bin"))
    become(launch)
    if command is None:
        where = (
            "no such file or directory" if "/" in argv[0] else "executable file not found in $PATH"
        )
        os.write(errors, f'exec: "{argv[0]}": {where}\n'.encode())
        os._exit(126)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(command, [command, *argv[1:]], env)


def dial(pid: int, port: int) -> None:
    """Connect to a port of localhost as the container sees it, and pass the connection to the
    process at the other end of descriptor 0."""
    enter_network(f"/proc/{pid}/ns/net")
    failure = ""
    for host in ("127.0.0.1", "::1"):
        try:
            made = socket.create_connection((host, port), 5.0)
        except OSError as error:
            failure = failure or str(error.strerror or error)
            continue
        socket.send_fds(socket.socket(fileno=0), [b"+"], [made.fileno()])
        return
    os.write(0, failure.encode())


def own_terminal(user: int | None, leader: bool = False) -> None:
    """Make the terminal at descriptor 0 the controlling terminal of this process (which may lead
    its session already), so that ^C reaches the command."""
    if not leader:
        os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if user is not None:
        try:
            os.fchown(0, user, -1)
        except OSError:
            pass  # only root can; others keep their own


if __name__ == "__main__":
    if sys.argv[1:] == ["probe"]:
        probe()
    elif sys.argv[1:2] == ["dial"]:
        dial(int(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1:2] in (["join"], ["join-tty"]):
        join(int(sys.argv[2]), sys.argv[3], sys.argv[4:], sys.argv[1] == "join-tty")
    else:
        serve()
