"""`vcctl` and its Slurm-like short forms: the batch system's command line.

Reference: cli.  A command line is judged by its start: everything that a command needs beyond the
table of commands is imported when that command runs, so that `--help` costs little more than the
interpreter.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """The `vcctl` command."""
    from hekla.cli.vcctl.dispatch import run
    from hekla.cli.vcctl.tree import VCCTL

    return run(VCCTL, sys.argv[1:] if argv is None else argv)


def _single(name: str) -> int:
    from hekla.cli.vcctl.dispatch import run
    from hekla.cli.vcctl.tree import single

    return run(single(name), sys.argv[1:])


def vsub() -> int:
    return _single("vsub")


def vjobs() -> int:
    return _single("vjobs")


def vqueues() -> int:
    return _single("vqueues")


def vcancel() -> int:
    return _single("vcancel")


def vsuspend() -> int:
    return _single("vsuspend")


def vresume() -> int:
    return _single("vresume")
