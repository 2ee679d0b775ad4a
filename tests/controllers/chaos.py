"""A proxy before an API server that loses some of what passes: requests, answers, and watches in
their midst.

It speaks HTTP/1.1 on a Unix socket, one request after another on each connection, and knows no more
of it than where a request ends.  A request that is lost gets the status 500; a lost answer ends the
connection after the server has done its work; a watch is cut after a random time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

TROUBLE = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the proxy lost it",'
    b'"reason":"InternalError","code":500}'
)
REFUSAL = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    % len(TROUBLE)
    + TROUBLE
)


class Proxy:
    """`share` of all requests go wrong; a watch lives for `watch_life` seconds on the average."""

    def __init__(self, target: Path, share: float, watch_life: float, seed: int = 3) -> None:
        self._target = target
        self._share = share
        self._watch_life = watch_life
        self._chance = random.Random(seed)
        self.counts: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def at(self, socket: Path) -> AsyncIterator[Proxy]:
        server = await asyncio.start_unix_server(self._serve, str(socket), limit=1 << 22)
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back: asyncio.StreamWriter | None = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            ahead, back = await asyncio.open_unix_connection(str(self._target), limit=1 << 22)
            while await self._one(reader, writer, ahead, back):
                pass
        for each in (writer, back):
            if each is not None:
                each.close()

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ahead: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:
        """Pass one request and its answer; False when the connection is over."""
        request = await _message(reader)
        if b"watch=" in request.split(b"\r\n", 1)[0]:
            await self._watch(request, writer, ahead, back)
            return False
        self.counts["requests"] += 1
        draw = self._chance.random()
        if draw < self._share / 2:
            self.counts["lost requests"] += 1
            writer.write(REFUSAL)
            await writer.drain()
            return True
        back.write(request)
        answer = await _message(ahead)
        if draw < self._share:
            self.counts["lost answers"] += 1
            return False
        writer.write(answer)
        await writer.drain()
        return True

    async def _watch(
        self,
        request: bytes,
        writer: asyncio.StreamWriter,
        ahead: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        self.counts["watches"] += 1
        back.write(request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._chance.expovariate(1 / self._watch_life)):
                while part := await ahead.read(1 << 16):
                    writer.write(part)
                    await writer.drain()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """One request or answer, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    at = lowered.find(b"\r\ncontent-length:")
    if at >= 0:
        return head + await reader.readexactly(
            int(lowered[at + 17 : lowered.index(b"\r\n", at + 2)])
        )
    if b"transfer-encoding: chunked" not in lowered:
        return head
    body = [head]
    while True:
        size = await reader.readline()
        length = int(size.split(b";")[0], 16)
        body += [size, await reader.readexactly(length + 2)]
        if not length:
            return b"".join(body)
