"""The examples of the user page, applied as they are."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.api import batch, flow
from hekla.api.text.times import instant
from hekla.controllers.cronjob.controller import delay_after_change
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, running

__all__ = ["shared_apiserver"]

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "jobs").glob("*.yaml"))


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_runs(cluster: Cluster, path: Path) -> None:
    manifest: dict[str, Any] = yaml.safe_load(path.read_text())
    tasks = manifest["spec"].pop("tasks")
    name = manifest["metadata"]["name"]
    for task in tasks:
        task.setdefault("minAvailable", task["replicas"])
    await cluster.job(name, *tasks, **manifest["spec"])
    await cluster.phase(name, "Running")
    wanted = [
        f"{name}-{task['name']}-{index}" for task in tasks for index in range(task["replicas"])
    ]
    await cluster.pods_are(*wanted, job=name)
    # Where some are enough for the job, the others are deleted as soon as these have succeeded.
    await cluster.succeed(*wanted[: manifest["spec"].get("minSuccess")])
    await cluster.phase(name, "Completed")


async def test_the_diamond_runs(cluster: Cluster) -> None:
    for manifest in yaml.safe_load_all((ROOT / "examples" / "flows" / "diamond.yaml").read_text()):
        kind = flow.JOB_FLOW if manifest["kind"] == "JobFlow" else flow.JOB_TEMPLATE
        if kind is flow.JOB_TEMPLATE:
            manifest["spec"] |= {"queue": "default", "maxRetry": 3}
        await cluster.client.create(kind.untyped, manifest, "default")
    await cluster.phase("diamond-train-small", "Running")
    assert cluster.jobs.get("default/diamond-train-large") is None
    await cluster.succeed("diamond-prepare-work-0", "diamond-train-small-work-0")
    large = await cluster.phase("diamond-train-large", "Running")
    assert (
        large.spec.min_available == 2
        and large.spec.tasks[0].template["spec"]["containers"][0]["image"] == "busybox"
    )
    await cluster.succeed("diamond-train-large-work-0", "diamond-train-large-work-1")
    await cluster.phase("diamond-report", "Running")


async def test_the_nightly_job_is_a_cron_job(cluster: Cluster) -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "flows" / "nightly.yaml").read_text())
    made = await cluster.client.create(batch.CRON_JOB, manifest, "default")
    assert (
        0
        < (delay_after_change(made, instant(made.metadata.creation_timestamp)) or 0)
        <= 86400 + 3600
    )


def test_the_page_names_only_what_there_is() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text()
    for path in EXAMPLES:
        assert f"../examples/jobs/{path.name}" in page, f"{path.name} is on no page"
    for word in page.split("(")[1:]:
        target = word.split(")")[0]
        if target.startswith("../examples/"):
            assert (ROOT / "docs" / target).resolve().is_file(), target


def test_examples_are_whole_jobs() -> None:
    for path in EXAMPLES:
        job = batch.JOB.convert(yaml.safe_load(path.read_text()))
        assert job.spec.tasks and job.metadata.name == path.stem
