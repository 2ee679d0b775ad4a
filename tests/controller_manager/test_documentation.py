"""The example of the page on the local cluster that shows what Jobs of Kubernetes' own group can
do."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from hekla.api.kubernetes.batch import JOB
from tests.controller_manager.cluster import client, controllers, kubelet, namespace, server
from tests.controller_manager.test_jobs import ended, pods_of

__all__ = ["client", "controllers", "kubelet", "namespace", "server"]

PAGE = Path(__file__).parents[2] / "docs/local-cluster.md"


async def test_the_rank_that_decides(client, namespace, kubelet):
    section = PAGE.read_text().partition("## What keeps pods running")[2].partition("\n## ")[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    await client.create(JOB.untyped, yaml.safe_load(found[1]), namespace)
    pods = await pods_of(kubelet, "ranks", 3, index=True)
    disruption = [{"type": "DisruptionTarget", "status": "True"}]
    await kubelet.report(pods[1]["metadata"]["name"], "Failed", code=143, conditions=disruption)
    await kubelet.report(pods[0]["metadata"]["name"], "Succeeded", code=0)

    conditions, status = await ended(client, namespace, "ranks", "Complete")

    assert (
        conditions["Complete"]["reason"] == "SuccessPolicy"
        and status["completedIndexes"] == "0"
        and status["failedIndexes"] == ""
    )
