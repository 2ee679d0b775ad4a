"""Many jobs while requests, answers and watches get lost: the end is the same as in quiet."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest

from hekla.controllers.daemon import FLAGS, POOL, controllers_of
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.controller import run
from hekla.kube.events import Recorder
from hekla.kube.flags import parse
from tests.apiserver_process import ApiServerProcess
from tests.controllers.chaos import Proxy
from tests.controllers.cluster import Cluster, a_task, install, on

State = dict[str, tuple[str, int, int, int, int, tuple[str, ...]]]


async def end_state(
    directory: Path, jobs: int, tasks: int, share: float, watch_life: float
) -> tuple[State, Proxy, Cluster]:
    """Run the jobs through a proxy: all start, a tenth lose a pod and start again, half end; give
    how everything stands then."""
    short = Path(tempfile.mkdtemp(prefix="hk"))
    try:
        with ApiServerProcess.started(directory) as server:
            text = server.internal_kubeconfig.read_text()
            assert str(server.socket) in text
            around = directory / "chaos.kubeconfig"
            around.write_text(text.replace(str(server.socket), str(short / "chaos.sock")))
            proxy = Proxy(server.socket, share, watch_life)
            async with (
                Client(load(str(server.internal_kubeconfig)), pool=48) as quiet,
                proxy.at(short / "chaos.sock"),
            ):
                await install(quiet)
                cluster = Cluster(quiet)
                await cluster.start()
                async with Client(load(str(around)), pool=POOL) as client:
                    recorder = Recorder(client, "vc-controller-manager")
                    work = asyncio.ensure_future(
                        run(controllers_of(client, recorder, parse(FLAGS, [])))
                    )
                    try:
                        state = await story(cluster, jobs, tasks)
                    finally:
                        work.cancel()
                        await asyncio.gather(work, return_exceptions=True)
                        await recorder.close()
                await cluster.stop()
                return state, proxy, cluster
    finally:
        shutil.rmtree(short, ignore_errors=True)


async def story(cluster: Cluster, jobs: int, tasks: int) -> State:
    names = [f"j{number}" for number in range(jobs)]
    policies = [on("PodFailed", "RestartJob")]
    await asyncio.gather(
        *(
            cluster.job(
                name,
                a_task("a", tasks),
                policies=policies,
                plugins={"svc": []} if at % 7 == 0 else {},
            )
            for at, name in enumerate(names)
        )
    )

    def standing() -> State:
        pods: dict[str, list[str]] = {}
        for pod in cluster.pods:
            if not pod["metadata"].get("deletionTimestamp"):
                owner = pod["metadata"]["labels"]["volcano.sh/job-name"]
                pods.setdefault(owner, []).append(
                    f"{pod['metadata']['name']} {pod['status'].get('phase')}"
                )
        return {
            job.metadata.name: (
                job.status.state.phase,
                job.status.retry_count,
                job.status.running,
                job.status.succeeded,
                job.status.terminating,
                tuple(sorted(pods.get(job.metadata.name, ()))),
            )
            for job in cluster.jobs
        }

    hit: list[str] = []

    def wrong(wanted: dict[str, tuple[str, int]]) -> list[str]:
        now = standing()
        return [
            f"{name}: {now.get(name)}"
            for name, (phase, running) in wanted.items()
            if now.get(name, ())[:3] != (phase, int(name in hit), running)
            or now[name][4]
            or len(now[name][5]) != tasks
        ]

    async def until(wanted: dict[str, tuple[str, int]]) -> None:
        pause = jobs * tasks / 10_000  # a look at 10,000 pods takes a while
        await cluster.until(
            lambda: not wrong(wanted),
            lambda: f"{len(wrong(wanted))}: {wrong(wanted)[:3]}",
            240,
            max(0.05, pause),
        )

    await until(dict.fromkeys(names, ("Running", tasks)))
    hit += names[:: max(1, jobs // (jobs // 10 or 1))]
    await asyncio.gather(*(cluster.fail(f"{name}-a-0") for name in hit))
    await until(dict.fromkeys(names, ("Running", tasks)))
    done = names[::2]
    for name in done:
        await cluster.succeed(*(f"{name}-a-{index}" for index in range(tasks)))
    await until({name: ("Completed", 0) if name in done else ("Running", tasks) for name in names})
    await asyncio.sleep(1.0)
    return standing()


@pytest.mark.parametrize(
    ("jobs", "tasks"),
    [
        (20, 5),
        pytest.param(
            500,
            20,
            marks=[pytest.mark.slow(seconds=150), pytest.mark.timeout(900)],
            id="500 jobs of 20",
        ),
    ],
)
async def test_the_same_end_with_and_without_trouble(tmp_path: Path, jobs: int, tasks: int) -> None:
    calm, _, _ = await end_state(tmp_path / "calm", jobs, tasks, 0.0, 3600.0)
    wild, proxy, cluster = await end_state(tmp_path / "wild", jobs, tasks, 0.05, 2.0)
    assert wild == calm
    assert (
        proxy.counts["lost requests"] and proxy.counts["lost answers"] and proxy.counts["watches"]
    ), proxy.counts
    for name, uids in cluster.pods_ever.items():
        assert len(uids) <= 2, f"{name} was made {len(uids)} times"
