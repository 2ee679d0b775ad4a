"""The HTTPS server of admission: one handler for each path, which answers on the event loop.

A review is a decode, a few dictionary look-ups and an encode; handing it to a thread would cost
more than the work.  Reference: api-and-admission 5.1.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable

from hekla.admission.registry import ADMISSIONS, Admission
from hekla.admission.review import Lookup, Settings, Verdict
from hekla.admission.reviews import Request as ReviewRequest
from hekla.admission.reviews import answer
from hekla.kube.http.message import Request, Response
from hekla.kube.http.server import Server

log = logging.getLogger(__name__)

LARGEST_BODY = 3 * 1024 * 1024
TOO_LARGE = "request body too large"

Denied = Callable[[ReviewRequest, Verdict], None]


class ReviewServer(Server):
    """Serves the given paths.  `settings` is replaced while it runs; `on_denied` is called with
    refused pods."""

    def __init__(
        self,
        paths: Iterable[str],
        lookup: Lookup,
        settings: Settings,
        on_denied: Denied | None = None,
    ) -> None:
        super().__init__(self.review, LARGEST_BODY)
        self.admissions: dict[str, Admission] = {path: ADMISSIONS[path] for path in paths}
        self.lookup = lookup
        self.settings = settings
        self.on_denied = on_denied

    def review(self, request: Request) -> Response:
        admission = self.admissions.get(request.path)
        if admission is None:
            return Response(404, b"404 page not found\n", "text/plain")
        if request.headers.get("content-type") != "application/json":
            return Response(200, b"")
        body, asked, verdict = answer(admission, request.body, self.lookup, self.settings)
        if not verdict.allowed:
            log.info(
                "%s denied %s/%s: %s",
                admission.path,
                asked.namespace if asked else "",
                asked.name if asked else "",
                verdict.message,
            )
            if (
                asked is not None
                and self.on_denied is not None
                and admission.path == "/pods/validate"
            ):
                self.on_denied(asked, verdict)
        return Response(200, body)

    def refusal(self, status: int, text: str) -> Response:
        return Response(
            status, TOO_LARGE.encode() if status == 413 else text.encode(), "text/plain"
        )


async def serve(server: ReviewServer, host: str, port: int, context: ssl.SSLContext) -> int:
    """Listen; returns the port."""
    await server.listen_tcp(host, port, context)
    return server.port
