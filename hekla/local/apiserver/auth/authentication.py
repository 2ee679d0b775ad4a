"""Authentication: a client certificate, a token, or a process of the same user on the Unix socket."""

from __future__ import annotations

import csv
import os
import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path

from hekla.api.bounded import BoundedCache
from hekla.kube.http.server import Peer, Request
from hekla.kube.streams import websocket
from hekla.local.apiserver.auth.tokens import ISSUER, Tokens, Verified
from hekla.local.apiserver.auth.user import ADMIN, AUTHENTICATED, NOBODY, User
from hekla.local.apiserver.request.status import Refusal

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
SIGNATURE_CACHE_SECONDS = 10.0
"""How long a verified signature is cached. Whether the objects of the token still exist is checked
each time."""


class Authenticator:
    """Finds the user of a request."""

    def __init__(self, tokens: Tokens, token_file: Path | None = None) -> None:
        self.tokens = tokens
        self.static = read_tokens(token_file) if token_file is not None else {}
        self._known: BoundedCache[str, tuple[Verified, float]] = BoundedCache(5000)
        self._peers: BoundedCache[Peer, User] = BoundedCache(1000)

    def user(self, request: Request) -> User:
        """The user, which may be anonymous. Raises a 401 for an invalid credential."""
        credential = request.headers.get("authorization")
        if not credential and "sec-websocket-protocol" in request.headers:
            credential = websocket_credential(request.headers)
        # A certificate takes precedence over a token.
        if credential and not request.peer.common_name:
            return self._bearer(credential)
        peer = request.peer
        user = self._peers.get(peer)
        if user is None:
            user = self._of_peer(peer)
            self._peers[peer] = user
        return user

    def _of_peer(self, peer: Peer) -> User:
        if peer.common_name:
            extra = {CREDENTIAL_ID: (f"X509SHA256={peer.certificate}",)} if peer.certificate else {}
            return User(peer.common_name, (*peer.organizations, AUTHENTICATED), extra=extra)
        if peer.user_id is not None and peer.user_id in (os.getuid(), 0):
            return ADMIN
        return NOBODY

    def _bearer(self, credential: str) -> User:
        scheme, _, token = credential.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise unauthorized()
        user = self.verify(token)
        if user is None:
            raise unauthorized()
        return user

    def audiences(self, token: str) -> list[str]:
        """The audiences of a token that was verified."""
        return [ISSUER] if token in self.static else self.tokens.audiences(token)

    def verify(self, token: str, audiences: tuple[str, ...] = ()) -> User | None:
        """The user of a bearer token. Without audiences the token must be for this server."""
        static = self.static.get(token)
        if static is not None:
            return static if not audiences or ISSUER in audiences else None
        if audiences:
            other = self.tokens.verify(token, audiences)
            return other.user if other is not None else None
        now = time.time()
        known = self._known.get(token)
        if known is not None and known[1] > now and self.tokens.lives(token, known[0]):
            return known[0].user
        verified = self.tokens.verify(token)
        if verified is None:
            self._known.pop(token, None)
            return None
        self._known[token] = (verified, min(verified.expires, now + SIGNATURE_CACHE_SECONDS))
        return verified.user


def websocket_credential(headers: Mapping[str, str]) -> str:
    """The token that a browser sends as a subprotocol of a WebSocket, as the Authorization header
    that it cannot send."""
    for name in websocket.offered(headers) if websocket.is_upgrade(headers) else ():
        if name.startswith(websocket.TOKEN_PROTOCOL):
            text = name.removeprefix(websocket.TOKEN_PROTOCOL)
            try:
                return f"Bearer {urlsafe_b64decode(text + '=' * (-len(text) % 4)).decode()}"
            except ValueError:
                raise unauthorized() from None
    return ""


def unauthorized() -> Refusal:
    """The 401 error."""
    return Refusal(401, "Unauthorized")


def read_tokens(path: Path) -> dict[str, User]:
    """Read a file of static tokens. Each line has the form token,user,uid,"group1,group2"."""
    users: dict[str, User] = {}
    with path.open(newline="") as file:
        for number, line in enumerate(csv.reader(file), 1):
            line = [part.strip() for part in line]
            if not line or line[0].startswith("#"):
                continue
            if len(line) < 3 or not line[0] or not line[1]:
                raise ValueError(f'{path}:{number}: a line is token,user,uid[,"group1,group2"]')
            groups = (
                tuple(group.strip() for group in line[3].split(","))
                if len(line) > 3 and line[3]
                else ()
            )
            users[line[0]] = User(line[1], (*groups, AUTHENTICATED), line[2])
    return users
