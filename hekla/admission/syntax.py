"""The name grammars of Kubernetes, each a function that gives the reasons against a text (none: it is valid)."""

from __future__ import annotations

import re

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + r"(\." + LABEL + ")*"
QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_VALUE = f"({QUALIFIED})?"
PORT_NAME_CHARACTERS = re.compile(r"[-a-z0-9]+\Z")

_LABEL = re.compile(LABEL + r"\Z")
_SUBDOMAIN = re.compile(SUBDOMAIN + r"\Z")
_QUALIFIED = re.compile(QUALIFIED + r"\Z")
_LABEL_VALUE = re.compile(LABEL_VALUE + r"\Z")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")

_NAME_CHARACTERS = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_QUALIFIED_TEXT = (
    f"must consist of {_NAME_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    f"with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
_LABEL_VALUE_TEXT = (
    f"a valid label must be an empty string or consist of {_NAME_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{LABEL_VALUE}')"
)
_ENV_TEXT = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start "
    "with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', "
    "regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')"
)


def too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def dns_label(text: str) -> list[str]:
    return ([too_long(63)] if len(text) > 63 else []) + ([] if _LABEL.match(text) else [_LABEL_TEXT])


def dns_subdomain(text: str) -> list[str]:
    return ([too_long(253)] if len(text) > 253 else []) + ([] if _SUBDOMAIN.match(text) else [_SUBDOMAIN_TEXT])


def label_value(text: str) -> list[str]:
    return ([too_long(63)] if len(text) > 63 else []) + ([] if _LABEL_VALUE.match(text) else [_LABEL_VALUE_TEXT])


def qualified_name(text: str) -> list[str]:
    """A name with an optional `subdomain/` before it."""
    errors = []
    prefix, slash, name = text.partition("/")
    if not slash:
        name = text
    elif "/" in name:
        return [f"a qualified name {_QUALIFIED_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    elif not prefix:
        errors.append("prefix part must be non-empty")
    else:
        errors += ["prefix part " + text for text in dns_subdomain(prefix)]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append("name part " + too_long(63))
    if not _QUALIFIED.match(name):
        errors.append("name part " + _QUALIFIED_TEXT)
    return errors


def environment_name(text: str) -> list[str]:
    errors = [] if _ENV.match(text) else [_ENV_TEXT]
    if text in (".", ".."):
        errors.append(f"must not be '{text}'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return errors


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
