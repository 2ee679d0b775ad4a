"""From a command line to an exit code: find the command, give its help, or run it and word what
went wrong.

Reference: cli 1.4.  What a command prints goes to stdout, its failure too (the original does so,
and scripts read it); what concerns the command line itself goes to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hekla.cli.reader import while_read
from hekla.cli.vcctl.command import Command, CommandError, Invocation
from hekla.cli.vcctl.help import help_text, usage_text
from hekla.cli.vcctl.parsing import UsageError, parse

FAILED = 255
MISUSED = 1


def run(root: Command, argv: Sequence[str]) -> int:
    return while_read(lambda: _run(root, argv))


def _run(root: Command, argv: Sequence[str]) -> int:
    try:
        invocation = parse(root, argv)
    except UsageError as error:
        return _misused(error)
    if not invocation.command.action or invocation.values["help"]:
        sys.stdout.write(help_text(invocation.path))
        return 0
    try:
        return _act(invocation)
    except CommandError as error:
        print(f"Failed to{_words(invocation.path)}: {error}")
        if error.hint:
            print(error.hint, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130


def _act(invocation: Invocation) -> int:
    from importlib import import_module

    # The action of the command's row in tree.py: `jobs:list_jobs`.
    module, _, function = invocation.command.action.partition(":")
    action = getattr(import_module(f"hekla.cli.vcctl.{module}"), function)
    if not any(flag.name == "kubeconfig" for flag in invocation.command.flags):
        return int(action(invocation) or 0)
    from hekla.cli.vcctl.connection import connected

    return connected(invocation, action)


def _words(path: Sequence[Command]) -> str:
    """The command's names from the leaf upwards, the root left out: ` view job`."""
    return "".join(f" {step.name}" for step in reversed(path[1:]))


def _misused(error: UsageError) -> int:
    if len(error.path) == 1 and not str(error).startswith("unknown command"):
        sys.stderr.write(usage_text(error.path) + "\n")
    print(f"Error: {error}", file=sys.stderr)
    if error.hint:
        print(error.hint, file=sys.stderr)
    return MISUSED
