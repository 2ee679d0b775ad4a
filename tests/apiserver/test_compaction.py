"""Lists of old versions end after five minutes, whether or not their collection is written to:
clients wait for that."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apiserver.test_partial_update import InProcessServer

TEMPLATES, MAPS = "/api/v1/namespaces/default/podtemplates", "/api/v1/namespaces/default/configmaps"
TEMPLATE = {"template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[InProcessServer]:
    made = InProcessServer(tmp_path)
    await made.api.start()
    yield made
    made.api.stop()
    await made.store.close()


async def test_a_token_of_a_collection_that_rests_expires_and_the_list_goes_on_behind_its_page(
    server: InProcessServer,
) -> None:
    for number in range(12):
        await server.ask(
            "POST", TEMPLATES, {"metadata": {"name": f"template-{number:02}"}, **TEMPLATE}
        )
    _, first = await server.ask("GET", f"{TEMPLATES}?limit=4")
    version, token = int(first["metadata"]["resourceVersion"]), first["metadata"]["continue"]
    now = time.monotonic()
    server.store.compact(now)
    await server.ask("POST", MAPS, {"metadata": {"name": "elsewhere"}})
    server.store.compact(now + 10)
    server.store.compact(now + 301)
    assert (await server.ask("GET", f"{TEMPLATES}?limit=4&continue={token}"))[
        0
    ] == 200  # the version that stood then
    server.store.compact(now + 311)

    status, refused = await server.ask("GET", f"{TEMPLATES}?limit=4&continue={token}")
    assert (status, refused["reason"]) == (410, "Expired")
    found, token = [], refused["metadata"]["continue"]
    while token:
        status, page = await server.ask("GET", f"{TEMPLATES}?limit=4&continue={token}")
        assert status == 200 and int(page["metadata"]["resourceVersion"]) > version
        found += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue")
        assert page["metadata"].get("remainingItemCount", 0) + len(found) + 4 == 12
    assert found == [f"template-{number:02}" for number in range(4, 12)]
    for query in (
        f"resourceVersion={version}&resourceVersionMatch=Exact",
        f"resourceVersion={version}&limit=4",
    ):
        assert (await server.ask("GET", f"{TEMPLATES}?{query}"))[0] == 410
    assert (await server.ask("GET", f"{TEMPLATES}?resourceVersion={version}"))[0] == 200


async def test_where_nothing_is_written_nothing_expires(server: InProcessServer) -> None:
    await server.ask("POST", MAPS, {"metadata": {"name": "a"}})
    await server.ask("POST", MAPS, {"metadata": {"name": "b"}})
    _, first = await server.ask("GET", f"{MAPS}?limit=1")
    for late in range(0, 2000, 100):
        server.store.compact(time.monotonic() + late)
    assert (await server.ask("GET", f"{MAPS}?limit=1&continue={first['metadata']['continue']}"))[
        0
    ] == 200
