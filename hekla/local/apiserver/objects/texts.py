"""Texts of statuses that decide about nothing: one in the place of another makes no other rule
speak and no other owner own.

A pattern of such has two groups, the field's name with what stands around it, and the text.  It
finds no text that is empty or in an unusual form, or that JSON writes with escapes: what becomes of
these is another matter.
"""

from __future__ import annotations

import re
from typing import Any

from hekla.api.trees import Json

DAY = rb"(?:(?:0[13-9]|1[0-2])-(?:0[1-9]|[12]\d|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1\d|2[0-8]))"
TIME = rb"20\d\d-" + DAY + rb"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
OCTET = rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
ADDRESS = rb"(?:" + OCTET + rb"\.){3}" + OCTET
WORDS = rb"[ !#-\[\]-~]+"

TIMES = ("lastTransitionTime", "startTime", "startedAt", "finishedAt")
MESSAGES = ("message", "transitionID")


def pattern(*forms: tuple[tuple[str, ...], bytes]) -> re.Pattern[bytes]:
    """Of fields by the form of their texts.  A quote behind a backslash begins no field."""
    names = b"|".join(
        b'(?:%b)":"(?=%b")' % ("|".join(fields).encode(), form) for fields, form in forms
    )
    return re.compile(rb'("(?<!\\")(?:' + names + rb'))([^"]+)')


OF_POD = pattern(
    (TIMES, TIME), (("podIP", "hostIP", "ip"), ADDRESS), (("message", "containerID"), WORDS)
)
OF_SCHEMA = pattern((("lastTransitionTime",), TIME), (MESSAGES, WORDS))
PLAIN = {"type", "description", "nullable"}


def of_schema(schema: Json | None) -> re.Pattern[bytes] | None:
    """Of a status that a schema describes; None where the schema says of such a field more than
    that it is a text."""
    return OF_SCHEMA if schema and _plain(schema) else None


def _plain(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(_plain(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if not {"lastTransitionTime", *MESSAGES}.isdisjoint(
        schema.get("x-kubernetes-list-map-keys") or ()
    ):
        return False
    properties = schema.get("properties")
    for name, below in properties.items() if isinstance(properties, dict) else ():
        if name in MESSAGES and not (below.get("type") == "string" and below.keys() <= PLAIN):
            return False
        if name == "lastTransitionTime" and not (
            below.get("type") == "string" and below.keys() <= PLAIN | {"format"}
        ):
            return False
    return all(_plain(below) for below in schema.values())
