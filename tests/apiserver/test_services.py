"""Addresses of Services, and the life of events (local-cluster 5.5, 5.6)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hekla.api.text.times import stamp
from hekla.local.apiserver.storage.event_expiry import EventExpiry
from hekla.local.apiserver.storage.store import Store
from tests.apiserver.http import Http

SERVICES = "/api/v1/namespaces/default/services"


def service(name: str, **spec: object) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}], **spec},
    }


@pytest.mark.scenario("local-cluster", 98)
def test_addresses_are_unique_and_stay(http: Http) -> None:
    first, second = http.post(SERVICES, service("s1")), http.post(SERVICES, service("s2"))
    assert first.status == 201, first
    addresses = {answer.tree["spec"]["clusterIP"] for answer in (first, second)}
    assert len(addresses) == 2
    assert all(address.startswith("10.96.") for address in addresses)
    mine = first.tree["spec"]["clusterIP"]
    taken = http.post(SERVICES, service("s3", clusterIP=mine))
    assert taken.status == 422
    assert "provided IP is already allocated" in taken.message
    changed = http.patch(f"{SERVICES}/s1", {"spec": {"clusterIP": "10.96.77.77"}})
    assert changed.status == 422
    assert "may not change once set" in changed.message
    http.delete(f"{SERVICES}/s1")
    assert http.post(SERVICES, service("s3", clusterIP=mine)).status == 201


def test_headless(http: Http) -> None:
    spec = http.post(SERVICES, service("headless", clusterIP="None", ports=[])).tree["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])


def test_node_ports(http: Http) -> None:
    spec = http.post(SERVICES, service("np", type="NodePort")).tree["spec"]
    port = spec["ports"][0]["nodePort"]
    assert 30000 <= port <= 32767
    taken = http.post(
        SERVICES, service("np2", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    )
    assert taken.status == 422
    kept = http.patch(f"{SERVICES}/np", {"metadata": {"labels": {"x": "y"}}})
    assert kept.tree["spec"]["ports"][0]["nodePort"] == port


def test_the_server_is_a_service(http: Http) -> None:
    assert http.get(f"{SERVICES}/kubernetes").tree["spec"]["clusterIP"] == "10.96.0.1"


async def test_events_live_for_an_hour(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.start()
    events = store.collection("events", {})
    now = time.time()

    def at(seconds: float) -> str:
        return stamp(now + seconds)

    await events.create({"metadata": {"name": "old", "creationTimestamp": at(-4000)}}).done
    await events.create(
        {"metadata": {"name": "counted", "creationTimestamp": at(-4000)}, "lastTimestamp": at(-60)}
    ).done
    new = await events.create({"metadata": {"name": "new", "creationTimestamp": at(0)}}).done
    expiry = EventExpiry(events)
    assert expiry.expire(now) == 1
    await events.update(new.tree(), new).done
    assert events.ordered() == ["counted", "new"]
    assert expiry.expire(now + 3700) == 2
    await store.close()
