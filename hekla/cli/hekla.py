"""The `hekla` command: the local cluster (up, down, status, doctor, demo), its daemons, and a few
tools.

A command's module is imported only when it is called, so that starting a daemon or printing help
pays for nothing else.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from hekla import __version__
from hekla.cli.reader import while_read


class Command(NamedTuple):
    """A subcommand: the module whose `main(argv)` runs it, and its line in the help."""

    module: str
    help: str


COMMANDS = {
    "up": Command("hekla.cli.up", "start a cluster on this machine, or start it again"),
    "down": Command("hekla.cli.down", "stop the cluster; its state stays (--delete removes it)"),
    "status": Command(
        "hekla.cli.status", "the cluster's processes and nodes (--json for programs)"
    ),
    "logs": Command(
        "hekla.cli.logs",
        "what the cluster's processes have written (--follow, --tail, one process by name)",
    ),
    "doctor": Command(
        "hekla.cli.doctor", "what this machine allows the cluster to do, and what it goes without"
    ),
    "demo": Command(
        "hekla.cli.demo",
        "a cluster in a temporary place that runs real jobs and shows that each did what it should",
    ),
    "replay": Command(
        "hekla.scheduler.replay",
        "run a scheduler's recording again and show the first difference (--policy FILE)",
    ),
    "simulate": Command(
        "hekla.cli.simulate",
        "what a policy would do with a workload, in virtual time (several are compared)",
    ),
    "rehearse": Command(
        "hekla.cli.rehearse",
        "what a recorded day would have been under another policy (POLICY --recording DIR)",
    ),
    "completion": Command(
        "hekla.cli.completion", "print a completion script for bash, zsh or fish"
    ),
    "crds": Command("hekla.cli.crds", "print the CustomResourceDefinitions as YAML"),
    "network-qos": Command(
        "hekla.agent.network.command",
        "limits of offline pods' traffic on this node (set, show, reset, status), and the CNI plugin",
    ),
    "policies": Command("hekla.cli.policies", "print the admission policies as YAML"),
}

DAEMONS = {
    "apiserver": Command(
        "hekla.local.apiserver.daemon", "the Kubernetes API, durable, on loopback"
    ),
    "kube-controllers": Command(
        "hekla.local.controller_manager.daemon", "Kubernetes' own controllers that a cluster needs"
    ),
    "kubelet": Command(
        "hekla.local.kubelet.daemon", "this machine as a node (or several), and fake nodes"
    ),
    "agent": Command(
        "hekla.agent.daemon",
        "online and offline pods side by side on one node (doctor: what it allows)",
    ),
    "scheduler": Command("hekla.scheduler.daemon", "the batch scheduler"),
    "agent-scheduler": Command(
        "hekla.scheduler.agent_scheduler",
        "a scheduler of pods by themselves, without queues and gangs",
    ),
    "controllers": Command("hekla.controllers.daemon", "the batch controllers"),
    "descheduler": Command(
        "hekla.descheduler.daemon", "evicts pods that sit badly, so that they are placed anew"
    ),
    "hypernode-controllers": Command(
        "hekla.controllers.hypernode.daemon", "the hypernode controllers alone"
    ),
    "admission": Command("hekla.admission.daemon", "the admission webhooks"),
    "metrics-server": Command(
        "hekla.local.metrics_server.daemon", "what nodes and pods use, as metrics.k8s.io"
    ),
}


def usage() -> str:
    """The help text."""
    lines = [
        "Hekla: a batch system for Kubernetes, and a small Kubernetes to run it on.",
        "",
        "Usage: hekla COMMAND [flags]",
        "",
    ]
    for title, commands in (
        ("Commands", COMMANDS),
        ("Daemons, one each in the foreground", DAEMONS),
    ):
        lines.append(f"{title}:")
        lines += [f"  {name:<22} {command.help}" for name, command in commands.items()]
        lines.append("")
    lines.append(
        '"hekla COMMAND --help" says more of one.  Jobs and queues are the business of "vcctl".'
    )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs one command; gives its exit code (2 for a command that does not exist)."""
    return while_read(lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name in ("--version", "version"):
        print(f"hekla {__version__}")
        return 0
    command = COMMANDS.get(name) or DAEMONS.get(name)
    if command is None:
        near = get_close_matches(name, [*COMMANDS, *DAEMONS], 1)
        print(
            f'hekla: unknown command "{name}"' + (f'; did you mean "{near[0]}"?' if near else ""),
            file=sys.stderr,
        )
        print('"hekla --help" lists the commands.', file=sys.stderr)
        return 2
    try:
        return int(import_module(command.module).main(rest))
    except KeyboardInterrupt:
        return 130
