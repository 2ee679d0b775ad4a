"""The REST client: objects of a kind in and out, typed, over one pooled connection.

A kind (`hekla.api.kinds.Kind`) says where its objects live and which type they decode into;
everything here follows from it. Objects go out as JSON and answers are decoded from bytes straight
into the type, because trees in between cost more than the request itself.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, Self, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from hekla.api.kinds import Kind, Listing, Malformed
from hekla.kube.connection.config import Connection
from hekla.kube.connection.credentials import CredentialError
from hekla.kube.connection.tls import TlsError
from hekla.kube.errors import ApiError, Expired, ServerError, from_answer
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.kube.flowcontrol.backoff import Backoff
from hekla.kube.flowcontrol.concurrency_limit import ConcurrencyLimit
from hekla.kube.flowcontrol.throttle import TokenBucket
from hekla.kube.http.client import HttpClient, Response, Stream, TransportError
from hekla.kube.objects import name_of, with_kind
from hekla.kube.watch import Event, Watch

__all__ = ["Client", "Event", "Listing", "RawResponse"]

log = logging.getLogger(__name__)

T = TypeVar("T")
RawResponse = Response
Query = Mapping[str, str]
PatchType = Literal["merge", "json", "strategic", "apply"]

PAGE = 500
"""Objects of the first page of a list, as client-go asks for."""
LARGEST_PAGE = 5000
PAGE_BYTES = 8 << 20
"""Bytes of a further page, roughly: kube-apiserver goes through all objects that are left for each
page, so a long list in pages of 500 costs it as much for that as for the objects."""
RETRIES = 10
"""Repetitions of a request that the server answers with Retry-After."""
LONGEST_RETRY_AFTER = 30.0
PAGE_TRIES = 8
"""Attempts for a further page of a list.  A long list would never end if it began again for each
lost page."""
PAGE_DELAYS = (0.02, 1.0)
PATCH_TYPES: dict[str, bytes] = {
    "merge": b"Content-Type: application/merge-patch+json\r\n",
    "json": b"Content-Type: application/json-patch+json\r\n",
    "strategic": b"Content-Type: application/strategic-merge-patch+json\r\n",
    "apply": b"Content-Type: application/apply-patch+yaml\r\n",
}
JSON_BODY = b"Content-Type: application/json\r\n"
WANTED = b"Accept: application/json\r\nX-Hekla-Managed-Fields: omit\r\n"
"""Asks for objects without managedFields, which nothing here reads; other servers ignore it."""

_encode = msgspec.json.Encoder().encode


class Client:
    """Speaks to the API server of a connection.  Use it on one event loop, as an async context
    manager or with `close()`.

    `pool` bounds the requests in flight; what is more waits its turn.  `yielding`: fewer are in
    flight where the server gets slower for it.  `qps` and `burst` limit the rate (0: no limit).
    Methods raise `errors.ApiError` for what the server refuses and
    `http.client.TransportError` when there is no answer.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "hekla",
        pool: int = 16,
        yielding: bool = False,
        qps: float = 0.0,
        burst: int = 0,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self.connection = connection
        self.http = HttpClient(connection.target, pool=pool)
        self.debounce = AdaptiveDebounce()
        self._limit = ConcurrencyLimit(pool) if yielding else None
        self._credentials = connection.credentials
        self._base = connection.base_path
        self._fixed = b"User-Agent: %b\r\n%b%b" % (user_agent.encode(), WANTED, connection.headers)
        self._throttle = TokenBucket(qps, burst) if qps > 0 else None
        self._on_warning = on_warning or self._log_warning
        self._warned: set[str] = set()
        self._urgent = False

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.http.close()

    def urgent(self) -> Self:
        """The same client, whose requests go before all others that wait for a connection.

        It is for the few requests on which everything else depends: lists of caches and renewals of
        leases.  Behind thousands of writes they would be late, and a controller with a late cache
        writes even more (decision 0021).
        """
        other = copy.copy(self)
        other._urgent = True
        other._limit = None
        return other

    # objects

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        answer = await self._send("GET", kind.path(namespace, name))
        return self._object(kind, answer.body)

    async def list(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int | None = None,
    ) -> Listing[T]:
        """All objects, fetched page by page (`pages`), as of one resourceVersion.

        An object that does not decode is left out of `items` and named in `malformed`.
        """
        while True:
            listing: Listing[T] = Listing()
            try:
                async for page in self.pages(
                    kind, namespace, labels=labels, fields=fields, limit=limit
                ):
                    listing.items.extend(page.items)
                    listing.malformed.extend(page.malformed)
                    listing.resource_version = page.resource_version
            except Expired:
                if limit == 0:
                    raise
                limit = 0
                continue
            return listing

    async def pages(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int | None = None,
    ) -> AsyncIterator[Listing[T]]:
        """The pages of `list`, for readers that need not hold all objects at once; while one is
        read, the server makes the next.  `limit`: objects of each; 0: in one piece; None: as many
        as make a page of a good size.

        Raises Expired when the server has forgotten the version of the earlier pages; begin again
        then, with `limit` 0.
        """
        path = kind.path(namespace)
        query = selectors(labels, fields)
        if limit != 0:
            query["limit"] = str(limit or PAGE)
        answer = await self._send("GET", path, query)
        while True:
            page = kind.decode_list(answer.body)
            if limit is None:
                query["limit"] = str(page_of_good_size(len(page.items), len(answer.body)))
            del answer  # or it would be in memory together with the next one
            following = None
            if page.continue_:
                following = asyncio.ensure_future(
                    self._page(path, {**query, "continue": page.continue_})
                )
                await asyncio.sleep(0)  # the request is on its way before the reader has the page
            try:
                page.items = [with_kind(kind, item) for item in page.items]
                yield page
                del page
                if following is None:
                    return
                answer = await following
            finally:
                if following is not None:
                    forget(following)

    async def _page(self, path: str, query: Query) -> Response:
        """A further page of a list, with retries, because the earlier pages would be lost."""
        delay = Backoff(*PAGE_DELAYS)
        for _ in range(PAGE_TRIES - 1):
            try:
                return await self._send("GET", path, query)
            except (ServerError, TransportError) as error:
                log.debug("a page of %s: %s; once more", path, error)
                await asyncio.sleep(delay())
        return await self._send("GET", path, query)

    async def create(
        self,
        kind: Kind[T],
        obj: T | dict[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> T:
        if namespace is None and kind.namespaced:
            name, namespace = name_of(obj)
            if namespace is None:
                raise ValueError(
                    f"{kind.kind} {name}: a {kind.kind} lives in a namespace, and none was given"
                )
        query = {"dryRun": "All"} if dry_run else None
        answer = await self._send("POST", kind.path(namespace), query, self._body(kind, obj))
        return self._object(kind, answer.body)

    async def update(
        self, kind: Kind[T], obj: T | dict[str, Any], *, subresource: str | None = None
    ) -> T:
        """Replace the object; its resourceVersion, when there, must still be the newest (Conflict)."""
        name, namespace = name_of(obj)
        path = kind.path(namespace if kind.namespaced else None, name, subresource)
        answer = await self._send("PUT", path, None, self._body(kind, obj))
        return self._object(kind, answer.body)

    async def update_status(self, kind: Kind[T], obj: T | dict[str, Any]) -> T:
        return await self.update(kind, obj, subresource="status")

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        type: PatchType = "merge",
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
    ) -> T:
        query = {}
        if field_manager:
            query["fieldManager"] = field_manager
        if force:
            query["force"] = "true"
        body = patch if isinstance(patch, bytes) else _encode(patch)
        answer = await self._send(
            "PATCH", kind.path(namespace, name, subresource), query, body, PATCH_TYPES[type]
        )
        return self._object(kind, answer.body)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        namespace: str | None = None,
        *,
        grace: int | None = None,
        propagation: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Ask for the object's deletion; with `uid` only if it is still that object (else
        Conflict)."""
        body = delete_options(grace, propagation, uid, resource_version)
        await self._send("DELETE", kind.path(namespace, name), None, body)

    async def delete_collection(
        self,
        kind: Kind[Any],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        grace: int | None = None,
        propagation: str | None = None,
    ) -> None:
        body = delete_options(grace, propagation)
        await self._send("DELETE", kind.path(namespace), selectors(labels, fields), body)

    async def post(
        self, kind: Kind[Any], name: str, namespace: str | None, subresource: str, body: Any
    ) -> dict[str, Any]:
        """POST to a subresource (binding, eviction, token); gives the JSON answer."""
        payload = body if isinstance(body, bytes) else _encode(body)
        answer = await self._send("POST", kind.path(namespace, name, subresource), None, payload)
        return cast("dict[str, Any]", msgspec.json.decode(answer.body)) if answer.body else {}

    async def watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
        timeout: int | None = None,
    ) -> AsyncIterator[Event[T]]:
        """The changes after `resource_version`, until the server ends the stream.  Raises Expired
        when that version is too old."""
        opened = self.open_watch(
            kind,
            namespace,
            resource_version=resource_version,
            labels=labels,
            fields=fields,
            bookmarks=bookmarks,
            timeout=timeout,
        )
        async with await opened as watch:
            while batch := await watch.batch():
                for event in batch:
                    yield event

    async def open_watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
        timeout: int | None = None,
        on_malformed: Callable[[Malformed], None] | None = None,
    ) -> Watch[T]:
        """Like `watch`, for readers that take all events that have arrived in one batch."""
        query = {"watch": "true", **selectors(labels, fields)}
        if resource_version:
            query["resourceVersion"] = resource_version
        if bookmarks:
            query["allowWatchBookmarks"] = "true"
        if timeout is not None:
            query["timeoutSeconds"] = str(timeout)
        stream = await self.stream("GET", kind.path(namespace), query)
        return Watch(stream, kind, on_malformed, None if timeout is None else timeout + 30.0)

    # any request

    async def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> RawResponse:
        """Any request; `body` is bytes or what encodes to JSON.  Raises ApiError for an answer of
        400 and above."""
        payload = b"" if body is None else body if isinstance(body, bytes) else _encode(body)
        return await self._send(
            method, path, query, payload, header_block(headers, bool(payload)), timeout
        )

    async def stream(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Stream:
        """A request whose answer is read while it comes (logs, watches).  Close it, or use `async
        with`."""
        payload = b"" if body is None else body if isinstance(body, bytes) else _encode(body)
        block = header_block(headers, bool(payload))
        for attempt in range(RETRIES + 1):
            stream = await self.http.stream(
                method, self._target(path, query), await self._headers() + block, payload
            )
            if stream.status < 400:
                return stream
            async with stream:
                error = from_answer(
                    stream.status,
                    await stream.read_all(),
                    retry_after=stream.header(b"retry-after"),
                )
            if attempt == RETRIES or not await self._worth_retrying(error, attempt):
                raise error
        raise AssertionError("unreachable")

    # internals

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        content: bytes | None = None,
        timeout: float | None = None,
    ) -> Response:
        """`content`: further headers; without any, those of a body in JSON where there is a body."""
        if content is None:
            content = JSON_BODY if body else b""
        target = self._target(path, query) if query or self._base else path
        attempt = 0
        while True:
            if self._throttle is not None:
                await self._throttle.take()
            authorization = self._credentials.current()
            if authorization is None:
                authorization = await self._authorize()
            block = self._fixed + authorization + content
            began = time.monotonic()
            try:
                if self._limit is None:
                    answer = await self.http.request(
                        method, target, block, body, timeout, urgent=self._urgent
                    )
                else:
                    answer = await self._limited(self._limit, method, target, block, body, timeout)
            except TlsError as error:
                raise TransportError(str(error), sent=False) from None
            if not self._urgent:
                # Urgent requests do not wait for a connection, so they do not show the load.
                self.debounce.observe(began)
            if answer.status < 400:
                for name, value in answer.headers:
                    if len(name) == 7 and name.lower() == b"warning":
                        self._warn(value)
                return answer
            failure = from_answer(
                answer.status, answer.body, retry_after=answer.header(b"retry-after")
            )
            if attempt >= RETRIES or not await self._worth_retrying(failure, attempt):
                try:
                    raise failure
                finally:
                    # the traceback refers to this frame; a reference from here would be a cycle that
                    # keeps the body until the garbage collector runs
                    del failure
            attempt += 1

    async def _limited(
        self,
        limit: ConcurrencyLimit,
        method: str,
        target: str,
        block: bytes,
        body: bytes,
        timeout: float | None,
    ) -> Response:
        await limit.enter()
        sent = time.monotonic()
        try:
            answer = await self.http.request(method, target, block, body, timeout)
        finally:
            limit.leave()
        if answer.status < 400:
            if method != "GET":
                limit.observe(sent)
        elif answer.status == 429 and answer.header(b"retry-after"):
            limit.refused()
        return answer

    async def _worth_retrying(self, error: ApiError, attempt: int) -> bool:
        """Waits as long as the server asked for; renews credentials once after a 401."""
        if error.code == 401:
            if attempt == 0 and self._credentials.rejected():
                self.http.drop_idle()  # a client certificate belongs to the connection
                return True
            return False
        if error.retry_after is None or (error.code != 429 and error.code < 500):
            return False
        await asyncio.sleep(min(error.retry_after, LONGEST_RETRY_AFTER))
        return True

    async def _authorize(self) -> bytes:
        try:
            return await self._credentials.refresh()
        except CredentialError as error:
            raise TransportError(str(error), sent=False) from None

    async def _headers(self) -> bytes:
        authorization = self._credentials.current()
        return self._fixed + (await self._authorize() if authorization is None else authorization)

    def _target(self, path: str, query: Query | None) -> str:
        return (
            f"{self._base}{path}?{urlencode(query, quote_via=quote)}"
            if query
            else self._base + path
        )

    def _body(self, kind: Kind[Any], obj: Any) -> bytes:
        return _encode(with_kind(kind, obj))

    def _object(self, kind: Kind[T], body: bytes) -> T:
        return cast("T", with_kind(kind, kind.decode(body)))

    def _warn(self, value: bytes) -> None:
        _, _, quoted = value.decode("utf-8", "replace").partition('"')
        self._on_warning(quoted.rpartition('"')[0].replace('\\"', '"').replace("\\\\", "\\"))

    def _log_warning(self, text: str) -> None:
        """Log each warning once; the server repeats those of a deprecated kind in every answer."""
        if text not in self._warned and len(self._warned) < 1000:
            self._warned.add(text)
            log.info("the API server warns: %s", text)


def forget(task: asyncio.Future[Any]) -> None:
    """Give up what has been begun; its failure concerns nobody."""
    if not task.cancel() and not task.cancelled():
        task.exception()


def page_of_good_size(objects: int, size: int) -> int:
    """How many objects to ask for, where so many of them made an answer of `size` bytes."""
    return max(PAGE, min(LARGEST_PAGE, PAGE_BYTES * objects // max(size, 1)))


def selectors(labels: str, fields: str) -> dict[str, str]:
    query = {}
    if labels:
        query["labelSelector"] = labels
    if fields:
        query["fieldSelector"] = fields
    return query


def header_block(headers: Mapping[str, str] | None, has_body: bool) -> bytes:
    if not headers:
        return JSON_BODY if has_body else b""
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if has_body and not any(name.lower() == "content-type" for name in headers):
        lines.append("Content-Type: application/json\r\n")
    return "".join(lines).encode()


def delete_options(
    grace: int | None = None,
    propagation: str | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
) -> bytes:
    """The DeleteOptions body, b"" when nothing is asked for."""
    options: dict[str, Any] = {}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation is not None:
        options["propagationPolicy"] = propagation
    conditions = {"uid": uid, "resourceVersion": resource_version}
    if any(conditions.values()):
        options["preconditions"] = {name: value for name, value in conditions.items() if value}
    return _encode({"kind": "DeleteOptions", "apiVersion": "v1", **options}) if options else b""
