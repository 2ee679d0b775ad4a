"""Checks of paths that must stay below a directory."""

from __future__ import annotations

from hekla.api.text.fieldrules import Errors

PARENT = "must not contain '..'"


def descending(text: str, path: str, found: Errors, *, relative: bool = True) -> None:
    if relative and text.startswith("/"):
        found.invalid(path, text, "must be a relative path")
    if ".." in text and ".." in text.split("/"):
        found.invalid(path, text, PARENT)


def unreserved(text: str, path: str, found: Errors) -> None:
    """Check a path that may not begin with two dots either, because the kubelet uses such names."""
    descending(text, path, found)
    if text.startswith("..") and not text.startswith("../"):
        found.invalid(path, text, "must not start with '..'")
