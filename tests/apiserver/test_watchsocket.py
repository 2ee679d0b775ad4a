"""Watches over WebSocket, as fabric8 and browsers ask for them: one event a message, through both
doors."""

from __future__ import annotations

import json
import socket
import ssl
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.apiserver.http import CONFIG_MAPS, Http, config_map
from tests.apiserver_process import ApiServerProcess

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@contextmanager
def watching(
    server: ApiServerProcess, path: str, door: str = "unix", **options: Any
) -> Iterator[ClientConnection]:
    """A watch, as the administrator."""
    options = {"origin": "https://127.0.0.1", "compression": None, **options}
    if door == "unix":
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(server.socket))
            with connect(f"ws://localhost{path}", sock=raw, **options) as made:
                yield made
        return
    context = ssl.create_default_context(cafile=str(server.pki / "ca.crt"))
    if door == "https":
        context.load_cert_chain(server.pki / "admin.crt", server.pki / "admin.key")
    with connect(f"wss://127.0.0.1:{server.port}{path}", ssl=context, **options) as made:
        yield made


def event(made: ClientConnection) -> dict[str, Any]:
    text = made.recv(timeout=20)
    assert isinstance(text, str) and text.endswith("\n")
    tree = json.loads(text)
    assert isinstance(tree, dict)
    return tree


@pytest.mark.parametrize("door", ["unix", "https"])
def test_one_event_is_one_text_message(
    shared_apiserver: ApiServerProcess, http: Http, door: str
) -> None:
    first = http.post(CONFIG_MAPS, config_map(f"first-{door}")).version
    with watching(
        shared_apiserver, f"{CONFIG_MAPS}?watch=true&resourceVersion={int(first) - 1}", door
    ) as made:
        assert event(made)["object"]["metadata"]["name"] == f"first-{door}"
        for number in range(50):
            http.post(
                CONFIG_MAPS,
                config_map(f"more-{door}-{number}", data={"lines": "a\nb\r\nc\u2028d\u0085e"}),
            )
        told = [event(made) for _ in range(50)]
        assert [one["object"]["metadata"]["name"] for one in told] == [
            f"more-{door}-{number}" for number in range(50)
        ]
        assert told[0]["object"]["data"]["lines"] == "a\nb\r\nc\u2028d\u0085e"
        made.ping().wait(10)
        made.send("nobody listens")
        http.delete(f"{CONFIG_MAPS}/first-{door}")
        gone = event(made)
        assert (gone["type"], gone["object"]["metadata"]["name"]) == ("DELETED", f"first-{door}")


def test_a_watch_that_is_over_is_closed_in_good_order(shared_apiserver: ApiServerProcess) -> None:
    path = (
        "/api/v1/namespaces/kube-public/pods?watch=true&timeoutSeconds=3&allowWatchBookmarks=true"
    )
    with watching(shared_apiserver, path) as made:
        bookmark = event(made)
        assert bookmark["type"] == "BOOKMARK" and bookmark["object"]["metadata"]["resourceVersion"]
        # What Go writes of an empty object: Spark's submitter asks any pod that it is told of for
        # its status.
        assert (
            bookmark["object"]["spec"] == {"containers": None}
            and bookmark["object"]["status"] == {}
        )
        with pytest.raises(ConnectionClosedOK) as closed:
            made.recv(timeout=20)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1000


def test_an_expired_version_is_reported_in_the_stream(shared_apiserver: ApiServerProcess) -> None:
    with watching(
        shared_apiserver,
        f"{CONFIG_MAPS}?watch=true&resourceVersion=99999999&sendInitialEvents=true"
        "&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    ) as made:
        refused = event(made)
        assert (refused["type"], refused["object"]["code"]) == ("ERROR", 504)


def test_a_table_and_a_subprotocol_are_as_requested(
    shared_apiserver: ApiServerProcess, http: Http
) -> None:
    path = f"{CONFIG_MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dtabled"
    http.post(CONFIG_MAPS, config_map("tabled"))
    with watching(
        shared_apiserver, path, additional_headers={"Accept": TABLE}, subprotocols=["v1.k8s.io"]
    ) as made:
        assert event(made)["object"]["kind"] == "Table"
        assert made.subprotocol == "v1.k8s.io"


def test_refusals_come_before_the_upgrade(shared_apiserver: ApiServerProcess) -> None:
    for path, door, options, status in (
        ("/api/v1/nothings?watch=true", "unix", {}, 404),
        (f"{CONFIG_MAPS}?watch=true", "nobody", {}, 403),
        (f"{CONFIG_MAPS}?watch=true&timeoutSeconds=x", "unix", {}, 400),
        (f"{CONFIG_MAPS}?watch=true", "unix", {"subprotocols": ["a", "b"]}, 400),
    ):
        with (
            pytest.raises(InvalidStatus) as refused,
            watching(shared_apiserver, path, door, **options),
        ):
            pass
        assert refused.value.response.status_code == status
    # No watch: an ordinary answer.
    Http(shared_apiserver).get(CONFIG_MAPS, Connection="Upgrade", Upgrade="websocket")
    answer = Http(shared_apiserver).get(
        f"{CONFIG_MAPS}?watch=true", Connection="Upgrade", Upgrade="websocket"
    )
    assert answer.status == 400


def test_a_browser_brings_its_token_as_a_subprotocol(
    shared_apiserver: ApiServerProcess, http: Http
) -> None:
    account = "/api/v1/namespaces/default/serviceaccounts/browser"
    http.post(account.rpartition("/")[0], {"metadata": {"name": "browser"}})
    http.post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        {
            "metadata": {"name": "browser"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "browser", "namespace": "default"}],
        },
    )
    token = http.post(f"{account}/token", {"spec": {"expirationSeconds": 600}}).tree["status"][
        "token"
    ]
    hidden = "base64url.bearer.authorization.k8s.io." + urlsafe_b64encode(
        token.encode()
    ).decode().rstrip("=")
    http.post(CONFIG_MAPS, config_map("seen"))
    path = f"{CONFIG_MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dseen"
    with watching(shared_apiserver, path, "nobody", subprotocols=[hidden, "v1.k8s.io"]) as made:
        assert made.subprotocol == "v1.k8s.io"
        assert event(made)["type"] == "ADDED"
    with (
        pytest.raises(InvalidStatus) as refused,
        watching(shared_apiserver, path, "nobody", subprotocols=[hidden[:-9], "v1.k8s.io"]),
    ):
        pass
    assert refused.value.response.status_code == 401


def test_who_does_not_read_is_cut_off_and_others_are_not(
    shared_apiserver: ApiServerProcess, http: Http
) -> None:
    maps = "/api/v1/namespaces/kube-public/configmaps"
    with watching(shared_apiserver, f"{maps}?watch=true", max_queue=1) as idle:
        for number in range(56):
            assert (
                http.post(maps, config_map(f"large-{number}", data={"x": "x" * 700_000})).status
                == 201
            )
        told = 0
        with pytest.raises(ConnectionClosedError):
            while True:
                idle.recv(timeout=20)
                told += 1
        assert told < 56
    for number in range(56):
        http.delete(f"{maps}/large-{number}")
