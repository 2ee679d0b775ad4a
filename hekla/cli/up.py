"""`hekla up`: one command turns this machine into a cluster; the same command starts it again after
`hekla down`.

Either the cluster is ready when this returns, or the reason is on the screen and nothing is left
running.  A cluster that runs already is left as it is: when it is ready, that is a success.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hekla.api.text.quantity import Quantity
from hekla.cli.arguments import Parser
from hekla.cli.readiness import Readiness, Say, check_disk
from hekla.kube import openfiles
from hekla.local.cluster.cluster import Cluster, Settings, refusal
from hekla.local.cluster.members import PATIENCE, end_daemons
from hekla.local.cluster.supervisor import launch, running
from hekla.local.machine.files import ClusterError
from hekla.local.machine.processes import Process

PREFERRED_PORT = 7443
ADMISSION_PORT = 7543
"""The first of a hundred, as the preferred one is."""
LEAST_TO_START = 32 * 2**20
"""Free bytes: what the database, its log and the logs of a new cluster take, and a little more."""
LEAST_GRACE = 30


def main(argv: list[str]) -> int:
    """Start the cluster; exit code 1 with the reason if that fails."""
    arguments = parser().parse(argv)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        cluster = Cluster.named(arguments.name)
    except ClusterError as error:
        print(f"hekla up: {error}", file=sys.stderr)
        return 1
    try:
        begun = bring_up(
            cluster,
            vars(arguments),
            arguments.timeout,
            lambda *line: print_line(*line, seconds=time.monotonic() - began),
        )
    except (ClusterError, OSError) as error:
        print(
            f"hekla up: {refusal(error) if isinstance(error, OSError) else error}", file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest is the words and the exit code
        left = (
            "nothing is left running"
            if running(cluster) is None
            else "the cluster runs on as it was"
        )
        print(f"\nInterrupted; {left}.", file=sys.stderr)
        return 130
    if not begun:
        print(f'\n  The cluster "{cluster.name}" was running already; nothing was changed.')
    print(f"\n  export KUBECONFIG={cluster.kubeconfig}")
    print(
        "  vcctl job run --name hello --image busybox --command \"sh -c 'echo hello; sleep 5'\"    your first job"
    )
    print(f"  {'vcctl job list':<85} how it is")
    return 0


def parser() -> Parser:
    """The flags of `up`.  Flags that are not given keep the values that the cluster was created
    with."""
    result = Parser("hekla up", __doc__)
    flag = result.add_argument
    flag(
        "--name",
        default="default",
        help="the cluster's name; several stand side by side (default: %(default)s)",
    )
    flag(
        "--port",
        type=int,
        help=f"of the API server on 127.0.0.1 (default: {PREFERRED_PORT}, or the next free one)",
    )
    flag("--nodes", type=int, help="show this machine as so many nodes (default: 1)")
    flag("--node-cpu", help='cpu of each node, for example "4" (default: the machine\'s)')
    flag("--node-memory", help='memory of each node, for example "8Gi" (default: the machine\'s)')
    flag(
        "--fake-nodes",
        type=int,
        help="add so many nodes whose pods only pretend to run (default: 0)",
    )
    flag("--fake-node-cpu", help='cpu of each fake node (default: "32")')
    flag("--fake-node-memory", help='memory of each fake node (default: "256Gi")')
    flag("--fake-node-pods", type=int, help="pods that each fake node takes (default: 110)")
    flag(
        "--node-grace",
        help='how long a node may be silent before it counts as lost, for example "30s" or "2h" (default: 50s)',
    )
    flag(
        "--isolation",
        choices=("auto", "shared-network", "none"),
        help="shared-network: pods use this machine's network; none: no namespaces, even where they are allowed",
    )
    flag("--images", help="a file that adds to the table of images")
    flag(
        "--max-job-pods",
        type=int,
        help="how many pods one batch job may have; 0: any number (default: 100000)",
    )
    flag(
        "--scheduler-conf",
        help="the scheduler's policy file (default: scheduler.yaml in the cluster's directory)",
    )
    flag(
        "--record",
        help="a directory into which the scheduler records what goes into its cycles, for `hekla replay` and `hekla simulate`",
    )
    flag(
        "--metrics-port",
        type=int,
        help="port on 127.0.0.1 of the scheduler's /metrics, next are the controllers' and the colocation agent's; 0: none (default: 0)",
    )
    flag(
        "--colocation",
        action=argparse.BooleanOptionalAction,
        help="run offline work on what online pods leave idle, with the colocation agent (default: no)",
    )
    flag(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds to wait for the cluster (default: %(default)s)",
    )
    return result


def print_line(what: str, how: str, detail: str, *, seconds: float) -> None:
    print(f"  {what:<24} {how:<4} {detail:<40} {seconds:4.1f} s", flush=True)


def bring_up(cluster: Cluster, flags: dict[str, object], timeout: float, say: Say) -> bool:
    """Create the cluster if it is new, start it, and return when it can run jobs; returns False if
    it was running already.

    Raises ClusterError, with no process left that it has started; the directory of a new cluster is
    removed again.
    """
    if too_few := openfiles.problem():
        raise ClusterError(too_few)
    cluster.exists()  # where even the look is refused, that is the reason
    with cluster.held(timeout):
        if cluster.exists() and (supervisor := running(cluster)) is not None:
            attend(cluster, flags, supervisor, timeout, say)
            return False
        try:
            start(cluster, flags, timeout, say)
        finally:
            release_claims()
    return True


def attend(
    cluster: Cluster, flags: dict[str, object], supervisor: int, timeout: float, say: Say
) -> None:
    """Wait until a cluster that runs already is ready.  Raises ClusterError if it is not, or runs
    with other settings than asked for."""
    settings = cluster.settings()
    asked = with_flags(settings, flags)
    which = "" if cluster.name == "default" else f" --name {cluster.name}"
    changed = [
        name
        for name in settings.__struct_fields__
        if getattr(asked, name) != getattr(settings, name)
    ]
    if changed:
        said = ", ".join(
            f"--{name.replace('_', '-')} is {getattr(settings, name) or 'not set'}"
            for name in changed
        )
        raise ClusterError(
            f'the cluster "{cluster.name}" is already running with other settings ({said}); '
            f'"hekla down{which}" stops it, and the next "hekla up" takes what you ask for'
        )
    process = Process.of(supervisor)
    asyncio.run(
        Readiness(
            cluster, settings, lambda: process is not None and process.alive(), timeout, say
        ).wait()
    )


def start(cluster: Cluster, flags: dict[str, object], timeout: float, say: Say) -> None:
    """Start a cluster that does not run, and create it if it does not exist.  Raises ClusterError
    with everything as it was."""
    before = cluster.settings() if cluster.exists() else None
    if before is not None and before.port:
        claim(before.port)  # first, so that nobody takes it when the next line sets it free
    end_daemons(cluster)  # of a supervisor that was killed: they hold the cluster's port
    settings = with_flags(before or Settings(), flags)
    settings.port = choose_port(
        settings.port, ports_of_others(cluster), asked=flags.get("port") is not None
    )
    settings.admission_port = choose_admission_port(settings.admission_port)
    supervisor: subprocess.Popen[bytes] | None = None
    made = not cluster.directory.exists()
    try:
        cluster.make_directories()
        check_disk(cluster, LEAST_TO_START)
        certify(cluster, settings)
        cluster.keep(settings)
        cluster.keep_policy()
        say("certificates", "ok", "")
        with undisturbed():
            claims = [
                CLAIMS[port].fileno()
                for port in (settings.port, settings.admission_port)
                if port in CLAIMS
            ]
            supervisor = launch(cluster, claims)
        launched = supervisor
        asyncio.run(
            Readiness(cluster, settings, lambda: launched.poll() is None, timeout, say).wait()
        )
    except BaseException as error:
        abandon(cluster, supervisor, before, made)
        if isinstance(error, OSError):
            raise ClusterError(refusal(error)) from error
        raise


@contextmanager
def undisturbed(*, for_good: bool = False) -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM, or ignore them if the command is ending anyway.

    Otherwise a process whose pid is lost would live on, and a second Ctrl-C would leave half of it
    behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    ends = (signal.SIGINT, signal.SIGTERM)
    before = [(number, signal.signal(number, lambda n, _: waiting.append(n))) for number in ends]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    for received in () if for_good else waiting:
        signal.raise_signal(received)


def abandon(
    cluster: Cluster,
    supervisor: subprocess.Popen[bytes] | None,
    before: Settings | None,
    made: bool,
) -> None:
    """Restore everything as it was before: processes, settings, and no directory if there was none."""
    from hekla.cli.down import stop

    with (
        undisturbed(for_good=True),
        suppress(ClusterError, OSError),
    ):
        # The reason for this is what the user must read.
        if supervisor is not None:
            # It may not have taken its lock yet, so that `stop` alone would not see it.
            supervisor.terminate()
            with suppress(subprocess.TimeoutExpired):
                supervisor.wait(3 * PATIENCE)
        stop(cluster)
        if made:
            cluster.delete()
        elif before is not None:
            cluster.keep(before)


RANGES = {
    "port": (0, 65535),
    "nodes": (0, 250),
    "fake_node_pods": (1, 100_000),
    "max_job_pods": (0, 2**31 - 1),
    "metrics_port": (0, 65534),
}
"""Flag of a whole number -> its least and largest value."""


def with_flags(settings: Settings, flags: dict[str, object]) -> Settings:
    """The settings with the given flags, checked.  Raises ClusterError, which names the flag."""
    given = {
        name: flags[name] for name in settings.__struct_fields__ if flags.get(name) is not None
    }
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, int):
            lowest, highest = RANGES.get(name, (0, 100_000))
            if not lowest <= value <= highest:
                raise ClusterError(
                    f"{flag} {value}: a whole number from {lowest} to {highest} is expected"
                )
        elif name.endswith(("_cpu", "_memory")):
            check_size(flag, str(value))
        elif name == "node_grace":
            check_duration(flag, str(value))
        elif name in ("images", "scheduler_conf"):
            path = Path(str(value)).absolute()
            if not path.is_file():
                raise ClusterError(f"{flag} {value}: there is no such file")
            if name == "scheduler_conf":
                check_policy(path)
            given[name] = str(path)
        elif name == "record" and value:
            given[name] = str(Path(str(value)).absolute())
    wanted = msgspec.structs.replace(settings, **given)
    if wanted.colocation and wanted.nodes != 1:
        raise ClusterError(
            f"--colocation with --nodes {wanted.nodes}: the agent measures this machine as one node; use --nodes 1"
        )
    return wanted


def check_duration(flag: str, value: str) -> None:
    """Raises ClusterError unless it is a duration that leaves a node time to speak: a fake one does
    so every 25 s."""
    from hekla.api.text.durations import seconds

    try:
        enough = seconds(value) >= LEAST_GRACE
    except ValueError:
        enough = False
    if not enough:
        raise ClusterError(
            f'{flag} {value}: a duration of at least {LEAST_GRACE} s is expected, such as "50s" or "2h"'
        )


def check_policy(path: Path) -> None:
    """Raises ClusterError, which names the line, unless the scheduler can use the file."""
    from hekla.scheduler.policy_file import PolicyFileError, parse

    try:
        parse(path.read_text(errors="replace"), str(path))
    except PolicyFileError as error:
        raise ClusterError(str(error)) from error


def check_size(flag: str, value: str) -> None:
    """Raises ClusterError unless the value is a positive quantity."""
    try:
        size = Quantity.parse(value)
    except ValueError as error:
        raise ClusterError(f"{flag} {value}: {error}") from error
    if size <= Quantity.parse("0"):
        raise ClusterError(
            f'{flag} {value}: a size above zero is expected, for example "4" or "8Gi"'
        )


def ports_of_others(cluster: Cluster) -> set[int]:
    """Ports that this user's other clusters have used and want again when they start."""
    ports = set()
    for settings_file in cluster.directory.parent.glob("*/cluster.json"):
        if settings_file != cluster.settings_file:
            try:
                ports.add(Cluster(settings_file.parent).settings().port)
            except ClusterError:
                continue  # damaged: its own `hekla up` says so
    return ports


def choose_port(port: int, others: Collection[int] = (), *, asked: bool) -> int:
    """A free port on 127.0.0.1: the given or the former one, else the preferred one or the next
    free one that belongs to no other cluster."""
    if port:
        if forbidden(port):
            raise ClusterError(
                f"--port {port}: this user may not listen there; choose a port from 1024 up, or start the cluster as root"
            )
        if not (is_free(port) and claim(port)):
            origin = "--port" if asked else "the port that this cluster has used"
            raise ClusterError(
                f"{origin}, {port}, is in use by another program; stop it, or choose another with --port"
            )
        return port
    for candidate in range(PREFERRED_PORT, ADMISSION_PORT):
        if candidate not in others and is_free(candidate) and claim(candidate):
            return candidate
    raise ClusterError(
        f"no free port from {PREFERRED_PORT} to {ADMISSION_PORT - 1}; choose one with --port"
    )


def choose_admission_port(before: int) -> int:
    """A free port for the webhooks: the one of before, else one that the system gives to no
    outgoing connection meanwhile."""
    if before and is_free(before) and claim(before):
        return before
    for candidate in range(ADMISSION_PORT, ADMISSION_PORT + 100):
        if is_free(candidate) and claim(candidate):
            return candidate
    return any_free_port()


CLAIMS: dict[int, socket.socket] = {}
"""By port: the UDP socket of the same number by which this process holds a TCP port until the
cluster's supervisor does."""


def claim(port: int) -> bool:
    """Keeps other `hekla up`, of whatever user, that look for a port from taking this one; False if
    one has it.

    The claim outlives this command in the supervisor, because a port is free each time that its
    server has been killed and not started again yet.  A bound UDP socket is a lock that every user
    sees and that no file and no dead process leaves behind.
    """
    if port in CLAIMS:
        return True
    lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        lock.bind(("127.0.0.1", port))
    except OSError:
        lock.close()
        return False
    CLAIMS[port] = lock
    return True


def release_claims() -> None:
    """Release the claimed ports: the supervisor holds them by now, or they are not needed."""
    while CLAIMS:
        CLAIMS.popitem()[1].close()


def any_free_port() -> int:
    """A port on 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def forbidden(port: int) -> bool:
    """Whether the system forbids the port to this user, whoever uses it."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return True
        except OSError:
            return False
    return False


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def certify(cluster: Cluster, settings: Settings) -> None:
    """Create the missing certificates, keys and kubeconfigs."""
    from hekla.local.cluster.kubeconfigs import write_kubeconfigs
    from hekla.local.machine import certificates

    certificates.ensure(cluster.pki)
    write_kubeconfigs(cluster, port=settings.port)
