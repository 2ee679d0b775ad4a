"""Reaching a server through an HTTP proxy: which proxy the environment names, and the CONNECT
tunnel through it.

The rules are those that Go programs follow, because the same environment and kubeconfig must mean
the same to kubectl and to us: HTTPS_PROXY for https servers, HTTP_PROXY for http ones, NO_PROXY as
host suffixes, addresses and CIDR blocks, and never a proxy for this machine itself.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import unquote, urlsplit

P = TypeVar("P", bound=asyncio.Protocol)
ANSWER_LIMIT = 65536


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy; `secure` if the connection to the proxy itself is TLS."""

    host: str
    port: int
    secure: bool = False
    authorization: bytes = b""

    @staticmethod
    def parse(url: str) -> Proxy:
        """Parse a URL such as http://user:password@proxy:3128.  Raises ValueError, which says what
        is wrong."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https"):
            raise ValueError(
                f"{url!r}: proxies of scheme {parts.scheme!r} are not supported, only http and https"
            )
        if not parts.hostname:
            raise ValueError(f"{url!r}: the proxy has no host name")
        authorization = b""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            authorization = b"Proxy-Authorization: Basic " + base64.b64encode(pair) + b"\r\n"
        secure = parts.scheme == "https"
        return Proxy(parts.hostname, parts.port or (443 if secure else 80), secure, authorization)


def from_environment(
    host: str, port: int, secure: bool, environment: Mapping[str, str]
) -> Proxy | None:
    """The proxy that the environment names for this server, None for a direct connection."""
    names = ("HTTPS_PROXY", "https_proxy") if secure else ("HTTP_PROXY", "http_proxy")
    url = next((environment[name] for name in names if environment.get(name)), "")
    if (
        not url
        or _is_local(host)
        or _excluded(host, port, environment.get("NO_PROXY") or environment.get("no_proxy") or "")
    ):
        return None
    return Proxy.parse(url)


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _excluded(host: str, port: int, rules: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    for rule in (part.strip().lower() for part in rules.split(",")):
        if rule == "*":
            return True
        name, colon, rule_port = rule.rpartition(":")
        if colon and rule_port.isdigit() and "]" not in rule_port and name.count(":") == 0:
            if int(rule_port) != port:
                continue
            rule = name
        if not rule:
            continue
        if address is not None:
            try:
                if address in ipaddress.ip_network(rule, strict=False):
                    return True
            except ValueError:
                pass
            continue
        suffix = rule.removeprefix("*")
        if host.lower() == suffix.removeprefix(".") and not suffix.startswith("."):
            return True
        if host.lower().endswith(suffix if suffix.startswith(".") else f".{suffix}"):
            return True
    return False


class _Handshake(asyncio.Protocol):
    """Reads the proxy's answer to CONNECT, and not a byte more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if not self.answer.done() and (b"\r\n\r\n" in self.seen or len(self.seen) > ANSWER_LIMIT):
            self.answer.set_result(self.seen)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(
                ConnectionError(f"the proxy closed the connection{f': {exc}' if exc else ''}")
            )


async def open_tunnel(
    loop: asyncio.AbstractEventLoop,
    proxy: Proxy,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    server_name: str | None,
    make: Callable[[], P],
) -> P:
    """A connection to host:port through the proxy, with TLS inside it if a context is given.

    A plain HTTP server needs no tunnel: the request goes to the proxy with the whole URL.
    """
    proxy_tls = ssl.create_default_context() if proxy.secure else None
    if context is None:
        _, direct = await loop.create_connection(make, proxy.host, proxy.port, ssl=proxy_tls)
        return direct
    transport, handshake = await loop.create_connection(
        lambda: _Handshake(loop), proxy.host, proxy.port, ssl=proxy_tls
    )
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    transport.write(
        f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n".encode()
        + proxy.authorization
        + b"\r\n"
    )
    try:
        answer = await handshake.answer
        status = answer.partition(b"\r\n")[0].decode("latin-1")
        if status.split(" ")[1:2] != ["200"]:
            raise ConnectionError(f"the proxy {proxy.host}:{proxy.port} refused: {status}")
        protocol = make()
        secured = await loop.start_tls(transport, protocol, context, server_hostname=server_name)
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise ConnectionError("the connection to the proxy was lost during the TLS handshake")
    protocol.connection_made(secured)
    return protocol
