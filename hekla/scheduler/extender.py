"""Asks the server of the plugin `extender`, in the middle of a cycle, and waits for its answer as
upstream does.

One connection a host is kept for the next question.  Reference: plugins-placement 12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPConnection

LARGEST = 10 << 20
"""Bytes of an answer."""
HEADERS = {"Content-Type": "application/json"}


class ExtenderClient:
    """Posts JSON and gives the JSON that comes back."""

    def __init__(self) -> None:
        self.connections: dict[tuple[str, str], HTTPConnection] = {}

    def __call__(self, address: str, body: Mapping[str, Any], timeout: float) -> Any:
        """None for an empty answer.  Raises OSError where nobody answers, ValueError for an answer
        that is none."""
        from http.client import HTTPException

        url = urlsplit(address)
        if url.scheme not in ("http", "https") or not url.netloc:
            raise ValueError(f"{address!r} is no address of an extender")
        payload = json.dumps(body).encode()
        path = url.path + (f"?{url.query}" if url.query else "")
        known = self.connections.pop((url.scheme, url.netloc), None)
        try:
            status, answer = self._post(url.scheme, url.netloc, path, payload, timeout, known)
        except (OSError, HTTPException) as error:
            if known is None or isinstance(error, TimeoutError):
                raise OSError(f"{address}: {error}") from error
            try:  # the connection had been closed at the other end since the last question
                status, answer = self._post(url.scheme, url.netloc, path, payload, timeout, None)
            except (OSError, HTTPException) as second:
                raise OSError(f"{address}: {second}") from second
        if status != 200:
            raise ValueError(f"{address} answered {status}")
        if len(answer) > LARGEST:
            raise ValueError("http: request body too large")
        return json.loads(answer) if answer else None

    def _post(
        self,
        scheme: str,
        host: str,
        path: str,
        payload: bytes,
        timeout: float,
        connection: HTTPConnection | None,
    ) -> tuple[int, bytes]:
        from http.client import HTTPConnection, HTTPSConnection

        if connection is None:
            connection = (HTTPSConnection if scheme == "https" else HTTPConnection)(
                host, timeout=timeout
            )
        elif connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            connection.request("POST", path, payload, HEADERS)
            response = connection.getresponse()
            answer = response.read(LARGEST + 1)
        except BaseException:
            connection.close()
            raise
        if len(answer) > LARGEST or response.will_close:
            connection.close()
        else:
            self.connections[scheme, host] = connection
        return response.status, answer
