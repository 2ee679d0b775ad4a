"""What the kubelet tells the API server of its pods arrives, also when the server says no at first."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import Conflict, NotFound
from hekla.local.kubelet.reporter import Reporter


class Server:
    """Has one pod at the most, of this uid, and says so many times that it is being changed by
    others."""

    def __init__(self, uid: str, busy: int) -> None:
        self.uid = uid
        self.busy = busy
        self.statuses: list[Json] = []

    def _refuse(self, uid: str) -> None:
        if not self.uid:
            raise NotFound(404, "NotFound", 'pods "p" not found')
        if self.busy or uid != self.uid:
            self.busy -= 1
            raise Conflict(409, "Conflict", "the object has been modified")

    async def get(self, kind: Any, name: str, namespace: str) -> Json:
        if not self.uid:
            raise NotFound(404, "NotFound", 'pods "p" not found')
        return {"metadata": {"name": name, "uid": self.uid}}

    async def patch(self, kind: Any, name: str, patch: Json, namespace: str, **_: Any) -> None:
        self._refuse(patch["metadata"]["uid"])
        self.statuses.append(patch["status"])

    async def delete(self, kind: Any, name: str, namespace: str, *, grace: int, uid: str) -> None:
        self._refuse(uid)
        self.uid = ""


async def told(server: Server) -> list[Json]:
    reporter = Reporter(cast(Client, server))
    reporter.start()
    reporter.put("u1", "default", "p", {"phase": "Failed"})
    await reporter.flush("u1")
    await reporter.close()
    return server.statuses


async def test_a_status_is_sent_again_when_others_changed_the_pod_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hekla.local.kubelet.reporter.RETRY", 0.0)
    assert await told(Server("u1", busy=2)) == [{"phase": "Failed"}]


@pytest.mark.parametrize("uid", ["", "another"])
async def test_no_status_is_written_for_a_pod_that_is_gone(uid: str) -> None:
    assert await told(Server(uid, busy=0)) == []


async def test_a_pod_is_deleted_although_others_change_it() -> None:
    server = Server("u1", busy=1)
    reporter = Reporter(cast(Client, server))
    assert not await reporter.delete("u1", "default", "p")
    assert await reporter.delete("u1", "default", "p") and not server.uid


async def test_another_pod_of_the_name_is_left_alone() -> None:
    server = Server("another", busy=0)
    assert await Reporter(cast(Client, server)).delete("u1", "default", "p")
    assert server.uid == "another"
