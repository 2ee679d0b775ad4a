"""Leader election on a Lease: one of several copies of a daemon works, and another takes over when
it stops renewing the lease.

The rules are client-go's, so that a Hekla daemon and a Volcano one can share a lease.  Clocks are
not compared: a lease is expired when *this* process has seen it unchanged for its whole duration.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hekla.api.kubernetes.coordination import LEASE
from hekla.api.text.times import micro_stamp
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

JITTER = 1.2
"""Candidates wait up to this factor longer than the retry period, so that they do not all ask at
once."""
COMPLAINT_PERIOD = 30.0


class LeadershipLost(Exception):
    """The lease could not be renewed in time: another may lead now, so this process must stop."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations in seconds.  A leader that cannot renew for `renew` gives up before another may
    take the lease, after `lease`."""

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    @property
    def pause(self) -> float:
        """Between two renewals that succeed: a sixth of the lease where the deadline leaves that
        much, so that a leader at rest asks little of the server."""
        return max(self.retry, min(self.lease / 6, (self.lease - self.renew) / 2))

    def problem(self) -> str | None:
        """What is wrong with the durations; None if nothing is."""
        if self.lease <= self.renew:
            return f"the lease duration ({self.lease:g}s) must be longer than the renew deadline ({self.renew:g}s)"
        if self.renew <= JITTER * self.retry:
            return f"the renew deadline ({self.renew:g}s) must be longer than {JITTER:g} retry periods ({self.retry:g}s)"
        if self.retry <= 0:
            return "the retry period must be longer than 0s"
        return None


def identity() -> str:
    """`<hostname>_<uuid>`: two processes of one machine are two candidates."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElection:
    """A candidate for one lease."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        *,
        holder: str = "",
        durations: Durations | None = None,
        release: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.holder = holder or identity()
        # Behind the requests of the work that it protects, a renewal would come too late.
        self._client = client.urgent()
        self._durations = durations or Durations()
        if problem := self._durations.problem():
            raise ValueError(f"leader election: {problem}")
        self._release = release
        self._clock = clock
        self._lease: dict[str, Any] = {}
        self._seen: dict[str, Any] = {}
        self._seen_at = -math.inf
        self._complained_at = -COMPLAINT_PERIOD
        self._told_of = ""
        self._overtaken = False
        """Whether the last try has met a change of the lease by somebody else."""

    @property
    def leader(self) -> str:
        """The present leader's identity, as far as this process has seen."""
        return self._seen.get("holderIdentity") or ""

    @property
    def leads(self) -> bool:
        return self.leader == self.holder and self._clock() < self._seen_at + self._durations.lease

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, then `lead()` while it is renewed; returns when `lead` does.

        Raises LeadershipLost after cancelling `lead`.  When it ends otherwise the lease is given
        back, so that the next leader need not wait for it to expire.
        """
        await self._acquire()
        work = asyncio.ensure_future(lead())
        renewal = asyncio.ensure_future(self._renew())
        try:
            await asyncio.wait((work, renewal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, renewal):
                task.cancel()
            # Work that does not stop must not keep this process alive until another leads.
            await asyncio.wait(
                (work, renewal), timeout=self._durations.lease - self._durations.renew
            )
            if self._release and self.leads:
                await asyncio.shield(self._give_back())
        for task in (renewal, work):
            if task.done() and not task.cancelled():
                task.result()

    async def _acquire(self) -> None:
        log.info("waiting for the lease %s/%s as %s", self.namespace, self.name, self.holder)
        while not await self._try():
            await asyncio.sleep(self._durations.retry * (1 + (JITTER - 1) * random.random()))
        log.info("leading: holds the lease %s/%s", self.namespace, self.name)

    async def _renew(self) -> None:
        """Renew the lease until that fails; raises LeadershipLost."""
        while True:
            try:
                async with asyncio.timeout(self._durations.renew):
                    while not await self._try():
                        if self.leader != self.holder:
                            holder = self.leader or "nobody"
                            raise LeadershipLost(
                                f"the lease {self.namespace}/{self.name} is now held by {holder}"
                            )
                        if not self._overtaken:
                            await asyncio.sleep(self._durations.retry)
            except TimeoutError:
                raise LeadershipLost(
                    f"the lease {self.namespace}/{self.name} could not be renewed for {self._durations.renew:g} s"
                ) from None
            await asyncio.sleep(self._durations.pause)

    async def _try(self) -> bool:
        """Take or renew the lease, if that is possible now."""
        self._overtaken = False
        try:
            return await self._take()
        except (Conflict, AlreadyExists):
            self._overtaken = True
            log.debug("another candidate was faster at the lease %s/%s", self.namespace, self.name)
        except (ApiError, TransportError) as error:
            now = self._clock()
            if now - self._complained_at >= COMPLAINT_PERIOD:
                self._complained_at = now
                log.warning("the lease %s/%s: %s", self.namespace, self.name, error)
        self._lease = {}
        return False

    async def _take(self) -> bool:
        kind = LEASE.untyped
        if not (self._lease and self.leads):
            # A leader writes without reading first: a conflict shows that the lease has changed.
            try:
                self._observe(await self._client.get(kind, self.name, self.namespace))
            except NotFound:
                metadata = {"name": self.name, "namespace": self.namespace}
                created = await self._client.create(
                    kind, {"metadata": metadata, "spec": self._spec({})}
                )
                self._observe(created)
                return True
            if self.leader and self.leader != self.holder and not self._expired():
                if self._told_of != self.leader:
                    self._told_of = self.leader
                    log.info(
                        "the lease %s/%s is held by %s", self.namespace, self.name, self.leader
                    )
                return False
        self._observe(
            await self._client.update(
                kind, {**self._lease, "spec": {**self._seen, **self._spec(self._seen)}}
            )
        )
        return True

    def _expired(self) -> bool:
        duration = self._seen.get("leaseDurationSeconds") or self._durations.lease
        return self._clock() > self._seen_at + duration

    def _observe(self, lease: dict[str, Any]) -> None:
        self._lease = lease
        spec = lease.get("spec") or {}
        if spec != self._seen or self._seen_at == -math.inf:
            self._seen = spec
            self._seen_at = self._clock()

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        now = micro_time()
        ours = before.get("holderIdentity") == self.holder
        transitions = before.get("leaseTransitions") or 0
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": max(1, int(self._durations.lease)),
            "acquireTime": (before.get("acquireTime") if ours else None) or now,
            "renewTime": now,
            "leaseTransitions": transitions if ours or not before else transitions + 1,
        }

    async def _give_back(self) -> None:
        try:
            async with asyncio.timeout(self._durations.retry):
                while not await self._released():
                    pass
        except (ApiError, TransportError, TimeoutError) as error:
            log.debug("the lease %s/%s was not given back: %s", self.namespace, self.name, error)

    async def _released(self) -> bool:
        """Give the lease back; returns False on a conflict.  The lease is read first if a cancelled
        renewal may have changed it."""
        if not self._lease:
            self._observe(await self._client.get(LEASE.untyped, self.name, self.namespace))
        if self.leader != self.holder:
            return True
        now = micro_time()
        spec = {
            **self._seen,
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": now,
            "acquireTime": now,
        }
        try:
            self._observe(await self._client.update(LEASE.untyped, {**self._lease, "spec": spec}))
        except Conflict:
            self._lease = {}
            return False
        log.info("gave the lease %s/%s back", self.namespace, self.name)
        return True


def micro_time() -> str:
    """Now, as Kubernetes writes a MicroTime."""
    return micro_stamp(time.time())
