"""The names of storage drivers."""

from __future__ import annotations

from hekla.api.text.fieldrules import Errors
from hekla.api.text.syntax import dns_subdomain

LONGEST_DRIVER = 63


def driver_name(name: str, path: str, found: Errors) -> None:
    if not name:
        found.required(path)
        return
    if len(name.encode()) > LONGEST_DRIVER:
        found.too_long(path, LONGEST_DRIVER)
    found.malformed(path, name, dns_subdomain(name.lower()))
