"""Events have two versions, v1 and events.k8s.io, which name the same fields differently and share
one store (local-cluster 5.6).

They are stored as v1. Each field of the newer version (note, regarding, ...) maps to a field of v1,
so nothing is lost.
"""

from __future__ import annotations

from hekla.api.trees import Json

_STORED_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_NEW_TO_STORED = {new: stored for stored, new in _STORED_TO_NEW.items()}


def present(stored: Json) -> Json:
    """The stored event as an object of events.k8s.io/v1."""
    return {_STORED_TO_NEW.get(key, key): value for key, value in stored.items()}


def keep(shown: Json) -> Json:
    """An object of events.k8s.io/v1 as it is stored."""
    return {_NEW_TO_STORED.get(key, key): value for key, value in shown.items()}
