"""What a controller has written but not yet seen.

A controller decides by its caches, and these are late.  One that has just created a pod and looks
again before the watch has brought it would create a second.  So it notes what it is about to do,
does nothing more about that object until the cache has shown the effect, and gives up waiting after
a deadline, because an event that never comes must not stop it for ever.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from hekla.api.meta import key as key_of
from hekla.kube.http.client import TransportError
from hekla.kube.objects import uid_of

log = logging.getLogger(__name__)

DEADLINE = 30.0
"""Seconds after which an expectation expires.  client-go waits five minutes; a watch that is so
late is broken."""


class Expectations:
    """By controller key: children expected to appear (by their key) and to go (by their uid).

    `owner_of` gives the controller key of a child, or None.  Give `observe` to the children's cache
    as its `on_change` listener *before* the listener that queues keys, so that a queued key finds
    its expectation fulfilled. What was answered is waited for `deadline` seconds: it is there, and
    only the watch is late.  What was sent and not answered may never have been done; `doubt` says
    how long to wait for that (as long, unless given).
    """

    def __init__(
        self,
        owner_of: Callable[[Any], str | None] | None = None,
        *,
        deadline: float = DEADLINE,
        doubt: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner_of = owner_of
        self._deadline = deadline
        self._doubt = deadline if doubt is None else doubt
        self._clock = clock
        self._pending: dict[str, dict[str, float]] = {}

    def satisfied(self, key: str) -> bool:
        """Whether every write for this key has been seen, or has expired."""
        pending = self._pending.get(key)
        if not pending:
            return True
        now = self._clock()
        late = [token for token, until in pending.items() if until <= now]
        for token in late:
            log.warning("%s: did not see %s in time; going on without", key, token)
            self._fulfil(key, token)
        return key not in self._pending

    def remaining(self, key: str) -> float:
        """Seconds until the last expectation expires: what `reconcile` returns while it waits."""
        pending = self._pending.get(key)
        return max(0.0, max(pending.values()) - self._clock()) if pending else 0.0

    def creating(self, key: str, child: str) -> AbstractContextManager[None]:
        """A context manager around the request that creates `child` (its key).  A request that was
        refused leaves no expectation."""
        return _Expecting(self, key, _creation(child))

    def deleting(self, key: str, uid: str) -> AbstractContextManager[None]:
        """A context manager around the request that deletes the object of that uid.  It is
        fulfilled as soon as the object has a deletionTimestamp."""
        return _Expecting(self, key, _deletion(uid))

    def pending(self, key: str) -> bool:
        """Whether a write for this key has not been seen yet, however old it is."""
        return key in self._pending

    def observe(self, old: Any, new: Any) -> None:
        """A cache listener: fulfils the expectations that a change shows."""
        child = new if new is not None else old
        owner = self._owner_of(child) if self._owner_of else None
        if owner is not None:
            self.show(owner, old, new)

    def show(self, key: str, old: Any, new: Any) -> bool:
        """Fulfil the expectations that a change of a child shows.  Returns whether that was an
        expected creation."""
        if key not in self._pending:
            return False
        if new is None:
            self._fulfil(key, _deletion(uid_of(old)))
            self._fulfil(key, _creation(key_of(old)))
            return False
        if _is_deleting(new):
            self._fulfil(key, _deletion(uid_of(new)))
        return self._fulfil(key, _creation(key_of(new)))

    def forget(self, key: str) -> None:
        """Drop all expectations of a key whose object is gone."""
        self._pending.pop(key, None)

    def _expect(self, key: str, token: str) -> None:
        self._pending.setdefault(key, {})[token] = self._clock() + self._deadline

    def _failed(self, key: str, token: str, error: BaseException) -> None:
        """A request failed.  If it was sent and not answered, it may have taken effect, so the
        expectation stays."""
        if not isinstance(error, TransportError):
            if isinstance(error, Exception):
                self._fulfil(key, token)
        elif not error.sent:
            self._fulfil(key, token)
        elif token in self._pending.get(key, ()):
            self._pending[key][token] = self._clock() + self._doubt

    def _fulfil(self, key: str, token: str) -> bool:
        pending = self._pending.get(key)
        if pending is None or pending.pop(token, None) is None:
            return False
        if not pending:
            del self._pending[key]
        return True


class _Expecting:
    """The context manager around one request.  As a generator it would cost three times as much,
    twice for each pod."""

    __slots__ = ("_expectations", "_key", "_token")

    def __init__(self, expectations: Expectations, key: str, token: str) -> None:
        self._expectations = expectations
        self._key = key
        self._token = token

    def __enter__(self) -> None:
        self._expectations._expect(self._key, self._token)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._expectations._failed(self._key, self._token, error)


def _creation(child: str) -> str:
    return f"the creation of {child}"


def _deletion(uid: str) -> str:
    return f"the deletion of uid {uid}"


def _is_deleting(obj: Any) -> bool:
    if isinstance(obj, dict):
        return bool((obj.get("metadata") or {}).get("deletionTimestamp"))
    return bool(obj.metadata.deletion_timestamp)
