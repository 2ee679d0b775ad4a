"""The same manifest applied again: with kubectl, as people keep jobs in a repository, in each of
its two ways."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admission.objects import Tree
from tests.admission.process import BATCH, admission, call, install_kinds, make_queue
from tests.apiserver_process import ApiServerProcess

KUBECTL = shutil.which("kubectl")
JOBS = f"{BATCH}/namespaces/default/jobs"

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    directory = tmp_path_factory.mktemp("apply")
    with ApiServerProcess.started(directory) as server:
        install_kinds(server)
        for name in ("root", "default"):
            make_queue(server, name)
        with admission(server, directory, paths="/jobs/mutate,/jobs/validate"):
            yield server


def manifest(name: str, replicas: int = 2, image: str = "busybox") -> Tree:
    """Two tasks, one without a name; nothing that admission fills in."""
    template = {
        "spec": {
            "restartPolicy": "Never",
            "hostNetwork": True,
            "containers": [
                {"name": "main", "image": image, "resources": {"requests": {"cpu": "1000m"}}},
            ],
        }
    }
    tasks = [
        {"name": "launcher", "replicas": 1, "template": template},
        {"replicas": replicas, "template": template},
    ]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"plugins": {"pytorch": ["--master=launcher"]}, "tasks": tasks},
    }


def apply(
    cluster: ApiServerProcess, tree: Tree, directory: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    assert KUBECTL is not None
    command = [
        KUBECTL,
        f"--kubeconfig={cluster.kubeconfig}",
        f"--cache-dir={directory}",
        "apply",
        *flags,
        "-f",
        "-",
    ]
    return subprocess.run(
        command, input=json.dumps(tree), capture_output=True, text=True, timeout=60, check=False
    )


WAYS = {"client-side": (), "server-side": ("--server-side",)}


@pytest.mark.parametrize("way", WAYS)
def test_a_second_apply_changes_nothing(
    cluster: ApiServerProcess, tmp_path: Path, way: str
) -> None:
    tree = manifest(f"again-{way}")
    first = apply(cluster, tree, tmp_path, *WAYS[way])
    assert first.returncode == 0, first.stderr
    stored = call(cluster, "GET", f"{JOBS}/again-{way}")[1]["spec"]

    second = apply(cluster, tree, tmp_path, *WAYS[way])

    assert second.returncode == 0, second.stderr
    assert call(cluster, "GET", f"{JOBS}/again-{way}")[1]["spec"] == stored
    assert [task["name"] for task in stored["tasks"]] == ["launcher", "default1"]


@pytest.mark.parametrize("way", WAYS)
def test_an_apply_scales_a_job_and_changes_nothing_else(
    cluster: ApiServerProcess, tmp_path: Path, way: str
) -> None:
    name = f"scaled-{way}"
    assert apply(cluster, manifest(name), tmp_path, *WAYS[way]).returncode == 0

    scaled = apply(cluster, manifest(name, replicas=4), tmp_path, *WAYS[way])
    changed = apply(cluster, manifest(name, replicas=4, image="alpine"), tmp_path, *WAYS[way])

    assert scaled.returncode == 0, scaled.stderr
    assert "job updates may not change fields other than" in changed.stderr
    spec = call(cluster, "GET", f"{JOBS}/{name}")[1]["spec"]
    assert [
        (task["replicas"], task["template"]["spec"]["containers"][0]["image"])
        for task in spec["tasks"]
    ] == [(1, "busybox"), (4, "busybox")]
