"""Runs the manifests of examples/frameworks on a local cluster, and gives what the programs
printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Api, Tree, eventually
from tests.frameworks.environments import FRAMEWORKS, cache
from tests.local.home import Home, home

MANIFESTS = Path(__file__).parents[2] / "examples" / "frameworks"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
CORE = "/api/v1/namespaces/default"
ENDED = {"Completed", "Failed", "Terminated", "Aborted"}


def images_table(directory: Path) -> Path:
    """The file that says which environment stands for which image, made or not."""
    rows = [
        {"image": framework.image, "path": [str(cache() / framework.name / "bin")]}
        | ({"entrypoint": [str(MANIFESTS / framework.entrypoint)]} if framework.entrypoint else {})
        for framework in FRAMEWORKS
    ]
    file = directory / "images.yaml"
    file.write_text(yaml.safe_dump(rows))
    return file


class Runs:
    """A cluster on which jobs are run."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.api = Api(kubeconfig)

    def run(
        self, manifest: str, seconds: float, change: Callable[[Tree, Tree], None] | None = None
    ) -> dict[str, str]:
        """Applies a manifest, waits until its job is completed, and gives the logs of the pods that
        ended by themselves.

        `change` may alter the ConfigMap and the Job first.
        """
        documents = [
            tree for tree in yaml.safe_load_all((MANIFESTS / manifest).read_text()) if tree
        ]
        if change is not None:
            change(documents[0], documents[-1])
        return self.complete(documents, seconds)

    def complete(self, documents: list[Tree], seconds: float) -> dict[str, str]:
        """The same with ConfigMaps and a Job."""
        job = next(tree for tree in documents if tree["kind"] == "Job")
        for tree in documents:
            self.api.create(JOBS if tree is job else f"{CORE}/configmaps", tree)
        name = job["metadata"]["name"]
        try:
            self._ends_well(name, seconds)
            return {
                pod: self.log(pod) for pod, phase in self.pods(name).items() if phase == "Succeeded"
            }
        finally:
            self._remove(name, [tree["metadata"]["name"] for tree in documents if tree is not job])

    def pods(self, job: str) -> dict[str, str]:
        """Phases by name."""
        listed = self.api.get(f"{CORE}/pods", labelSelector=f"volcano.sh/job-name={job}").tree[
            "items"
        ]
        return {pod["metadata"]["name"]: pod.get("status", {}).get("phase", "") for pod in listed}

    def log(self, pod: str) -> str:
        return self.api.get(f"{CORE}/pods/{pod}/log").text

    def _ends_well(self, name: str, seconds: float) -> None:
        def status() -> Tree:
            return dict(self.api.get(f"{JOBS}/{name}").tree.get("status", {}))

        def phase() -> str:
            return str(status().get("state", {}).get("phase", ""))

        try:
            eventually(lambda: phase() in ENDED, seconds, every=0.2)
        except AssertionError:
            pytest.fail(
                f"{name} is still {phase() or 'not begun'} after {seconds:.0f} s\n{self._said(name)}"
            )
        assert phase() == "Completed", f"{name}: {status()}\n{self._said(name)}"

    def _said(self, job: str) -> str:
        return "\n".join(
            f"--- {pod} ({phase})\n{self.log(pod)[-3000:]}" for pod, phase in self.pods(job).items()
        )

    def _remove(self, job: str, config_maps: list[str]) -> None:
        self.api.delete(f"{JOBS}/{job}")
        self.api.delete(
            f"{CORE}/pods", labelSelector=f"volcano.sh/job-name={job}", gracePeriodSeconds=0
        )
        for name in config_maps:
            self.api.delete(f"{CORE}/configmaps/{name}")


@contextmanager
def cluster(*flags: str, within: Home | None = None) -> Iterator[Runs]:
    """A cluster of its own whose images are the frameworks' environments; gone afterwards."""
    with home() as own:
        place = within or own
        place.good("up", f"--images={images_table(own.state)}", *flags)
        try:
            yield Runs(place.directory() / "kubeconfig")
        finally:
            place.hekla("down", "--delete")
