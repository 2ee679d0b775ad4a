"""`hekla crds`: the CustomResourceDefinitions of all batch kinds as YAML, for `kubectl apply -f -`."""

from __future__ import annotations

import argparse


def main(argv: list[str]) -> int:
    """Prints the definitions."""
    parser = argparse.ArgumentParser(prog="hekla crds", description=__doc__)
    parser.parse_args(argv)
    from hekla.api import crds

    print(crds.yaml(), end="")
    return 0
