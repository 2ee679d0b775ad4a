"""The HTTP client of the plugin `extender`.  A cycle waits for the answer, as upstream does.

It keeps one connection to each host.  Reference: plugins-placement 12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPConnection

LARGEST = 10 << 20
"""Bytes of the largest answer that is read."""
HEADERS = {"Content-Type": "application/json"}


class ExtenderClient:
    """Posts JSON and returns the JSON of the answer."""

    def __init__(self) -> None:
        self.connections: dict[tuple[str, str], HTTPConnection] = {}

    def __call__(self, address: str, body: Mapping[str, Any], timeout: float) -> Any:
        """The decoded answer; None if it is empty.  Raises OSError if there is no answer, and
        ValueError if it cannot be read."""
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
            try:  # the server has closed the idle connection
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
