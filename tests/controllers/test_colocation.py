"""Which colocation configuration is a pod's."""

import json
from collections.abc import AsyncIterator

import pytest

from hekla.api import config
from hekla.api.kubernetes import core
from hekla.api.meta import LabelSelector, ObjectMeta
from hekla.controllers.colocation import Pod, PodMarks, PodMeta, wanted
from hekla.kube.errors import Invalid
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, running

__all__ = ["shared_apiserver"]

NAME, CONFIG = "volcano.sh/colocation-config-name", "volcano.sh/colocation-config"


def pod(name: str | None = None, value: str | None = None, **labels: str) -> Pod:
    return Pod(
        metadata=PodMeta(
            name="p",
            namespace="default",
            labels=labels,
            annotations=PodMarks(name=name, config=value),
        )
    )


def configuration(
    name: str, created: str = "2026-01-01T00:00:00Z", high: int = 100, **labels: str
) -> config.ColocationConfiguration:
    return config.ColocationConfiguration(
        metadata=ObjectMeta(name=name, namespace="default", creation_timestamp=created),
        spec=config.ColocationConfigurationSpec(
            selector=LabelSelector(match_labels=labels) if labels else None,
            memory_qos=config.MemoryQos(high, 0, 0),
        ),
    )


@pytest.mark.scenario("controllers", 167)
def test_which_configuration_a_pod_gets() -> None:
    batch = configuration("batch", app="x")
    text = '{"memoryQos":{"highRatio":100,"lowRatio":0,"minRatio":0}}'
    assert wanted(pod(app="y"), [batch]) is None
    assert wanted(pod(app="x"), [batch]) == {NAME: "batch", CONFIG: text}
    assert wanted(pod("batch", json.dumps(json.loads(text), indent=1), app="x"), [batch]) is None, (
        "spelling is no difference"
    )
    newer = configuration("newer", "2026-01-02T00:00:00Z", app="x")
    assert (wanted(pod(app="x"), [batch, newer]) or {})[NAME] == "newer"
    assert wanted(pod("batch", text, app="x"), []) == {NAME: None, CONFIG: "{}"}
    assert wanted(pod(None, "{}", app="x"), []) is None
    assert wanted(pod("batch", "not json", app="x"), [batch]) == {NAME: "batch", CONFIG: text}
    assert wanted(pod(app="x"), [configuration("all")]) is None, "no selector selects nothing"


def test_a_high_ratio_of_nothing_stops_no_pod() -> None:
    found = wanted(pod(app="x"), [configuration("none", high=0, app="x")]) or {}
    assert found[CONFIG] == '{"memoryQos":{"highRatio":100,"lowRatio":0,"minRatio":0}}'


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        yield made


@pytest.mark.scenario("controllers", 167)
async def test_pods_follow_configurations(cluster: Cluster) -> None:
    async def make(name: str, **labels: str) -> None:
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        await cluster.client.create(core.POD.untyped, body, "default")

    def marks(name: str) -> tuple[str | None, str | None]:
        found = cluster.pods.get(f"default/{name}") or {"metadata": {}}
        annotations = found["metadata"].get("annotations") or {}
        return annotations.get(NAME), annotations.get(CONFIG)

    await make("batch-pod", app="x")
    spec = {"selector": {"matchLabels": {"app": "x"}}, "memoryQos": {"highRatio": 80}}
    await cluster.client.create(
        config.COLOCATION_CONFIGURATION.untyped,
        {"metadata": {"name": "calm"}, "spec": spec},
        "default",
    )
    await make("later", app="x")
    await make("other", app="y")
    for name in ("batch-pod", "later"):
        await cluster.until(
            lambda name=name: marks(name)[0] == "calm", lambda name=name: str(marks(name))
        )  # type: ignore[misc]
        assert json.loads(marks(name)[1] or "")["memoryQos"]["highRatio"] == 80
    assert marks("other") == (None, None)
    await cluster.client.patch(
        config.COLOCATION_CONFIGURATION,
        "calm",
        {"spec": {"memoryQos": {"highRatio": 70}}},
        "default",
    )
    await cluster.until(lambda: '"highRatio":70' in (marks("later")[1] or ""))
    await cluster.client.delete(config.COLOCATION_CONFIGURATION, "calm", "default")
    await cluster.until(lambda: marks("later") == (None, "{}") == marks("batch-pod"))


async def test_what_is_left_on_pods_is_taken_back_at_the_start(
    shared_apiserver: ApiServerProcess,
) -> None:
    async with running(shared_apiserver, "--controllers=*,-colocation-config-controller") as first:
        body = {
            "metadata": {"name": "left", "annotations": {NAME: "gone", CONFIG: '{"memoryQos":{}}'}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }
        await first.client.create(core.POD.untyped, body, "default")
    async with running(shared_apiserver) as second:

        def annotations() -> dict[str, str]:
            return (second.pods.get("default/left") or {"metadata": {}})["metadata"].get(
                "annotations"
            ) or {}

        await second.until(
            lambda: annotations().get(CONFIG) == "{}" and NAME not in annotations(),
            lambda: str(annotations()),
        )


@pytest.mark.parametrize(
    ("ratios", "message"),
    [
        (
            {"minRatio": 60, "lowRatio": 50},
            "minRatio must not be above lowRatio: what is never reclaimed must not "
            "be more than what is reclaimed last; raise lowRatio, lower minRatio, or set lowRatio to 0",
        ),
        (
            {"highRatio": 101},
            "spec.memoryQos.highRatio: Invalid value: 101: "
            "spec.memoryQos.highRatio in body should be less than or equal to 100",
        ),
        ({"minRatio": 60}, ""),
        ({"minRatio": 50, "lowRatio": 50, "highRatio": 40}, ""),
    ],
)
async def test_ratios_that_contradict_each_other_are_refused(
    cluster: Cluster, ratios: dict[str, int], message: str
) -> None:
    body = {"metadata": {"name": "odd"}, "spec": {"memoryQos": ratios}}
    kind = config.COLOCATION_CONFIGURATION.untyped
    if not message:
        await cluster.client.create(kind, body, "default", dry_run=True)
        return
    with pytest.raises(Invalid) as refused:
        await cluster.client.create(kind, body, "default")
    assert message in str(refused.value)
