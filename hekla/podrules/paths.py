"""Paths below a directory, which may not lead out of it."""

from __future__ import annotations

from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors

PARENT = "must not contain '..'"


def descending(text: str, path: str, found: Errors, *, relative: bool = True) -> None:
    if relative and text.startswith("/"):
        found.append(invalid(path, text, "must be a relative path"))
    if ".." in text and ".." in text.split("/"):
        found.append(invalid(path, text, PARENT))


def unreserved(text: str, path: str, found: Errors) -> None:
    """One that does not begin with two dots either, which the kubelet uses itself."""
    descending(text, path, found)
    if text.startswith("..") and not text.startswith("../"):
        found.append(invalid(path, text, "must not start with '..'"))
