"""`hekla demo`: a cluster in a temporary place, five stories run on it as real processes, and
whether each did what it should."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Runs the demo; exit code 1 when anything differs from what was expected."""
    from hekla.cli.demo.run import main as run

    return run(argv)
