"""`hekla crds`: the CustomResourceDefinitions of all batch kinds as YAML, for `kubectl apply -f -`."""

from __future__ import annotations

from hekla.cli.arguments import Parser


def main(argv: list[str]) -> int:
    """Prints the definitions."""
    Parser("hekla crds", __doc__).parse(argv)
    from hekla.api import crds

    print(crds.yaml(), end="")
    return 0
