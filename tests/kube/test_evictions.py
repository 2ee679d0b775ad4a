"""In which version an API server takes evictions, by what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError
from hekla.kube.evictions import eviction_version
from hekla.kube.http.message import Response
from tests.apiserver_process import ApiServerProcess
from tests.kube.scripted_api import answer, scripted_api

EVICTION = {"name": "pods/eviction", "kind": "Eviction", "namespaced": True}


async def test_a_server_takes_evictions(shared_apiserver: ApiServerProcess) -> None:
    async with Client(load(str(shared_apiserver.internal_kubeconfig))) as client:
        assert await eviction_version(client) == "policy/v1"


@pytest.mark.parametrize(
    ("resources", "version"),
    [
        ([EVICTION | {"group": "policy", "version": "v1beta1"}], "policy/v1beta1"),
        ([{"name": "pods", "kind": "Pod"}, EVICTION], "policy/v1"),
        ([{"name": "pods/eviction", "kind": "Other"}], ""),
        ([], ""),
        (None, ""),
    ],
)
async def test_versions(tmp_path: Path, resources: list[Json] | None, version: str) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.refusals.append(answer(200, {"kind": "APIResourceList", "resources": resources}))
        assert await eviction_version(client) == version


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"", b"[]", b'{"resources": 3}'])
async def test_what_is_no_list_is_an_error(tmp_path: Path, body: bytes) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.refusals.append(Response(200, body))
        with pytest.raises(ApiError, match="/api/v1 is no list of resources"):
            await eviction_version(client)
