"""A script of requests, and one server's answers to it.

Requests may name what the server chose itself: `{{rv:NAME}}` and `{{uid:NAME}}` stand for the
resourceVersion and the uid that the object NAME was last seen with, `{{continue}}` for the token of
the last page.  So one script says the same to both servers.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.api import JSON, Answer, Api, with_query

PLACE = re.compile(r"\{\{(\w+)(?::([^}]*))?\}\}")
UNTIL = 10.0
"""Seconds that a step waits for the status that it names."""


@dataclass(frozen=True)
class Step:
    """One request.  A body that is no bytes is sent as JSON."""

    method: str
    path: str
    body: Any = None
    content_type: str = ""
    accept: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    until: int = 0
    """Asked again until this is the status: for what a server does in its own time."""
    watch: bool = False
    """The answer is a stream of events."""

    def __str__(self) -> str:
        kind = (
            f" [{self.content_type or JSON}]"
            if self.body is not None and self.content_type not in ("", JSON)
            else ""
        )
        accept = f" accept {self.accept}" if self.accept else ""
        more = "".join(f" {name}: {value}" for name, value in self.headers.items())
        return f"{self.method} {with_query(self.path, dict(self.query))}{kind}{accept}{more}"


@dataclass(frozen=True)
class Script:
    """Steps in their order, in a namespace of their own."""

    name: str
    steps: tuple[Step, ...]

    @property
    def namespace(self) -> str:
        return re.sub("[^a-z0-9-]+", "-", self.name.lower())[:50].strip("-")


class Run:
    """One server's side of a script."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._seen: dict[str, str] = {"ns": namespace}

    def prepare(self) -> None:
        """A namespace with the account that pods need; on a bare server no controller makes it."""
        name = self._seen["ns"]
        self._api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        self._api.create(
            f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}}
        )

    def step(self, step: Step) -> Answer:
        """The answer, which the next steps may refer to."""
        deadline = time.monotonic() + UNTIL
        while True:
            answer = self._send(step)
            if step.until in (0, answer.status) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        self._note(answer)
        return answer

    def _send(self, step: Step) -> Answer:
        body: bytes | None = None
        if step.body is not None:
            body = (
                step.body
                if isinstance(step.body, bytes)
                else json.dumps(step.body, separators=(",", ":")).encode()
            )
            body = self._filled(body.decode("utf-8", "surrogateescape")).encode(
                "utf-8", "surrogateescape"
            )
        headers = {**({"Accept": step.accept} if step.accept else {}), **step.headers}
        if body is not None and step.content_type != "none":
            headers["Content-Type"] = step.content_type or JSON
        query = {name: self._filled(value) for name, value in step.query.items()}
        path = self._filled(step.path)
        try:
            return self._api.request(step.method, path, body, headers, **query)
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, [], f"no answer: {type(error).__name__}".encode())

    def _filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            what, name = found.groups()
            return self._seen.get(f"{what}:{name}" if name else what, "1")

        return PLACE.sub(value, text)

    def _note(self, answer: Answer) -> None:
        try:
            tree = json.loads(answer.body)
        except ValueError:
            return
        metadata = tree.get("metadata") if isinstance(tree, dict) else None
        if not isinstance(metadata, dict):
            return
        if metadata.get("continue"):
            self._seen["continue"] = metadata["continue"]
        if metadata.get("resourceVersion"):
            self._seen["rv"] = metadata["resourceVersion"]
            self._seen[f"rv:{metadata.get('name', '')}"] = metadata["resourceVersion"]
        if metadata.get("uid"):
            self._seen[f"uid:{metadata.get('name', '')}"] = metadata["uid"]
