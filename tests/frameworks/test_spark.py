"""Spark as its users start it: its own submitter makes the driver, the driver makes the executors,
and all of it is Java."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Api
from tests.frameworks.environments import SPARK
from tests.frameworks.runs import CORE, MANIFESTS, cluster

pytestmark = [pytest.mark.slow(seconds=240), pytest.mark.timeout(780)]

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()
OPTIONS = (
    "--deploy-mode cluster", "--name pi", "--conf spark.kubernetes.container.image=spark:3.5", "--conf spark.executor.instances=1",
    "--conf spark.kubernetes.driver.request.cores=0.1", "--conf spark.kubernetes.executor.request.cores=0.1",
    "--conf spark.driver.memory=512m", "--conf spark.executor.memory=512m",
)  # fmt: skip
LONGEST = 400.0
"""Seconds of a run, most of which Java starts three times."""


@pytest.mark.skipif(
    shutil.which("java") is None,
    reason="there is no Java here (apt-get install default-jre-headless)",
)
@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="driver and executor each need a network of their own, which takes root",
)
def test_spark_submit_in_cluster_mode_computes_pi(tmp_path: Path) -> None:
    environment = SPARK.environment()
    assert [option for option in OPTIONS if option not in PAGE] == []
    with cluster() as runs:
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        binding = {"metadata": {"name": "spark"}, "roleRef": role, "subjects": [subject]}
        runs.api.create(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding
        )
        kubeconfig = runs.kubeconfig
        server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        words = " ".join(("--master", f"k8s://{server}", *OPTIONS)).split()
        done = subprocess.run(
            [
                str(environment / "bin" / "spark-submit"),
                *words,
                f"local://{MANIFESTS / 'spark' / 'pi.py'}",
            ],
            cwd=tmp_path,
            timeout=LONGEST,
            env={
                **os.environ,
                "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
                "KUBECONFIG": str(kubeconfig),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        drivers = (
            Api(kubeconfig).get(f"{CORE}/pods", labelSelector="spark-role=driver").tree["items"]
        )
        said = runs.log(drivers[0]["metadata"]["name"]) if drivers else "there is no driver"
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n--- the driver:\n{said[-3000:]}"
        assert [driver["status"]["phase"] for driver in drivers] == ["Succeeded"]
        assert "pi is roughly 3.1" in said, said[-3000:]
        assert "executor 1" in said.lower(), said[-3000:]
