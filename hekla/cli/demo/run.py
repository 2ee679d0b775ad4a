"""Runs the demo's stories one after another on a cluster of its own and prints what was expected
and what was seen."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from hekla.cli.arguments import Parser
from hekla.cli.demo import stories
from hekla.cli.down import stop
from hekla.cli.up import bring_up
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.local.cluster.cluster import Cluster
from hekla.local.machine.files import ClusterError

NODES, NODE_CPU = 6, "4"


class Story(NamedTuple):
    """A title, and the coroutine that plays the story; it returns what it saw or raises
    stories.Differs."""

    title: str
    expected: str
    tell: Callable[[Client], Awaitable[str]]


STORIES = [
    Story("01 hello", "the job runs, its line is in the log, it completes", stories.hello),
    Story(
        "02 two queues",
        "48 slots of half a cpu, weights 1:2, both queues with work for all of them: 16 pods of queue-a run beside 32 of queue-b",
        stories.two_queues,
    ),
    Story(
        "03 gang too big",
        "20 x 4 cpu on 24 cpu: not one pod starts, and the PodGroup says why; with minAvailable 4, at least 4 run",
        stories.gang,
    ),
    Story(
        "04 task dependency",
        "no pod of task-b exists until task-a runs; both complete",
        stories.dependency,
    ),
    Story(
        "05 all-reduce",
        "4 pods find each other by name, sum a vector over sockets and exit 0",
        stories.allreduce,
    ),
]


def main(argv: list[str]) -> int:
    """The command; exit code 0 only if every story ended as expected."""
    parser = Parser("hekla demo", "Runs real jobs on a temporary cluster and checks each.")
    parser.add_argument(
        "--keep", action="store_true", help="leave the cluster's directory for a look at its logs"
    )
    parser.add_argument(
        "--isolation",
        choices=("auto", "none"),
        default="auto",
        help="none: run pods without namespaces",
    )
    arguments = parser.parse(argv)
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="hekla-demo-"))
    cluster = Cluster(directory / "demo")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        console.print(
            f"[bold]A cluster of {NODES} nodes with {NODE_CPU} cpu each, on this machine[/bold]"
        )
        flags: dict[str, object] = {
            "nodes": NODES,
            "node_cpu": NODE_CPU,
            "node_memory": "4Gi",
            "isolation": arguments.isolation,
        }
        bring_up(
            cluster,
            flags,
            60,
            lambda what, how, detail: console.print(f"  {what:<24} [green]{how}[/green]  {detail}"),
        )
        explain_isolation(console, arguments.isolation)
        rows = asyncio.run(tell_all(cluster, console))
    except ClusterError as error:
        console.print(f"\n[red]{error}[/red]", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted; cleaning up.")
        return 130
    finally:
        # A second Ctrl-C must not leave half of it behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        stop(cluster)
        if not arguments.keep:
            shutil.rmtree(directory, ignore_errors=True)
    print_rows(console, rows)
    good = sum(ok for _, _, ok in rows)
    console.print(
        f"{good} of {len(rows)} as expected, in {time.monotonic() - began:.0f} s; nothing is left running."
    )
    if arguments.keep:
        console.print(f"The cluster's files are in {cluster.directory}")
    return 0 if good == len(rows) else 1


def explain_isolation(console: Console, wanted: str) -> None:
    """Print what isolation the pods of this demo lack on this machine."""
    from hekla.local.kubelet.runtime import isolation

    if wanted == "none":
        console.print(
            "\nPods run without namespaces, as told by --isolation=none.", highlight=False
        )
    without = [finding for finding in isolation.survey() if not finding.available]
    if without:
        console.print(
            "\nThis machine runs pods without: "
            + "; ".join(f"{f.name} ({f.why_not})" for f in without),
            highlight=False,
        )
        console.print('"hekla doctor" says what that means.', highlight=False)


async def tell_all(cluster: Cluster, console: Console) -> list[tuple[Story, str, bool]]:
    """Play the stories in order, and print what was seen and whether that is what was expected."""
    rows = []
    async with Client(
        config.load(str(cluster.internal_kubeconfig)), user_agent="hekla-demo"
    ) as client:
        for story in STORIES:
            with console.status(f"[bold]{story.title}[/bold]: {story.expected}"):
                began = time.monotonic()
                try:
                    seen, ok = await story.tell(client), True
                except (stories.Differs, TransportError) as differs:
                    seen, ok = str(differs), False
                except ApiError as error:
                    seen, ok = f"the API server answered: {error}", False
            mark = "[green]ok[/green]" if ok else "[red]differs[/red]"
            console.print(f"  {story.title:<20} {mark}  {time.monotonic() - began:4.1f} s")
            rows.append((story, seen, ok))
    return rows


def print_rows(console: Console, rows: list[tuple[Story, str, bool]]) -> None:
    table = Table(show_lines=True)
    for title in ("Story", "Expected", "Seen", ""):
        table.add_column(title)
    for story, seen, ok in rows:
        table.add_row(
            story.title, story.expected, seen, "[green]ok[/green]" if ok else "[red]differs[/red]"
        )
    console.print(table)
