"""The name grammars of Kubernetes, each a function that gives the reasons against a text (none: it is valid)."""

from __future__ import annotations

import re

from hekla.api import syntax

PORT_NAME_CHARACTERS = re.compile(r"[-a-z0-9]+\Z")

_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_ENV_TEXT = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start "
    "with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', "
    "regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')"
)

_CONFIGURATION_KEY = re.compile(r"[-._a-zA-Z0-9]+\Z")
_CONFIGURATION_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', "
    "regex used for validation is '[-._a-zA-Z0-9]+')"
)


def dns_label(text: str) -> list[str]:
    if "." in text and len(text) <= 63 and syntax.is_subdomain(text):
        return ["must not contain dots"]
    return list(syntax.dns_label(text))


def dns_subdomain(text: str) -> list[str]:
    return list(syntax.dns_subdomain(text))


def label_value(text: str) -> list[str]:
    return list(syntax.label_value(text))


def qualified_name(text: str) -> list[str]:
    """A name with an optional `subdomain/` before it."""
    return list(syntax.qualified_name(text))


def environment_name(text: str) -> list[str]:
    return ([] if _ENV.match(text) else [_ENV_TEXT]) + _dots(text)


def configuration_key(text: str) -> list[str]:
    """A key of a ConfigMap or a Secret."""
    if len(text) > 253:
        return ["must be no more than 253 characters"]
    return ([] if _CONFIGURATION_KEY.match(text) else [_CONFIGURATION_KEY_TEXT]) + _dots(text)


def _dots(text: str) -> list[str]:
    """A name that a path would take for the directory itself, or for the one above."""
    if text in (".", ".."):
        return [f"must not be '{text}'"]
    return ["must not start with '..'"] if text.startswith("..") else []


def port_name(text: str) -> list[str]:
    errors = []
    if not 1 <= len(text) <= 15:
        errors.append("must be no more than 15 characters" if text else "must be at least 1 character")
    if not PORT_NAME_CHARACTERS.match(text):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= letter <= "z" for letter in text):
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def listed(errors: list[str]) -> str:
    """Reasons as the messages of the batch kinds print a list: bracketed, parted by blanks."""
    return "[" + " ".join(errors) + "]"
