"""Which offline pods go, and in what order; what pods have of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.agent.eviction import Evictor, borrowers, is_critical, requested, victims
from hekla.agent.node_resources import idle_of
from hekla.agent.oversubscription import Names
from hekla.agent.pods import Node, Pod
from hekla.agent.usage import Scope, Usage
from hekla.agent.watermarks import Kind
from hekla.api.trees import Json
from hekla.kube.events import Recorder
from hekla.kube.http.message import Response
from tests.agent.trees import pod_tree
from tests.kube.scripted_api import scripted_api

LENT = Names()


def pod(name: str = "p", requests: Json | None = None, level: str = "BE", **more: Any) -> Pod:
    tree = pod_tree(name, level=level, containers=[{"requests": requests or {}}])
    tree["spec"].update(more.pop("spec", {}))
    tree["status"].update(more.pop("status", {}))
    tree["metadata"].update(more)
    return msgspec.convert(tree, Pod)


def batch(cpu: int) -> Json:
    return {LENT.cpu: str(cpu)}


def names(pods: list[Pod]) -> str:
    return " ".join(pod.metadata.name for pod in pods)


def test_who_requests_most_of_the_kind_goes_first() -> None:
    pods = [
        pod("a", {"cpu": "1", "memory": "9Gi"}),
        pod("b", {"cpu": "2", "memory": "1Gi"}),
        pod("c", batch(500)),
        pod("d", batch(1500)),
        pod("e"),
        pod("online", {"cpu": "64"}, level="LS"),
        pod("default", {"cpu": "64"}, level=""),
        pod("going", {"cpu": "64"}, deletionTimestamp="2026-11-25T00:00:00Z"),
        pod("done", {"cpu": "64"}, status={"phase": "Succeeded"}),
    ]
    assert names(victims(pods, Kind.CPU, LENT)) == "b a d c e"
    assert names(victims(pods, Kind.MEMORY, LENT)) == "a b c d e"
    pods.append(pod("m", {LENT.memory: "1Gi"}))
    assert names(borrowers(pods, LENT)) == "d c m"


def test_a_pod_requests_what_its_containers_do_at_once() -> None:
    init = [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]
    found = pod(requests={"cpu": "1500m"}, spec={"initContainers": init, "overhead": {"cpu": "1"}})
    assert requested(found, "cpu") == 4000
    assert requested(found, "memory") == 0


@pytest.mark.parametrize(
    ("more", "critical"),
    [
        ({}, False),
        ({"spec": {"priority": 2_000_000_000}}, True),
        ({"spec": {"priority": 1_999_999_999}}, False),
        ({"annotations": {"kubernetes.io/config.mirror": ""}}, True),
        ({"annotations": {"kubernetes.io/config.source": "file"}}, True),
        ({"annotations": {"kubernetes.io/config.source": "api"}}, False),
    ],
)
def test_critical_pods(more: Json, critical: bool) -> None:
    assert is_critical(pod(**more)) is critical


@pytest.mark.parametrize(
    ("code", "why"),
    [(200, "/api/v1 is no list of resources: JSON is malformed"), (404, "page not found")],
)
async def test_where_a_proxy_answers_nobody_is_evicted_and_nobody_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, why: str
) -> None:
    outcomes: list[str] = []
    async with scripted_api(tmp_path) as (api, client):
        recorder = Recorder(client, "volcano-agent")
        evictor = Evictor(client, recorder, outcomes.append)
        page = b"<html>page not found</html>"
        api.refusals.append(Response(code, page, headers={"Content-Type": "text/html"}))
        assert not await evictor.evict(found := pod("p"), "too full")
        assert [request.method for request in api.requests] == ["GET"]
        assert evictor.still_there([found]) == [found]
        await recorder.close()
    assert outcomes == ["failed"]
    assert "default/p is not evicted: " in caplog.text and why in caplog.text


@pytest.mark.parametrize(
    ("policy", "lent"),
    [
        ("", (1200, 4800)),
        ("none", (1200, 4800)),
        # The processors of guaranteed pods are theirs alone, and so is what they use of them:
        # (3000 - 1000 - 600) * 60 percent.
        ("static", (840, 4800)),
    ],
)
def test_what_guaranteed_pods_have_for_themselves_is_not_lent(
    policy: str, lent: tuple[int, int]
) -> None:
    node = msgspec.convert({"status": {"allocatable": {"cpu": "3", "memory": "10000"}}}, Node)
    guaranteed: dict[str, Any] = {"status": {"qosClass": "Guaranteed"}}
    pods = [
        pod("own", {"cpu": "1"}, level="LC", **guaranteed),
        pod("offline", {"cpu": "1"}, **guaranteed),
        pod("burstable", {"cpu": "1"}, level="", status={"qosClass": "Burstable"}),
    ]
    cpu = {Scope.PODS: 1000, Scope.BURSTABLE: 500, Scope.BEST_EFFORT: 100, Scope.NODE: 1500}
    usage = Usage(cpu, pods_memory=2000, node_memory=5000)
    found = idle_of(node, pods, usage, policy, ratio=60, system=False)
    assert found == {Kind.CPU: lent[0], Kind.MEMORY: lent[1]}
    assert idle_of(node, [], usage, "", ratio=60, system=True) == {Kind.CPU: 900, Kind.MEMORY: 3000}
    assert idle_of(node, [], Usage(), "", ratio=60, system=False) == {}


def test_guaranteed_pods_may_leave_nothing() -> None:
    node = msgspec.convert({"status": {"allocatable": {"cpu": "3", "memory": "1"}}}, Node)
    pods = [pod("own", {"cpu": "2"}, level="LC", status={"qosClass": "Guaranteed"})]
    cpu = {Scope.BURSTABLE: 1200, Scope.BEST_EFFORT: 0}
    found = idle_of(node, pods, Usage(cpu), "static", ratio=60, system=False)
    assert found == {Kind.CPU: 0}
