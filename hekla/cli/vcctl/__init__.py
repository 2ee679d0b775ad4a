"""`vcctl` and its Slurm-like short forms: the batch system's command line.

Reference: cli.  A command line is judged by its start: everything that a command needs beyond the
table of commands is imported when that command runs, so that `--help` costs little more than the
interpreter.
"""

from __future__ import annotations

import sys
from functools import partial


def main(argv: list[str] | None = None) -> int:
    """The `vcctl` command."""
    from hekla.cli.vcctl.dispatch import run
    from hekla.cli.vcctl.tree import VCCTL

    return run(VCCTL, sys.argv[1:] if argv is None else argv)


def _single(name: str) -> int:
    from hekla.cli.vcctl.dispatch import run
    from hekla.cli.vcctl.tree import single

    return run(single(name), sys.argv[1:])


vsub = partial(_single, "vsub")
vjobs = partial(_single, "vjobs")
vqueues = partial(_single, "vqueues")
vcancel = partial(_single, "vcancel")
vsuspend = partial(_single, "vsuspend")
vresume = partial(_single, "vresume")
