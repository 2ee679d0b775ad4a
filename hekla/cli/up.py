"""`hekla up`: one command turns this machine into a cluster; the same command starts it again after `hekla down`.

Either the cluster is ready when this returns, or the reason is on the screen and nothing is left running.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hekla.api.quantity import Quantity
from hekla.cli.arguments import Parser
from hekla.local.cluster import Cluster, ClusterError, Settings, refusal
from hekla.local.supervisor import ProcessStatus, end_leftovers, launch, read_status, running

if TYPE_CHECKING:
    from hekla.kube.client import Client

PREFERRED_PORT = 7443
ADMISSION_PORT = 7543
"""The first of a hundred, as the preferred one is."""
LEAST_TO_START = 32 * 2**20
"""Free bytes: what the database, its log and the logs of a new cluster take, and a little more."""
LEAST_TO_GO_ON = 2**20
LEAST_GRACE = 30
TITLES = {
    "apiserver": "API server",
    "admission": "admission",
    "kube-controllers": "Kubernetes' controllers",
    "agent": "node agent",
    "controllers": "batch controllers",
    "scheduler": "scheduler",
}

Say = Callable[[str, str, str], None]
"""(what, how it is, detail): one line of progress."""


def main(argv: list[str]) -> int:
    """Brings the cluster up; exit code 1 with the reason when that cannot be done."""
    arguments = parser().parse(argv)
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        cluster = Cluster.named(arguments.name)
        bring_up(cluster, vars(arguments), arguments.timeout, lambda *line: print_line(*line, seconds=time.monotonic() - began))
    except (ClusterError, OSError) as error:
        print(f"hekla up: {refusal(error) if isinstance(error, OSError) else error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest is the words and the exit code
        print("\nInterrupted; nothing is left running.", file=sys.stderr)
        return 130
    print(f"\n  export KUBECONFIG={cluster.kubeconfig}")
    print("  vcctl job run --name hello --image busybox --command \"sh -c 'echo hello; sleep 5'\"    your first job")
    print(f"  {'vcctl job list':<85} how it is")
    return 0


def parser() -> Parser:
    """The flags of `up`; those that were not given keep what the cluster was made with."""
    result = Parser("hekla up", __doc__)
    flag = result.add_argument
    flag("--name", default="default", help="the cluster's name; several stand side by side (default: %(default)s)")
    flag("--port", type=int, help=f"of the API server on 127.0.0.1 (default: {PREFERRED_PORT}, or the next free one)")
    flag("--nodes", type=int, help="show this machine as so many nodes (default: 1)")
    flag("--node-cpu", help='cpu of each node, for example "4" (default: the machine\'s)')
    flag("--node-memory", help='memory of each node, for example "8Gi" (default: the machine\'s)')
    flag("--fake-nodes", type=int, help="add so many nodes whose pods only pretend to run (default: 0)")
    flag("--fake-node-cpu", help='cpu of each fake node (default: "32")')
    flag("--fake-node-memory", help='memory of each fake node (default: "256Gi")')
    flag("--fake-node-pods", type=int, help="pods that each fake node takes (default: 110)")
    flag("--node-grace", help='how long a node may be silent before it counts as lost, for example "30s" or "2h" (default: 50s)')
    flag("--isolation", choices=("auto", "shared-network", "none"),
         help="shared-network: pods use this machine's network; none: no namespaces, even where they are allowed")  # fmt: skip
    flag("--images", help="a file that adds to the table of images")
    flag("--scheduler-conf", help="the scheduler's policy file (default: scheduler.yaml in the cluster's directory)")
    flag("--timeout", type=float, default=60.0, help="seconds to wait for the cluster (default: %(default)s)")
    return result


def print_line(what: str, how: str, detail: str, *, seconds: float) -> None:
    print(f"  {what:<24} {how:<4} {detail:<40} {seconds:4.1f} s", flush=True)


def bring_up(cluster: Cluster, flags: dict[str, object], timeout: float, say: Say) -> None:
    """Makes the cluster if it is new, starts it, and returns when it is ready to run jobs.

    Raises ClusterError, with nothing left running, when that cannot be done; a directory made for a new cluster is then
    removed again.
    """
    before = cluster.settings() if cluster.exists() else None
    if running(cluster) is not None:
        which = "" if cluster.name == "default" else f" --name {cluster.name}"
        raise ClusterError(f'the cluster "{cluster.name}" is already running; "hekla status{which}" shows how it is')
    if before is not None:
        if before.port:
            claim(before.port)  # first, so that nobody takes it when the next line sets it free
        end_leftovers(cluster)  # of a supervisor that was killed: they hold the cluster's port
    settings = with_flags(before or Settings(), flags)
    settings.port = choose_port(settings.port, ports_of_others(cluster), asked=flags.get("port") is not None)
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
            claims = [CLAIMS[port].fileno() for port in (settings.port, settings.admission_port) if port in CLAIMS]
            supervisor = launch(cluster, claims)
        asyncio.run(wait_until_ready(cluster, settings, supervisor, time.monotonic() + timeout, say))
    except BaseException as error:
        abandon(cluster, supervisor, before, made)
        if isinstance(error, OSError):
            raise ClusterError(refusal(error)) from error
        raise
    finally:
        release_claims()


@contextmanager
def undisturbed(*, for_good: bool = False) -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM wait, or forgets them where the command is ending anyway.

    A process that was started and whose pid was lost to them would live on; a second Ctrl-C would leave half behind.
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


def abandon(cluster: Cluster, supervisor: subprocess.Popen[bytes] | None, before: Settings | None, made: bool) -> None:
    """Makes everything as it was before: no process left, the old settings, no directory where there was none."""
    from hekla.cli.down import stop

    with undisturbed(for_good=True), suppress(ClusterError, OSError):  # the reason for this is what the user must read
        if supervisor is not None:  # it may not have taken its lock yet, so that `stop` alone would not see it
            supervisor.terminate()
            supervisor.wait()
        stop(cluster)
        if made:
            cluster.delete()
        elif before is not None:
            cluster.keep(before)


def with_flags(settings: Settings, flags: dict[str, object]) -> Settings:
    """The settings with what was given on the command line, checked.  Raises ClusterError that names the flag."""
    given = {name: flags[name] for name in settings.__struct_fields__ if flags.get(name) is not None}
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, int):
            lowest, highest = {"port": (0, 65535), "nodes": (0, 250), "fake_node_pods": (1, 100_000)}.get(name, (0, 100_000))
            if not lowest <= value <= highest:
                raise ClusterError(f"{flag} {value}: a whole number from {lowest} to {highest} is expected")
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
    return msgspec.structs.replace(settings, **given)


def check_duration(flag: str, value: str) -> None:
    """Raises ClusterError unless it is a duration that leaves a node time to speak: a fake one does so every 25 s."""
    from hekla.kube.flags import seconds

    try:
        enough = seconds(value) >= LEAST_GRACE
    except ValueError:
        enough = False
    if not enough:
        raise ClusterError(f'{flag} {value}: a duration of at least {LEAST_GRACE} s is expected, such as "50s" or "2h"')


def check_policy(path: Path) -> None:
    """Raises ClusterError that names the line, unless the scheduler can use the file."""
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
        raise ClusterError(f'{flag} {value}: a size above zero is expected, for example "4" or "8Gi"')


def ports_of_others(cluster: Cluster) -> set[int]:
    """Ports that this user's other clusters have used: they want them again when they are started."""
    ports = set()
    for settings_file in cluster.directory.parent.glob("*/cluster.json"):
        if settings_file != cluster.settings_file:
            try:
                ports.add(Cluster(settings_file.parent).settings().port)
            except ClusterError:
                continue  # damaged: its own `hekla up` says so
    return ports


def check_disk(cluster: Cluster, least: int) -> None:
    """Raises ClusterError when less than so many bytes are free: the daemons could not even write down why they fail."""
    free = shutil.disk_usage(cluster.directory).free
    if free < least:
        raise ClusterError(
            f"{cluster.directory}: {free / 2**20:.1f} MiB are free there, {least / 2**20:.0f} MiB are needed: "
            "the disk is full; free some space and try again"
        )


def choose_port(port: int, others: Collection[int] = (), *, asked: bool) -> int:
    """A free port on 127.0.0.1: the one asked for or used before, else the preferred one or the next after it that is no other's."""
    if port:
        if not (is_free(port) and claim(port)):
            origin = "--port" if asked else "the port that this cluster has used"
            raise ClusterError(f"{origin}, {port}, is in use by another program; stop it, or choose another with --port")
        return port
    for candidate in range(PREFERRED_PORT, ADMISSION_PORT):
        if candidate not in others and is_free(candidate) and claim(candidate):
            return candidate
    raise ClusterError(f"no free port from {PREFERRED_PORT} to {ADMISSION_PORT - 1}; choose one with --port")


def choose_admission_port(before: int) -> int:
    """A free port for the webhooks: the one of before, else one that the system gives to no outgoing connection meanwhile."""
    if before and is_free(before) and claim(before):
        return before
    for candidate in range(ADMISSION_PORT, ADMISSION_PORT + 100):
        if is_free(candidate) and claim(candidate):
            return candidate
    return any_free_port()


CLAIMS: dict[int, socket.socket] = {}
"""By port: the UDP socket of the same number by which this process holds a TCP port until the cluster's supervisor does."""


def claim(port: int) -> bool:
    """Keeps other `hekla up`, of whatever user, that look for a port from taking this one; False if one has it.

    The claim outlives this command in the supervisor, because a port is free each time that its server has been killed and not
    started again yet.  A bound UDP socket is a lock that every user sees and that no file and no dead process leaves behind.
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
    """Lets go of the ports, which the supervisor holds by now or which are not wanted any more."""
    while CLAIMS:
        CLAIMS.popitem()[1].close()


def any_free_port() -> int:
    """A port on 127.0.0.1 that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def certify(cluster: Cluster, settings: Settings) -> None:
    """Makes what is missing of certificates, keys and kubeconfigs."""
    from hekla.local import certificates

    certificates.ensure(cluster.pki)
    certificates.write_kubeconfigs(cluster, port=settings.port)


async def wait_until_ready(cluster: Cluster, settings: Settings, supervisor: subprocess.Popen[bytes], deadline: float, say: Say) -> None:
    """Installs the kinds once the API server answers, then waits for every process, the nodes and the default queue.

    Raises ClusterError when one of them keeps crashing, the supervisor has ended, or the deadline (monotonic) has passed.
    """
    from hekla.kube import config
    from hekla.kube.client import Client

    reported: set[str] = set()

    def look() -> list[ProcessStatus]:
        """Reports what has become ready; raises when a process keeps crashing or time is up."""
        status = read_status(cluster)
        processes = status.processes if status else []
        for process in processes:
            if process.ready and process.name not in reported:
                reported.add(process.name)
                detail = f"127.0.0.1:{settings.port}" if process.name == "apiserver" else ""
                say(TITLES[process.name], "ok", detail)
            if process.restarts >= 3:
                raise ClusterError(f"{TITLES[process.name]} does not start ({process.last_exit}):\n{tail(process.log)}")
        if supervisor.poll() is not None:
            raise ClusterError(f"the supervisor does not start:\n{tail(str(cluster.logs / 'supervisor.log'))}")
        check_disk(cluster, LEAST_TO_GO_ON)
        if time.monotonic() > deadline:
            missing = [TITLES[name] for name in TITLES if name not in reported] or ["a Ready node and an Open default queue"]
            raise ClusterError(f"not ready in time: {', '.join(missing)}; the logs are in {cluster.logs}")
        return processes

    while "apiserver" not in reported:
        look()
        await asyncio.sleep(0.02)
    async with Client(config.load(str(cluster.internal_kubeconfig)), user_agent="hekla-up") as client:
        await install_kinds(client)
        while not (len(look()) == len(TITLES) == len(reported) and await serves_jobs(client, settings)):
            await asyncio.sleep(0.03)
        say("nodes", "ok", await describe_nodes(client))


async def install_kinds(client: Client) -> None:
    """Creates the definitions of the batch kinds, or replaces those of an older version."""
    from hekla.api import crds
    from hekla.api.apiextensions import CUSTOM_RESOURCE_DEFINITION
    from hekla.kube.errors import AlreadyExists

    kind = CUSTOM_RESOURCE_DEFINITION.untyped

    async def install(definition: dict[str, Any]) -> None:
        try:
            await client.create(kind, definition)
        except AlreadyExists:
            name = definition["metadata"]["name"]
            await client.patch(kind, name, {"metadata": definition["metadata"], "spec": definition["spec"]})

    await asyncio.gather(*(install(definition) for definition in crds.all()))


async def serves_jobs(client: Client, settings: Settings) -> bool:
    """Whether every node is Ready and the default queue is Open."""
    from hekla.api.core import NODE
    from hekla.api.scheduling import QUEUE
    from hekla.kube.errors import ApiError

    try:
        nodes = (await client.list(NODE)).items
        queue = await client.get(QUEUE, "default")
    except ApiError:
        return False
    ready = sum(any(c.type == "Ready" and c.status == "True" for c in node.status.conditions) for node in nodes)
    return ready >= settings.nodes + settings.fake_nodes and queue.status.state == "Open"


async def describe_nodes(client: Client) -> str:
    """The nodes in a few words: `laptop: 8 cpu, 16 GiB`."""
    from hekla.api.core import NODE
    from hekla.api.quantity import whole

    nodes = (await client.list(NODE)).items
    if not nodes:
        return "none"
    first = nodes[0]
    capacity = first.status.capacity
    size = f"{capacity.get('cpu', '?')} cpu, {whole(capacity.get('memory', '0')) / 2**30:.0f} GiB"
    return f"{first.metadata.name}: {size}" if len(nodes) == 1 else f"{len(nodes)} nodes; {first.metadata.name}: {size}"


def tail(path: str, lines: int = 12) -> str:
    """The end of a log, indented, without what only repeats."""
    try:
        text = Path(path).read_text(errors="replace")
    except OSError:
        return f"    (no log at {path})"
    kept = [re.sub(r"\s+$", "", line) for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(f"    {line}" for line in kept) + f"\n  The whole log: {path}"
