"""Who asks a daemon, and whether they may: the API server decides, as for Kubernetes' own components.

A client shows a bearer token, which a TokenReview turns into a user, or a certificate that the
cluster's authority of clients has signed.  A SubjectAccessReview then says whether that user may do
`verb` on the path, by the cluster's own roles (`nonResourceURLs`).  Nobody is let in without both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.kube.http.message import Request

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AUTHENTICATED = "system:authenticated"


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


class Delegation:
    """Asks the API server about requests."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def admit(self, request: Request, verb: str) -> User:
        """The user of a request who may do `verb` on its path.  Raises Refused."""
        try:
            user = await self._user(request)
            if user is None:
                raise Refused(
                    401,
                    "Unauthorized: show a bearer token, or a client certificate that the cluster's "
                    "authority of clients has signed",
                )
            allowed, reason = await self._allowed(user, verb, request.path)
        except (ApiError, TransportError) as error:
            raise Refused(503, f"the API server could not say who asks and may: {error}") from error
        if not allowed:
            words = f'User "{user.name}" cannot {verb} path "{request.path}"'
            raise Refused(403, f"{words}: {reason}" if reason else words)
        return user

    async def _user(self, request: Request) -> User | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return await self._user_of_token(token.strip())
        peer = request.peer
        if peer.common_name:
            return User(peer.common_name, (*peer.organizations, AUTHENTICATED))
        return None

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

    async def _allowed(self, user: User, verb: str, path: str) -> tuple[bool, str]:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": list(user.groups),
                "uid": user.uid,
                "extra": {name: list(values) for name, values in user.extra.items()},
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        }
        status = await self._review(ACCESS_REVIEWS, review)
        allowed = bool(status.get("allowed")) and not status.get("denied")
        return allowed, str(status.get("reason") or "")

    async def _review(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        answer = await self.client.request("POST", path, body=msgspec.json.encode(review))
        status: dict[str, Any] = msgspec.json.decode(answer.body).get("status") or {}
        return status
