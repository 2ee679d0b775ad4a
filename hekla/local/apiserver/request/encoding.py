"""Encodes a JSON response for its client: as it is, indented, as YAML, or compressed."""

from __future__ import annotations

import zlib

import msgspec

from hekla.kube.http.server import Request, Response

PEOPLE = ("curl", "Wget", "Mozilla/5.0")
"""User agents whose reader is a person; they get indented JSON."""
TRUE = ("1", "t", "T", "true", "TRUE", "True")
LARGE = 128 * 1024
NEAR = ("", "127.0.0.1", "::1")
"""Peers on this machine.  Compressing for them costs more than it saves, and it blocks the server."""


def encode_response(request: Request, answer: Response) -> None:
    """Change a JSON response in place to the encoding that its client prefers."""
    headers = request.headers
    accept = headers.get("accept")
    if accept is not None and "yaml" in accept and accept.lstrip().startswith("application/yaml"):
        answer.body, answer.content_type = as_yaml(answer.body), "application/yaml"
    elif request.query and "pretty=" in request.query:
        if request.option("pretty") in TRUE:
            answer.body = pretty(answer.body)
    elif headers.get("user-agent", "").startswith(PEOPLE):
        answer.body = pretty(answer.body)
    if (
        len(answer.body) >= LARGE
        and request.peer.address not in NEAR
        and "gzip" in headers.get("accept-encoding", "")
    ):
        packer = zlib.compressobj(1, wbits=31)
        answer.body = packer.compress(answer.body) + packer.flush()
        answer.headers = {
            **(answer.headers or {}),
            "Content-Encoding": "gzip",
            "Vary": "Accept-Encoding",
        }


def pretty(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=2) + b"\n" if body[:1] in (b"{", b"[") else body


def as_yaml(body: bytes) -> bytes:
    return msgspec.yaml.encode(msgspec.json.decode(body)) if body[:1] in (b"{", b"[") else body
