"""Who asks a daemon, and whether they may: the API server decides, as for Kubernetes' own components.

A client shows a bearer token, which a TokenReview turns into a user, or a certificate that the
cluster's authority of clients has signed.  A SubjectAccessReview then says whether that user may do
what the request asks for, by the cluster's own roles.  Nobody is let in without both.

Who asks every few seconds, as monitoring does, is not looked up each time: answers are kept for a
moment, those that let somebody in a little longer than those that do not.  Tokens are kept as their
digests.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.kube.http.message import Request

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AUTHENTICATED = "system:authenticated"
ADMITTED_SECONDS, REFUSED_SECONDS = 10.0, 2.0
"""For which an answer of the API server is believed."""
MOST_KEPT = 1000
"""Answers; a client that makes up tokens fills no memory."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class User:
    """Who asks, as the API server knows them."""

    name: str
    groups: Sequence[str] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Refused(Exception):
    """The request is not answered.  `code`: 401, 403, or 503 where nobody could be asked."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Access(NamedTuple):
    """What somebody wants to do: `verb` on a path, or on a resource of the core group."""

    verb: str
    path: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""

    def attributes(self) -> dict[str, Any]:
        """As a SubjectAccessReview has it."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        named = {"resource": self.resource, "subresource": self.subresource, "name": self.name}
        return {"resourceAttributes": {"verb": self.verb, "version": "v1", **named}}


class Kept(Generic[T]):
    """Answers that are believed for a moment."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> T | None:
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._clock() < until else None

    def put(self, key: Hashable, answer: T, seconds: float) -> None:
        now = self._clock()
        if len(self._answers) >= MOST_KEPT:
            self._answers = {key: kept for key, kept in self._answers.items() if kept[0] > now}
        if len(self._answers) >= MOST_KEPT:
            self._answers.clear()
        self._answers[key] = now + seconds, answer


class Verdict(NamedTuple):
    """Whether a user may, and why or why not."""

    allowed: bool
    reason: str


class Delegation:
    """Asks the API server about requests."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._users: Kept[User | Literal[False]] = Kept(clock)
        self._verdicts: Kept[Verdict] = Kept(clock)

    async def admit(self, request: Request, verb: str) -> User:
        """The user of a request who may do `verb` on its path.  Raises Refused."""
        user = await self.user(request)
        verdict = await self.verdict(user, Access(verb, request.path))
        if not verdict.allowed:
            words = f'User "{user.name}" cannot {verb} path "{request.path}"'
            raise Refused(403, f"{words}: {verdict.reason}" if verdict.reason else words)
        return user

    async def user(self, request: Request) -> User:
        """Who asks.  Raises Refused."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        peer = request.peer
        if scheme.lower() != "bearer" or not token.strip():
            if not peer.common_name:
                raise unknown()
            return User(peer.common_name, (*peer.organizations, AUTHENTICATED))
        key = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        found = self._users.get(key)
        if found is None:
            found = await self._user_of_token(token.strip()) or False
            self._users.put(key, found, ADMITTED_SECONDS if found else REFUSED_SECONDS)
        if not found:
            raise unknown()
        return found

    async def verdict(self, user: User, access: Access) -> Verdict:
        """Whether a user may.  Raises Refused where nobody can say."""
        extra = tuple((name, tuple(values)) for name, values in sorted(user.extra.items()))
        key = (user.name, tuple(user.groups), user.uid, extra, access)
        found = self._verdicts.get(key)
        if found is None:
            found = await self._verdict(user, access)
            seconds = ADMITTED_SECONDS if found.allowed else REFUSED_SECONDS
            self._verdicts.put(key, found, seconds)
        return found

    async def _user_of_token(self, token: str) -> User | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = await self._review(TOKEN_REVIEWS, review)
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        return User(
            user.get("username", ""),
            tuple(user.get("groups") or ()),
            user.get("uid", ""),
            user.get("extra") or {},
        )

    async def _verdict(self, user: User, access: Access) -> Verdict:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": list(user.groups),
                "uid": user.uid,
                "extra": {name: list(values) for name, values in user.extra.items()},
                **access.attributes(),
            },
        }
        status = await self._review(ACCESS_REVIEWS, review)
        allowed = bool(status.get("allowed")) and not status.get("denied")
        return Verdict(allowed, str(status.get("reason") or ""))

    async def _review(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self.client.request("POST", path, body=msgspec.json.encode(review))
        except (ApiError, TransportError) as error:
            raise Refused(503, f"the API server could not say who asks and may: {error}") from error
        status: dict[str, Any] = msgspec.json.decode(answer.body).get("status") or {}
        return status


def unknown() -> Refused:
    return Refused(
        401,
        "Unauthorized: show a bearer token, or a client certificate that the cluster's "
        "authority of clients has signed",
    )
