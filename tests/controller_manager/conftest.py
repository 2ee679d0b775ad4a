"""A client of the file's server, and a namespace for each story.  The server is each file's own,
with the controllers as it wants them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hekla.kube.client import Client
from hekla.kube.connection import config
from tests.apiserver_process import ApiServerProcess
from tests.controller_manager.live import new_namespace


@pytest.fixture
async def client(server: ApiServerProcess) -> AsyncIterator[Client]:
    async with Client(config.load(str(server.internal_kubeconfig))) as connected:
        yield connected


@pytest.fixture
async def namespace(client: Client) -> str:
    return await new_namespace(client)
