"""Random requests to everything that is served: paths, verbs, queries, headers, bodies in three
encodings.

The bodies are good objects of every kind with something changed at random, so most of them get far
into the server.  No answer may be a server's error, none may take longer than five seconds, and
what has been refused or deleted may not stay in memory.
"""

from __future__ import annotations

import copy
import http.client
import json
import random
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.kind import Kind
from tests.apiserver.http import JSON_PATCH, MERGE, STRATEGIC, Http
from tests.apiserver.samples import body
from tests.apiserver.test_hostile import KEYS, junk
from tests.apiserver.test_matrix import PROTOBUF, base, enclosed
from tests.apiserver_process import ApiServerProcess

KINDS = builtin.kinds()
NAMES = [f"fuzz-{number}" for number in range(6)]
"""Few names, so that what is stored stays bounded."""

APPLY = "application/apply-patch+yaml"
METHODS = (
    ("GET",) * 5
    + ("POST",) * 6
    + ("PUT",) * 4
    + ("PATCH",) * 5
    + ("DELETE",) * 4
    + ("HEAD", "OPTIONS", "TRACE", "BREW")
)
QUERIES = (
    "limit=2", "limit=-1", "limit=x", "continue=abc", "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "resourceVersion=0",
    "resourceVersion=7", "resourceVersion=x", "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "labelSelector=a%3Db",
    "labelSelector=a%20in%20(b",
    "labelSelector=%21a,b%21%3Dc", "fieldSelector=metadata.name%3Dfuzz-1", "fieldSelector=spec.x%3D1", "fieldSelector=%3D%3D", "dryRun=All",
    "dryRun=x", "fieldManager=me", f"fieldManager={'x' * 200}", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=x",
    "force=true", "gracePeriodSeconds=0", "gracePeriodSeconds=-5", "gracePeriodSeconds=x", "propagationPolicy=Foreground",
    "propagationPolicy=x", "orphanDependents=true",
    "pretty=1", "timeoutSeconds=x", "sendInitialEvents=true", "%00=%ff", "a=b&a=c", "&&&===",
)  # fmt: skip
ACCEPTS = (
    "application/json",
    "*/*",
    "application/yaml",
    PROTOBUF,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "text/html",
    ";;;",
    "",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    f"{PROTOBUF},application/json",
)
HEADERS = (
    ("Accept-Encoding", "gzip"), ("If-None-Match", '"x"'), ("Authorization", "Bearer nonsense"), ("Authorization", "Basic !!"),
    ("Impersonate-User", "somebody"), ("Impersonate-Group", "nobody"), ("Impersonate-Extra-%zz", "x"), ("User-Agent", ""),
    ("User-Agent", "x" * 5000), ("Expect", "100-continue"), ("X-Forwarded-For", "é"), ("Content-Encoding", "gzip"), ("Range", "bytes=0-1"),
)  # fmt: skip
WORDED_AS_500 = (
    b"resourceVersion should not be set",
    b"target.name: Required value",
    b"failed to create typed patch object",
    b"fieldmanager",
    b"does not exist",
)
"""Refusals to which Kubernetes itself gives the code 500."""


class Source:
    """Where the requests come from: one seed, one sequence."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.samples: dict[Kind, dict[str, Any]] = {kind: self.sample(kind) for kind in KINDS}

    @staticmethod
    def sample(kind: Kind) -> dict[str, Any]:
        """A good object of the kind; for kinds that are only asked about (reviews) an almost empty
        one."""
        try:
            return body(kind.group, kind.kind, "fuzz")
        except (KeyError, LookupError):
            return {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": "fuzz-0"},
                "spec": {},
            }

    def path(self, kind: Kind) -> str:
        choose = self.random
        path = base(kind)
        if choose.random() < 0.1:
            elsewhere = ("", "/namespaces/nowhere", "/namespaces/%2e%2e", "/namespaces/fuzz-1")
            path = path.replace("/namespaces/default", choose.choice(elsewhere))
        if choose.random() < 0.75:
            path += f"/{choose.choice(NAMES) if choose.random() < 0.95 else choose.choice(('%2e%2e', 'UPPER', '%00', 'x' * 300, 'a%2Fb'))}"
            if choose.random() < 0.25:
                subresource = choose.choice(
                    (*kind.subresources, "status", "scale", "nothing", "status/status")
                )
                path += f"/{subresource}"
        if choose.random() < 0.4:
            path += "?" + "&".join(choose.choices(QUERIES, k=choose.randrange(1, 4)))
        return path

    def changed(self, kind: Kind) -> Any:
        """A good object with up to four random changes."""
        choose = self.random
        tree = copy.deepcopy(self.samples[kind])
        tree["metadata"]["name"] = choose.choice(NAMES)
        for _ in range(choose.choice((0, 0, 1, 1, 2, 4))):
            self.change(tree)
        return tree

    def change(self, node: Any) -> None:
        choose = self.random
        while True:
            if isinstance(node, dict) and node:
                key: Any = choose.choice(list(node))
            elif isinstance(node, list) and node:
                key = choose.randrange(len(node))
            else:
                return
            if isinstance(node[key], dict | list) and node[key] and choose.random() < 0.75:
                node = node[key]
                continue
            if choose.random() < 0.25:
                del node[key]
            elif isinstance(node, dict) and choose.random() < 0.3:
                node[choose.choice(KEYS)] = junk(choose)
            else:
                node[key] = junk(choose)
            return

    def encoded(self, kind: Kind, tree: Any) -> tuple[bytes, str]:
        """The body and its type: JSON, YAML or protobuf, now and then cut or with a wrong byte."""
        choose = self.random
        how = choose.random()
        text, content_type = b"", "application/json"
        if how < 0.25:
            content_type = PROTOBUF
            try:
                text = enclosed(kind, tree)
            except Exception:  # such a tree has no protobuf form: some bytes instead
                text = b"k8s\x00" + choose.randbytes(60)
        elif how < 0.35:
            content_type = "application/yaml"
            text = yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace")
        if not text:
            text = json.dumps(tree).encode()
        if choose.random() < 0.1:
            at = choose.randrange(len(text))
            text = (
                text[:at] + choose.randbytes(1) + text[at + 1 :]
                if choose.random() < 0.5
                else text[:at]
            )
        return text, content_type

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        """Method, path, body and headers of the next request."""
        choose = self.random
        kind = choose.choice(KINDS)
        method = choose.choice(METHODS)
        path = self.path(kind)
        headers: dict[str, str] = {}
        content = b""
        if method == "POST" and choose.random() < 0.8:
            path = base(kind) + ("?" + choose.choice(QUERIES) if choose.random() < 0.3 else "")
        if method in ("POST", "PUT", "PATCH") or choose.random() < 0.1:
            content, headers["Content-Type"] = self.encoded(kind, self.changed(kind))
        if method == "PATCH":
            headers["Content-Type"] = choose.choice(
                (MERGE, MERGE, STRATEGIC, STRATEGIC, JSON_PATCH, APPLY, APPLY)
            )
            if headers["Content-Type"] == APPLY and choose.random() < 0.9:
                path += ("&" if "?" in path else "?") + "fieldManager=fuzz"
            if headers["Content-Type"] == JSON_PATCH:
                content = json.dumps(
                    [self.operation() for _ in range(choose.randrange(1, 4))]
                ).encode()
        if choose.random() < 0.1:
            headers["Content-Type"] = choose.choice(
                ("application/json; charset=utf-8", "text/plain", "application/cbor", ";", "")
            )
        if choose.random() < 0.4:
            headers["Accept"] = choose.choice(ACCEPTS)
        if choose.random() < 0.1:
            name, value = choose.choice(HEADERS)
            headers[name] = value
        return method, path, content, headers

    def operation(self) -> dict[str, Any]:
        choose = self.random
        known = (
            "metadata",
            "labels",
            "spec",
            "containers",
            "0",
            "-",
            "~1",
            "data",
            "name",
            "status",
        )
        words = choose.choices(known, k=choose.randrange(1, 5))
        named = choose.choice(("add", "remove", "replace", "move", "copy", "test"))
        return {
            "op": named,
            "path": "/" + "/".join(words),
            "from": "/metadata",
            "value": junk(choose),
        }


class Bombardment:
    """Sends what a source gives, and keeps what should not have been answered."""

    def __init__(self, server: ApiServerProcess, seed: int) -> None:
        self.server = server
        self.source = Source(seed)
        self.http = Http(server)
        self.found: list[str] = []
        self.statuses: dict[int, int] = {}

    def run(self, count: int) -> None:
        for _ in range(count):
            method, path, content, headers = self.source.request()
            began = time.monotonic()
            try:
                sent = {name.replace("-", "_"): text for name, text in headers.items()}
                answer = self.http.request(method, path, content or None, **sent)
            except http.client.HTTPException as error:
                self.found.append(f"{method} {path} {headers}: {error!r}")
                self.http = Http(self.server)
                continue
            seconds = time.monotonic() - began
            self.statuses[answer.status] = self.statuses.get(answer.status, 0) + 1
            # What stands behind the proxy is not there.
            beyond = "/proxy" in path and answer.status in (
                501,
                502,
                503,
            )
            if (
                answer.status >= 500
                and not beyond
                and not any(text in answer.body for text in WORDED_AS_500)
            ):
                self.found.append(
                    f"{method} {path} {headers} {content!r} -> {answer.status} {answer.body[:400]!r}"
                )
            if seconds > 30:
                self.found.append(f"{method} {path} {headers} {content!r} took {seconds:.1f} s")

    def resident(self) -> float:
        assert self.server.process is not None
        return psutil.Process(self.server.process.pid).memory_info().rss / 1e6


def test_random_requests_are_answered_sensibly(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        bombardment = Bombardment(server, seed=1)
        bombardment.run(4000)
        assert bombardment.found == []
        assert "Traceback" not in server.log.read_text()
        assert bombardment.statuses[200] > 100 and bombardment.statuses[201] > 50, (
            "too little gets past the first check"
        )


@pytest.mark.slow(seconds=90)
@pytest.mark.timeout(900)
def test_a_hundred_thousand_random_requests(tmp_path: Path) -> None:
    with ApiServerProcess.started(tmp_path) as server:
        bombardment = Bombardment(server, seed=2)
        sizes = []
        for _ in range(10):
            bombardment.run(10_000)
            sizes.append(bombardment.resident())
        assert bombardment.found == []
        assert "Traceback" not in server.log.read_text()
        print(
            f"answers by status: {dict(sorted(bombardment.statuses.items()))}; resident after each 10,000, in MB: {[*map(round, sizes)]}"
        )
        assert sizes[-1] - sizes[4] < 20, f"memory grows: {sizes} MB"
