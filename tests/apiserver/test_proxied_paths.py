"""What of a path is handed on, whatever the objects on the way to it are called."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.proxy import rest_of

POD = "/api/v1/namespaces/{}/pods/{}/proxy"


@pytest.mark.parametrize(
    ("namespace", "path", "rest"),
    [
        ("default", POD.format("default", "web") + "/a/b", "a/b"),
        ("default", POD.format("default", "web") + "/", ""),
        ("default", POD.format("default", "web"), ""),
        ("default", POD.format("default", "proxy") + "/a/proxy/b/", "a/proxy/b/"),
        ("proxy", POD.format("proxy", "http:proxy:8080") + "//x", "/x"),
        ("proxy", POD.format("proxy", "proxy") + "/proxy/", "proxy/"),
        ("", "/api/v1/nodes/proxy/proxy/healthz", "healthz"),
        ("", "/api/v1/nodes/n1/proxy", ""),
    ],
)
def test_what_stands_behind_the_subresource_is_handed_on(
    namespace: str, path: str, rest: str
) -> None:
    call = SimpleNamespace(
        request=SimpleNamespace(path=path), route=SimpleNamespace(namespace=namespace)
    )
    assert rest_of(cast(Call, call)) == rest
