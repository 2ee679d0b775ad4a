"""Events have two faces: v1 and events.k8s.io name the same fields differently, and one store holds
both (local-cluster 5.6).

Stored is the v1 form; what only the newer form knows (note, regarding, ...) maps onto a v1 field,
so nothing is lost either way.
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
    """The stored event as events.k8s.io/v1 shows it."""
    return {_STORED_TO_NEW.get(key, key): value for key, value in stored.items()}


def keep(shown: Json) -> Json:
    """An event of events.k8s.io/v1 as it is stored."""
    return {_NEW_TO_STORED.get(key, key): value for key, value in shown.items()}
