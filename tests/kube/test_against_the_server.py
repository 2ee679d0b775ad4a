"""Client, cache, election and events against a real API server process, which is killed in the
middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hekla.api.kubernetes.coordination import LEASE
from hekla.api.kubernetes.core import CONFIG_MAP, EVENT, NAMESPACE, ConfigMap
from hekla.api.meta import ObjectMeta
from hekla.kube import errors
from hekla.kube import events as recording
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.events import COMBINED, WRITERS, Recorder
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.kube.leader import Durations, LeaderElection, LeadershipLost
from tests.apiserver_process import ApiServerProcess

PATIENT = Durations(lease=60.0, renew=50.0, retry=1.0)
"""What happens when is told in virtual time (test_leader.py); here nothing may run out on a busy
machine."""


@pytest.fixture(autouse=True)
def patient_recorders(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy server takes for what waits when a recorder is closed."""
    monkeypatch.setattr(recording, "FLUSH_SECONDS", 60.0)


@pytest.fixture
async def client(shared_apiserver: ApiServerProcess) -> AsyncIterator[Client]:
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        yield client


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


async def test_an_object_lives_and_dies(client: Client) -> None:
    made = await client.create(CONFIG_MAP, config_map("life", a="1"))
    assert made.metadata.uid
    with pytest.raises(errors.AlreadyExists, match='configmaps "life" already exists'):
        await client.create(CONFIG_MAP, config_map("life"))
    made.data["a"] = "2"
    changed = await client.update(CONFIG_MAP, made)
    assert int(changed.metadata.resource_version) > int(made.metadata.resource_version)
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        made.data["a"] = "3"
        await client.update(CONFIG_MAP, made)
    for type_, patch in (("merge", {"data": {"b": "m"}}), ("strategic", {"data": {"c": "s"}})):
        await client.patch(CONFIG_MAP, "life", patch, "default", type=type_)  # type: ignore[arg-type]
    await client.patch(
        CONFIG_MAP, "life", [{"op": "remove", "path": "/data/a"}], "default", type="json"
    )
    assert (await client.get(CONFIG_MAP, "life", "default")).data == {"b": "m", "c": "s"}
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAP, "life", "default", uid="somebody-else")
    await client.delete(CONFIG_MAP, "life", "default", uid=made.metadata.uid)
    with pytest.raises(errors.NotFound, match='configmaps "life" not found'):
        await client.get(CONFIG_MAP, "life", "default")


async def test_invalid_objects_name_their_fields(client: Client) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await client.create(CONFIG_MAP, config_map("Not A Name"))
    assert [cause.field for cause in caught.value.causes] == ["metadata.name"]


async def test_lists_come_in_pages_of_one_version(client: Client) -> None:
    await asyncio.gather(
        *(client.create(CONFIG_MAP, config_map(f"page-{i:02}")) for i in range(23))
    )
    listing = await client.list(CONFIG_MAP, "default", limit=5)
    names = [item.metadata.name for item in listing.items]
    assert [name for name in names if name.startswith("page-")] == [
        f"page-{i:02}" for i in range(23)
    ]
    assert names == sorted(names)
    assert int(listing.resource_version) > 0


async def test_through_https_with_the_certificates_of_the_kubeconfig(
    shared_apiserver: ApiServerProcess,
) -> None:
    connection = load(str(shared_apiserver.kubeconfig))
    assert connection.target.tls is not None
    async with Client(connection) as client:
        assert (await client.get(NAMESPACE, "default")).metadata.name == "default"


async def test_a_cache_converges_when_the_server_is_killed_and_comes_back(
    apiserver: ApiServerProcess,
) -> None:
    async with Client(load(str(apiserver.internal_kubeconfig))) as client:
        for i in range(20):
            await client.create(CONFIG_MAP, config_map(f"c{i}"))
        heard: dict[str, str] = {}

        def listen(old: ConfigMap | None, new: ConfigMap | None) -> None:
            if new is not None:
                heard[new.metadata.name] = new.data.get("round", "")
            elif old is not None:
                del heard[old.metadata.name]

        cache = Cache(
            client, CONFIG_MAP, namespace="default", fields="metadata.name!=kube-root-ca.crt"
        )
        cache.on_change(listen)
        async with cache:
            assert len(cache) == len(heard) == 20
            for round_ in ("1", "2", "3"):
                await asyncio.to_thread(apiserver.restart, kill=True)
                await client.delete(CONFIG_MAP, f"c{round_}", "default")
                await client.patch(CONFIG_MAP, "c0", {"data": {"round": round_}}, "default")
                await client.create(CONFIG_MAP, config_map(f"new{round_}"))
                listing = await client.list(
                    CONFIG_MAP, "default", fields="metadata.name!=kube-root-ca.crt"
                )
                wanted = {item.metadata.name: item.data.get("round", "") for item in listing.items}
                await until(lambda wanted=wanted: heard == wanted)  # type: ignore[misc]
                assert {obj.metadata.name for obj in cache.all()} == set(wanted)
        assert len(heard) == 20


async def test_one_leads_and_another_takes_over(client: Client) -> None:
    log: list[str] = []

    async def lead(name: str) -> None:
        log.append(f"{name} leads")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{name} stops")

    def candidate(name: str) -> tuple[LeaderElection, asyncio.Task[None]]:
        election = LeaderElection(client, "job", "default", holder=name, durations=PATIENT)
        return election, asyncio.ensure_future(election.run(lambda: lead(name)))

    _, first = candidate("one")
    await until(lambda: log == ["one leads"])
    election, second = candidate("two")
    await until(lambda: election.leader == "one")
    lease = await client.get(LEASE, "job", "default")
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("one", 0)
    assert len(lease.spec.renew_time) == len("2026-01-01T00:00:00.000000Z")

    first.cancel()
    # Given back: no wait for the expiry.
    await until(lambda: log == ["one leads", "one stops", "two leads"])
    lease = await client.get(LEASE, "job", "default")
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("two", 1)

    taken = {"spec": {"holderIdentity": "thief", "renewTime": "2999-01-01T00:00:00.000000Z"}}
    await client.patch(LEASE, "job", taken, "default")
    with pytest.raises(LeadershipLost, match="is now held by thief"):
        await second
    assert log[-1] == "two stops"


async def test_a_lease_that_nobody_renews_is_taken_after_its_time(client: Client) -> None:
    spec = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 1,
        "renewTime": "2999-01-01T00:00:00.000000Z",
        "leaseTransitions": 4,
    }
    await client.create(
        LEASE.untyped, {"metadata": {"name": "dead", "namespace": "default"}, "spec": spec}
    )
    leading = asyncio.Event()

    async def lead() -> None:
        leading.set()

    await LeaderElection(client, "dead", "default", holder="heir", durations=PATIENT).run(lead)
    assert leading.is_set()
    lease = await client.get(LEASE, "dead", "default")
    # It worked to its end and gave it back.
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == (
        "",
        5,
    )


async def test_events_are_counted_combined_and_throttled(client: Client) -> None:
    subject = await client.create(CONFIG_MAP, config_map("subject"))
    recorder = Recorder(client, "tester")

    async def events() -> dict[str, int]:
        listing = await client.list(
            EVENT, "default", fields=f"involvedObject.uid={subject.metadata.uid}"
        )
        return {event.message: event.count for event in listing.items}

    for _ in range(3):
        recorder.event(subject, "Normal", "Same", "the same thing")
        await asyncio.sleep(0.05)
    for i in range(14):
        recorder.event(subject, "Warning", "Similar", f"thing number {i}")
    for i in range(20):
        recorder.event(subject, "Normal", "Flood", f"flood {i}")
    await recorder.close()

    seen = await events()
    assert seen["the same thing"] == 3
    assert [message for message in seen if message.startswith("thing number")] == [
        f"thing number {i}" for i in range(10)
    ]
    assert seen[f"{COMBINED}thing number 13"] == 4
    assert sum("flood" in message for message in seen) == 25 - 3 - 14
    assert recorder.dropped == 12

    event = (await client.list(EVENT, "default", fields="reason=Same")).items[0]
    assert event.type == "Normal"
    assert event.involved_object.kind == "ConfigMap"
    assert event.source.component == event.reporting_component == "tester"
    assert event.metadata.name.startswith("subject.")


async def test_what_happens_again_while_its_event_is_made_is_counted(
    shared_apiserver: ApiServerProcess,
) -> None:
    answer, made = asyncio.Event(), 0

    class Slow(Client):
        async def create(self, *arguments: Any, **more: Any) -> Any:
            nonlocal made
            made += 1
            await answer.wait()
            return await super().create(*arguments, **more)

    async with Slow(load(str(shared_apiserver.internal_kubeconfig))) as client:
        recorder = Recorder(client, "tester")
        for _ in range(3):
            recorder.event(config_map("anew"), "Normal", "Anew", "hello")
            await until(lambda: bool(made))
            await asyncio.sleep(0)  # for another writer, which would make it too
        answer.set()
        await recorder.close()
        assert [
            event.count
            for event in (await client.list(EVENT, "default", fields="reason=Anew")).items
        ] == [3]
        assert (made, recorder.dropped) == (1, 0)


async def test_events_leave_a_busy_server_to_others_and_come_later(client: Client) -> None:
    class Busy(AdaptiveDebounce):
        def delay(self, shortest: float, longest: float) -> float:
            return longest

    client.debounce = Busy()
    recorder = Recorder(client, "patient")
    subjects = [config_map(f"waits-{number}") for number in range(100)]
    for subject in subjects:
        recorder.event(subject, "Normal", "Waits", "hello")
    await until(lambda: len(recorder._queue) <= len(subjects) - WRITERS and not recorder._writing)
    assert (
        WRITERS
        <= len((await client.list(EVENT, "default", fields="reason=Waits")).items)
        < len(subjects)
    )
    await recorder.close()
    assert (
        len((await client.list(EVENT, "default", fields="reason=Waits")).items) == len(subjects)
        and not recorder.dropped
    )


async def test_an_event_whose_object_has_expired_is_made_again(client: Client) -> None:
    subject = await client.create(CONFIG_MAP, config_map("again"))
    recorder = Recorder(client, "tester")
    recorder.event(subject, "Normal", "Again", "hello")
    await until(lambda: recorder._writing == 0 and not recorder._queue)
    await client.delete_collection(EVENT, "default", fields="reason=Again")
    recorder.event(subject, "Normal", "Again", "hello")
    await recorder.close()
    assert [
        event.count for event in (await client.list(EVENT, "default", fields="reason=Again")).items
    ] == [2]
