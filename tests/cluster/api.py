"""A plain synchronous HTTP client, so that every story here is true of any Kubernetes API server.

It knows a kubeconfig with a certificate or a token and nothing of Hekla: what it sends and sees is
what is on the wire.
"""

from __future__ import annotations

import base64
import http.client
import json
import select
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import pytest
import yaml

Tree = dict[str, Any]
T = TypeVar("T")
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PATIENCE = 60.0
"""Seconds: T of the checklist, a bound for what is stuck.  It is long, since whoever runs the
checklist may have other things to do."""


class Answer:
    """What the server said."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.warnings = [value for name, value in headers if name.lower() == "warning"]
        self.body = body

    @property
    def tree(self) -> Tree:
        tree = json.loads(self.body)
        assert isinstance(tree, dict)
        return tree

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def message(self) -> str:
        return str(self.tree.get("message", ""))

    @property
    def reason(self) -> str:
        return str(self.tree.get("reason", ""))

    @property
    def causes(self) -> list[Tree]:
        return list(self.tree.get("details", {}).get("causes", []))

    @property
    def cause_fields(self) -> list[str]:
        return [cause.get("field", "") for cause in self.causes]

    @property
    def cause_reasons(self) -> list[str]:
        return [cause.get("reason", "") for cause in self.causes]

    @property
    def meta(self) -> Tree:
        return dict(self.tree["metadata"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.tree["items"]]

    @property
    def version(self) -> str:
        return str(self.tree["metadata"]["resourceVersion"])

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:700]!r}"


class Api:
    """One user's door to the API server.  Connections are kept alive, one a thread."""

    def __init__(
        self,
        kubeconfig: Path,
        *,
        token: str | None = None,
        anonymous: bool = False,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.kubeconfig = kubeconfig
        self.more = headers or {}
        text = yaml.safe_load(kubeconfig.read_text())
        context = next(
            entry["context"]
            for entry in text["contexts"]
            if entry["name"] == text["current-context"]
        )
        cluster = next(
            entry["cluster"] for entry in text["clusters"] if entry["name"] == context["cluster"]
        )
        user = next(entry["user"] for entry in text["users"] if entry["name"] == context["user"])
        self.address = urlsplit(cluster["server"])
        self._tls = (
            _tls(cluster, {} if token or anonymous else user, kubeconfig.parent)
            if self.address.scheme == "https"
            else None
        )
        token = token or (None if anonymous else user.get("token"))
        if token:
            self.more = {**self.more, "Authorization": f"Bearer {token}"}
        self._local = threading.local()

    def as_user(self, name: str, *groups: str) -> Api:
        """The same door, in the name of another user."""
        headers = {"Impersonate-User": name}
        if groups:
            headers["Impersonate-Group"] = groups[0]
        return Api(self.kubeconfig, headers=headers)

    def connect(self, timeout: float = 60.0) -> http.client.HTTPConnection:
        host, port = self.address.hostname or "", self.address.port
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, context=self._tls, timeout=timeout)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        target = with_query(path, query)
        for attempt in (1, 2):
            connection = getattr(self._local, "connection", None)
            if connection is None or was_closed(connection):
                connection = self._local.connection = self.connect()
            try:
                connection.request(method, target, data, {**self.more, **(headers or {})})
                answer = connection.getresponse()
                return Answer(answer.status, answer.getheaders(), answer.read())
            except (http.client.HTTPException, OSError):
                # A kept-alive connection may have been closed by the server in between.
                connection.close()
                self._local.connection = None
                if attempt == 2 or method not in ("GET", "DELETE"):
                    raise
        raise AssertionError("unreachable")

    def get(self, path: str, *, accept: str = "", **query: Any) -> Answer:
        return self.request("GET", path, None, {"Accept": accept} if accept else None, **query)

    def post(self, path: str, body: Any, content_type: str = JSON, **query: Any) -> Answer:
        return self.request("POST", path, body, {"Content-Type": content_type}, **query)

    def put(self, path: str, body: Any, **query: Any) -> Answer:
        return self.request("PUT", path, body, {"Content-Type": JSON}, **query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Answer:
        return self.request("PATCH", path, body, {"Content-Type": content_type}, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        return self.request("DELETE", path, body, {"Content-Type": JSON}, **query)

    def create(self, path: str, body: Tree) -> Tree:
        """The created object; fails the test when the server refuses."""
        answer = self.post(path, body)
        assert answer.status == 201, answer
        return answer.tree

    def wait(self, path: str, what: Callable[[Tree], T], seconds: float = PATIENCE) -> Tree:
        """The object at the path once `what` holds of it."""

        def look() -> Tree | None:
            answer = self.get(path)
            return answer.tree if answer.status == 200 and what(answer.tree) else None

        try:
            return eventually(look, seconds)
        except AssertionError:
            raise AssertionError(f"not in {seconds} s: {self.get(path)}") from None

    def gone(self, path: str, seconds: float = PATIENCE) -> None:
        try:
            eventually(lambda: self.get(path).status == 404, seconds)
        except AssertionError:
            raise AssertionError(f"still there after {seconds} s: {self.get(path)}") from None

    @contextmanager
    def watch(
        self, path: str, *, accept: str = "", timeout: float = PATIENCE, **query: Any
    ) -> Iterator[Watched]:
        connection = self.connect(timeout)
        headers = {**self.more, **({"Accept": accept} if accept else {})}
        connection.request("GET", with_query(path, {"watch": "true", **query}), headers=headers)
        try:
            yield Watched(connection.getresponse())
        finally:
            connection.close()


class Watched:
    """The events of a watch, as they come."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.status = answer.status

    def next(self) -> Tree:
        line = self.answer.readline()
        if not line:
            raise EOFError("the watch has ended")
        event = json.loads(line)
        assert isinstance(event, dict)
        return event

    def take(self, count: int) -> list[tuple[str, str]]:
        """(type, name) of the next events."""
        return [
            (event["type"], event["object"]["metadata"].get("name", ""))
            for event in (self.next() for _ in range(count))
        ]

    def until(self, what: Callable[[Tree], bool]) -> list[Tree]:
        """The events up to the first of which `what` holds."""
        seen: list[Tree] = []
        while not seen or not what(seen[-1]):
            seen.append(self.next())
        return seen

    def read_up_to(self, mark: bytes) -> None:
        """Reads on, in whatever form the events are, until the mark has come."""
        seen = b""
        while mark not in seen:
            some = self.answer.read1(65536)
            if not some:
                raise EOFError("the watch has ended")
            seen = seen[-len(mark) :] + some

    def rest(self) -> list[Tree]:
        found = []
        while line := self.answer.readline():
            found.append(json.loads(line))
        return found


def was_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed a kept connection, as it does with one that nobody uses for a
    while."""
    return connection.sock is not None and bool(select.select([connection.sock], [], [], 0)[0])


def with_query(path: str, query: dict[str, Any]) -> str:
    if not query:
        return path
    return path + ("&" if "?" in path else "?") + urlencode(query, doseq=True, quote_via=quote)


def eventually(look: Callable[[], T], seconds: float = PATIENCE, every: float = 0.05) -> T:
    """What `look` gives once it gives a truth."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        time.sleep(every)


def steadily(look: Callable[[], Any], seconds: float, every: float = 0.2) -> None:
    """Fails unless `look` gives a truth all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert look()
        time.sleep(every)


def needs_https(api: Api) -> None:
    if api.address.scheme != "https":
        pytest.skip("the kubeconfig's server speaks plain HTTP, which carries no credentials")


def _tls(cluster: Tree, user: Tree, directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif authority := _pem(cluster, "certificate-authority", directory):
        context.load_verify_locations(cadata=authority.decode())
    certificate, key = (
        _pem(user, "client-certificate", directory),
        _pem(user, "client-key", directory),
    )
    if certificate and key:
        # The ssl module takes certificates from files only.
        with tempfile.TemporaryDirectory() as place:
            files = Path(place) / "crt", Path(place) / "key"
            files[1].touch(0o600)
            files[0].write_bytes(certificate)
            files[1].write_bytes(key)
            context.load_cert_chain(*files)
    return context


def _pem(entry: Tree, name: str, directory: Path) -> bytes:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    return (directory / str(entry[name])).read_bytes() if entry.get(name) else b""
