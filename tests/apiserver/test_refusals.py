"""What is refused leaves nothing behind: a body that nobody wants must not stay until the garbage collector comes by."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.apiserver.test_parts import Inside

MANY = 50
MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", MAPS, 422),
        ("POST", "/api/v1/namespaces/gone/configmaps", 404),
        ("PUT", f"{MAPS}/none", 404),
        ("POST", "/api/v1/nothing", 404),
    ],
)
async def test_a_refused_body_goes_with_its_request(tmp_path: Path, method: str, path: str, code: int) -> None:
    made = Inside(tmp_path)
    await made.server.start()
    await made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    body = {"metadata": {"name": "none" if code == 404 else "NOT A NAME"}, "data": {"x": "y" * 1000}}

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
        made.server.stop()
        await made.store.close()
