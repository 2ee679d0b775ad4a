"""`python -m deploy`: writes what follows from the program into the chart, and the manifests that
follow from the chart.

    chart/files/crds.yaml       the definitions, a line each, for a release has to fit into a Secret
    chart/files/policies.yaml   as `hekla policies` prints them
    monitoring/boards           Grafana's boards, from monitoring/boards.yaml
    hekla.yaml                  the chart with its own values, without the definitions, for those
                                who have no helm

A test holds the files against this, so that there is one source of each.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from deploy import monitoring
from hekla.admission import cluster_policies
from hekla.api import crds

HERE = Path(__file__).parent
CHART = HERE / "chart"
MANIFESTS = HERE / "hekla.yaml"
KUBERNETES = "--kube-version=1.36.0"
"""A helm that does not know its own version takes the cluster for an ancient one."""
HEADER = "# The chart beside this, with its own values.  Written by `python -m deploy`; the definitions are in chart/files/crds.yaml.\n"


def definitions() -> str:
    """The CustomResourceDefinitions."""
    return "".join(f"---\n{json.dumps(tree, separators=(',', ':'))}\n" for tree in crds.all())


def policies() -> str:
    """The admission policies with their bindings."""
    return yaml.safe_dump_all(cluster_policies.objects(), sort_keys=False, width=10_000)


def manifests(helm: str) -> str:
    """The chart as helm renders it.  Raises CalledProcessError."""
    command = [
        helm,
        "template",
        "volcano",
        str(CHART),
        "--namespace=volcano-system",
        "--set=custom.crd_enable=false",
        KUBERNETES,
    ]
    namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: volcano-system\n"
    return (
        HEADER
        + namespace
        + subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def main() -> int:
    (CHART / "files" / "crds.yaml").write_text(definitions())
    (CHART / "files" / "policies.yaml").write_text(policies())
    monitoring.write()
    helm = shutil.which("helm")
    if helm is None:
        print(
            "python -m deploy: there is no helm on the PATH, so hekla.yaml stays as it is",
            file=sys.stderr,
        )
        return 1
    MANIFESTS.write_text(manifests(helm))
    return 0


if __name__ == "__main__":
    sys.exit(main())
