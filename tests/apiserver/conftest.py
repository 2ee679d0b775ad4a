"""One server a module; stories keep apart by the names they use."""

from __future__ import annotations

import pytest

from tests.apiserver.http import Http
from tests.apiserver_process import ApiServerProcess, apiserver, shared_apiserver

__all__ = ["apiserver", "http", "shared_apiserver"]


@pytest.fixture
def http(shared_apiserver: ApiServerProcess) -> Http:
    return Http(shared_apiserver)
