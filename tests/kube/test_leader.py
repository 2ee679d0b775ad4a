"""Leader election by the clock, in virtual time: when a lease is renewed, taken, given back and
lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.kube.client import Client
from hekla.kube.connection.config import Connection
from hekla.kube.http.client import Target
from hekla.kube.http.message import Request, Response
from hekla.kube.http.server import serve
from hekla.kube.leader import JITTER, Durations, LeaderElection, LeadershipLost
from tests.kube import virtual_time
from tests.kube.scripted_api import answer, status
from tests.kube.virtual_time import now

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0
PAUSE = 2.5
"""Between two renewals: a sixth of the lease, which leaves the deadline its ten seconds."""


class Leases:
    """Keeps one lease as an API server does, and when it was written; `refuses` what there is no
    lease for."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.written: list[tuple[float, str]] = []
        """(time, holder)"""
        self.refuses = False

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        found: dict[str, Any] = self.lease["spec"]
        return found

    def write(self, lease: dict[str, Any]) -> None:
        self.version += 1
        self.lease = {
            **lease,
            "metadata": {**lease["metadata"], "resourceVersion": str(self.version)},
        }
        self.written.append((round(now(), 3), self.spec["holderIdentity"]))

    async def handle(self, request: Request) -> Response:
        if self.refuses:
            return answer(503, status(503, "ServiceUnavailable"))
        if request.method != "GET":
            sent = msgspec.json.decode(request.body)
            before = self.lease["metadata"]["resourceVersion"] if self.lease else None
            if sent["metadata"].get("resourceVersion") != before:
                return answer(409, status(409, "Conflict"))
            self.write(sent)
        return answer(200, self.lease) if self.lease else answer(404, status(404, "NotFound"))


class Story:
    """Candidates for the lease, and what they did."""

    def __init__(self, leases: Leases, client: Client) -> None:
        self.leases = leases
        self.client = client
        self.log: list[tuple[float, str]] = []

    async def lead(self, name: str, seconds: float) -> None:
        self.log.append((round(now(), 3), f"{name} leads"))
        try:
            await asyncio.sleep(seconds)
        finally:
            self.log.append((round(now(), 3), f"{name} stops"))

    def candidate(self, name: str, seconds: float = 10_000.0) -> asyncio.Task[None]:
        """One who works for so long when he leads."""
        loop, durations = asyncio.get_running_loop(), Durations(LEASE, RENEW, RETRY)
        election = LeaderElection(
            self.client, "job", "ns", holder=name, durations=durations, clock=loop.time
        )
        return asyncio.ensure_future(election.run(lambda: self.lead(name, seconds)))


@asynccontextmanager
async def story(directory: Path) -> AsyncIterator[Story]:
    leases = Leases()
    server = await serve(leases.handle, unix=directory / "api")
    async with Client(Connection(Target(unix=str(directory / "api")))) as client:
        yield Story(leases, client)
    await server.close(grace=0)


async def cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_lease_that_is_renewed_stays_with_its_leader_and_is_given_back(tmp_path: Path) -> None:
    async def told() -> None:
        async with story(tmp_path) as made:
            one = made.candidate("one")
            await asyncio.sleep(1)
            two = made.candidate("two")
            await asyncio.sleep(10 * LEASE)
            assert made.log == [(0.0, "one leads")]
            renewals = made.leases.written[1:]
            assert renewals == [(PAUSE * turn, "one") for turn in range(len(renewals))]
            assert len(renewals) == 1 + 10 * LEASE // PAUSE

            await cancel(one)
            left = now()
            await asyncio.sleep(JITTER * RETRY)
            assert [what for _, what in made.log] == ["one leads", "one stops", "two leads"]
            assert made.log[1][0] == left and made.log[2][0] <= left + JITTER * RETRY
            assert [holder for _, holder in made.leases.written if holder != "one"][:2] == [
                "",
                "two",
            ]
            assert made.leases.spec["leaseTransitions"] == 1
            await cancel(two)

    virtual_time.run(told())


def test_a_lease_that_nobody_renews_is_taken_after_its_time(tmp_path: Path) -> None:
    """Counted from when it was first seen, whatever its dates say; the duration is that of the one
    who held it."""

    async def told() -> None:
        async with story(tmp_path) as made:
            spec = {
                "holderIdentity": "dead",
                "leaseDurationSeconds": 40,
                "renewTime": "2999-01-01T00:00:00.000000Z",
                "leaseTransitions": 4,
            }
            made.leases.write({"metadata": {"name": "job", "namespace": "ns"}, "spec": spec})
            await made.candidate("heir", seconds=5.0)
            (began, _), (ended, _) = made.log
            assert 40 < began <= 40 + JITTER * RETRY and ended == began + 5
            assert made.leases.spec["leaseTransitions"] == 5
            assert made.leases.written[-1] == (ended, ""), (
                "who has worked to the end gives the lease back"
            )

    virtual_time.run(told())


@pytest.mark.parametrize("gone", [True, False])
def test_a_leader_that_cannot_renew_stops_before_another_may_lead(
    tmp_path: Path, gone: bool
) -> None:
    """Whether the server refuses or lets nobody in any more."""

    async def told() -> None:
        leases = Leases()
        server = await serve(leases.handle, unix=tmp_path / "api")
        async with Client(Connection(Target(unix=str(tmp_path / "api")))) as client:
            made = Story(leases, client)
            one = made.candidate("one")
            await asyncio.sleep(20 * RETRY + 1)
            if gone:
                await server.close(grace=0)
            leases.refuses = True
            with pytest.raises(LeadershipLost, match="could not be renewed for 10 s"):
                await one
            renewed = leases.written[-1][0]
            assert made.log[1] == (renewed + PAUSE + RENEW, "one stops")
            assert PAUSE + RENEW < LEASE
        await server.close(grace=0)

    virtual_time.run(told())


def test_a_leader_that_was_robbed_stops_at_its_next_renewal(tmp_path: Path) -> None:
    async def told() -> None:
        async with story(tmp_path) as made:
            one = made.candidate("one")
            await asyncio.sleep(RETRY + 1)
            assert made.leases.lease is not None
            made.leases.write({**made.leases.lease, "spec": {"holderIdentity": "thief"}})
            with pytest.raises(LeadershipLost, match="is now held by thief"):
                await one
            # The first try meets the conflict, the second, at once, reads who holds it.
            assert made.log[1] == (2 * PAUSE, "one stops")
            assert made.leases.spec == {"holderIdentity": "thief"}

    virtual_time.run(told())
