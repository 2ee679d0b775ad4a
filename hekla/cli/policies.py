"""`hekla policies`: the admission rules that a cluster keeps by itself, as YAML, for `kubectl apply
-f -`."""

from __future__ import annotations

from hekla.cli.arguments import Parser


def main(argv: list[str]) -> int:
    """Prints ValidatingAdmissionPolicies and MutatingAdmissionPolicies with their bindings."""
    Parser("hekla policies", __doc__).parse(argv)
    import yaml

    from hekla.admission import cluster_policies

    print(yaml.safe_dump_all(cluster_policies.objects(), sort_keys=False, width=10_000), end="")
    return 0
