"""A refused body leaves memory at once, without waiting for the garbage collector."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.apiserver.test_partial_update import InProcessServer

MANY = 50
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("method", "path", "name", "wrong", "code"),
    [
        ("POST", MAPS, "NOT A NAME", "y", 422),
        ("POST", MAPS, "a", 1, 400),
        ("POST", "/api/v1/namespaces/gone/configmaps", "a", "y", 404),
        ("PUT", f"{MAPS}/a", "a", "y", 404),
        ("PUT", f"{MAPS}/a", "a", 1, 400),
        ("POST", "/api/v1/nothing", "a", "y", 404),
    ],
)
async def test_a_refused_body_goes_with_its_request(
    tmp_path: Path, method: str, path: str, name: str, wrong: str | int, code: int
) -> None:
    made = InProcessServer(tmp_path)
    await made.api.start()
    await made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    body = {"metadata": {"name": name}, "data": {"x": "y" * 1000, "y": wrong}}

    async def refused(times: int) -> None:
        for _ in range(times):
            status, _ = await made.ask(method, path, body)
            assert status == code

    try:
        await refused(5)  # what is made once
        gc.collect()
        gc.disable()
        await refused(MANY)
        assert gc.collect() < MANY
    finally:
        gc.enable()
        made.api.stop()
        await made.store.close()
