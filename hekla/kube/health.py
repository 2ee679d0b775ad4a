"""A daemon's endpoints for probes and monitoring: /healthz, /livez, /readyz and /metrics."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hekla.kube.http.message import Request, Response
from hekla.kube.http.server import Server, serve

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

Check = Callable[[], str | None]
"""Returns what is wrong, None if nothing is."""


class Health:
    """The checks of one daemon and the servers that answer with them."""

    def __init__(self) -> None:
        self.live: dict[str, Check] = {}
        self.ready: dict[str, Check] = {}
        """Beyond the live checks: whether the daemon can do its work now."""
        self.routes: dict[str, Callable[[Request], Response]] = {}
        """Further paths that the daemon serves."""
        self.registry: CollectorRegistry | None = None
        """The registry that /metrics shows; None for prometheus_client's default one."""
        self._servers: list[Server] = []

    async def listen(
        self, address: str, *, metrics: bool, tls: ssl.SSLContext | None = None
    ) -> int:
        """Serve at an address such as `:8080`; returns the port.  Raises OSError when it is taken."""
        host, port = split_address(address)

        async def answer(request: Request) -> Response:
            return self.answer(request, metrics)

        server = await serve(answer, host=host, port=port, ssl=tls)
        self._servers.append(server)
        log.info(
            "health%s at %s port %d",
            " and metrics" if metrics else "",
            host or "all addresses",
            server.port,
        )
        return server.port

    async def close(self) -> None:
        for server in self._servers:
            await server.close(grace=0.1)

    def answer(self, request: Request, metrics: bool = True) -> Response:
        """The answer to one request."""
        if request.method not in ("GET", "HEAD"):
            return text(405, "only GET is answered here\n")
        if request.path in ("/healthz", "/livez"):
            return _report(self.live)
        if request.path == "/readyz":
            return _report({**self.live, **self.ready})
        if request.path == "/metrics" and metrics:
            return self._metrics()
        if request.path in self.routes:
            return self.routes[request.path](request)
        return text(404, "404 page not found\n")

    def _metrics(self) -> Response:
        from hekla.kube.metrics import shown

        return Response(200, shown(self.registry), "text/plain; version=0.0.4; charset=utf-8")


def _report(checks: dict[str, Check]) -> Response:
    problems = [reason for check in checks.values() if (reason := check())]
    return text(503, "\n".join(problems)) if problems else text(200, "ok")


def text(status: int, words: str) -> Response:
    return Response(status, words.encode(), "text/plain; charset=utf-8")


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of `host:port`, `:port` or `[v6]:port`; an empty host is every address.  Raises
    ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError("expected host:port or :port with a port from 0 to 65535")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError("an IPv6 host is written in brackets, as in [::1]:8080")
    return host.strip("[]"), int(port)


def address_problem(value: Any) -> str | None:
    """The check of a flag that is an address."""
    try:
        split_address(value)
    except ValueError as error:
        return str(error)
    return None
