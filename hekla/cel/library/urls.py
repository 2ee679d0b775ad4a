"""URLs: absolute ones, and absolute paths."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.library.operators import quoted
from hekla.cel.types import BOOL, STRING, URL, list_of, map_of


@dataclass(frozen=True, slots=True)
class Url:
    kind = URL.name
    text: str
    parts: SplitResult = field(compare=False)

    @classmethod
    def read(cls, text: str) -> Url:
        return cls(text, _parsed(text))

    @property
    def port(self) -> str:
        match = re.search(r":(\d*)$", self.parts.netloc.rpartition("@")[2])
        return match[1] if match else ""

    @property
    def hostname(self) -> str:
        host = self.parts.netloc.rpartition("@")[2]
        if host.startswith("["):
            return host[1:].partition("]")[0]
        return re.sub(r":\d*$", "", host)


def _parsed(text: str) -> SplitResult:
    start = "URL parse error during conversion from string: "
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise Failed(f"{start}parse {quoted(text)}: net/url: invalid control character in URL")
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
        tail = host.rpartition("]")[2] if host.startswith("[") else host
        if ":" in tail and not tail.rpartition(":")[2].isdigit() and tail.rpartition(":")[2]:
            raise Failed(
                f'{start}parse {quoted(text)}: invalid port ":{tail.rpartition(":")[2]}" after host'
            )
    except ValueError as error:
        raise Failed(f"{start}parse {quoted(text)}: {error}") from None
    if not text or (not parts.scheme and not text.startswith("/")) or " " in parts.netloc:
        raise Failed(
            f"{start}parse {quoted(text)}: "
            + ("empty url" if not text else "invalid URI for request")
        )
    if re.search(r"%(?![0-9A-Fa-f]{2})", parts.path):
        raise Failed(f"{start}parse {quoted(text)}: invalid URL escape")
    return parts


def _is(text: str) -> bool:
    try:
        _parsed(text)
    except Failed:
        return False
    return True


function("url", (STRING,), URL, Url.read)
function("isURL", (STRING,), BOOL, _is)
method("getScheme", (URL,), STRING, lambda value: value.parts.scheme)
method("getHost", (URL,), STRING, lambda value: value.parts.netloc.rpartition("@")[2])
method("getHostname", (URL,), STRING, lambda value: value.hostname)
method("getPort", (URL,), STRING, lambda value: value.port)
method(
    "getEscapedPath",
    (URL,),
    STRING,
    lambda value: quote(value.parts.path, safe="%/:@!$&'()*+,;=~-._"),
)
method(
    "getQuery",
    (URL,),
    map_of(STRING, list_of(STRING)),
    lambda value: parse_qs(value.parts.query, keep_blank_values=True),
)
