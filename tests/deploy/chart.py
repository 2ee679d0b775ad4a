"""The chart as helm renders it, as trees."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from deploy.__main__ import CHART, KUBERNETES, MANIFESTS

__all__ = [
    "AGENT_ALONE",
    "CHART",
    "HYPERNODES_ALONE",
    "KUBERNETES",
    "MANIFESTS",
    "NAMESPACE",
    "Chart",
    "Helm",
    "Manifests",
    "listed",
    "rights",
]

Tree = dict[str, Any]
NAMESPACE = "volcano-system"
HYPERNODES_ALONE = [
    "scheduler_enable=false",
    "controller_enable=false",
    "admission_enable=false",
    "hypernode_controller_mode=standalone",
    "hypernode_controller_replicas=2",
]
"""Values of a release of the standalone hypernode controller and nothing else."""
AGENT_ALONE = [
    "scheduler_enable=false",
    "controller_enable=false",
    "admission_enable=false",
    "colocation_enable=true",
]
"""Values of a release of the colocation agent and nothing else."""


def listed(names: Iterable[str]) -> str:
    """A list in one value, where helm takes a bare comma for the end of it."""
    return "\\,".join(names)


def rights(component: str) -> dict[str, list[Tree]]:
    """The rules that an account of the chart has, by the name of each part."""
    tree = yaml.safe_load((CHART / "rights" / f"{component}.yaml").read_text())
    assert isinstance(tree, dict)
    return tree


class Manifests:
    """What is applied."""

    def __init__(self, text: str) -> None:
        self.trees: list[Tree] = [tree for tree in yaml.safe_load_all(text) if tree]

    def of(self, kind: str) -> dict[str, Tree]:
        """The objects of a kind by name."""
        return {tree["metadata"]["name"]: tree for tree in self.trees if tree["kind"] == kind}

    def container(self, deployment: str) -> Tree:
        found = self.of("Deployment")[deployment]["spec"]["template"]["spec"]["containers"]
        assert len(found) == 1 and isinstance(found[0], dict)
        return found[0]


class Helm:
    """helm, as a user of one cluster (or of none) types it."""

    def __init__(self, program: Path, home: Path, kubeconfig: Path | None = None) -> None:
        places = {
            f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
        }
        self.program = str(program)
        self.environment = {**os.environ, **places, "KUBECONFIG": str(kubeconfig or "")}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self.program, f"--namespace={NAMESPACE}", *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=180, check=False
        )

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"helm {' '.join(words)}: {done.stdout}\n{done.stderr}"
        return done.stdout


class Chart:
    """The chart with values, as `helm template` renders it."""

    def __init__(self, helm: Helm) -> None:
        self.helm = helm

    def __call__(self, *values: str, release: str = "volcano") -> Manifests:
        """Each value is `key=value` below `custom`, or with its own top."""
        return Manifests(
            self.helm(
                "template",
                release,
                str(CHART),
                KUBERNETES,
                "--set=custom.crd_enable=false",
                *_set(values),
            )
        )

    def refused(self, *values: str) -> str:
        """What helm says to values that the chart does not take."""
        done = self.helm.run("template", "volcano", str(CHART), KUBERNETES, *_set(values))
        assert done.returncode != 0, f"{values} are taken"
        return done.stderr


def _set(values: tuple[str, ...]) -> list[str]:
    return [
        f"--set={value if value.startswith(('basic.', 'service.')) else f'custom.{value}'}"
        for value in values
    ]
