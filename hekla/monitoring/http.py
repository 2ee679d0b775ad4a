"""One question to a monitoring system by HTTP, with the credentials that the settings give."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROUND = 60.0
"""Seconds that one answer may take where the settings say nothing."""
LARGEST = 1 << 20
"""Bytes of the largest answer that is read about one node."""


def address_of(settings: Mapping[str, str]) -> str:
    return settings.get("address", "").rstrip("/")


def fetch(
    url: str,
    settings: Mapping[str, str],
    body: Any = None,
    *,
    largest: int = LARGEST,
    timeout: float = ROUND,
) -> Any:
    """Ask and wait for the answer.  Raises OSError, and ValueError for an answer that is no JSON or
    too large.

    Of `settings` are read: `address`, `elasticsearch.username` and `elasticsearch.password`, `auth.bearerTokenFile`,
    `tls.insecureSkipVerify`, `tls.caFile`, `tls.certFile` and `tls.keyFile`.
    """
    from urllib.request import Request, urlopen

    if not url.startswith(("http://", "https://")):
        raise ValueError(
            f"address {settings.get('address', '')!r} begins with neither http:// nor https://"
        )
    request = Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **_authorization(settings)},
    )
    context = _tls(settings) if url.startswith("https://") else None
    with urlopen(request, timeout=timeout, context=context) as response:
        answer = response.read(largest + 1)
    if len(answer) > largest:
        raise ValueError(f"the answer of {url.partition('?')[0]} is larger than {largest} bytes")
    return json.loads(answer)


def _authorization(settings: Mapping[str, str]) -> dict[str, str]:
    if token := settings.get("auth.bearerTokenFile", ""):
        return {"Authorization": f"Bearer {Path(token).read_text().strip()}"}
    if user := settings.get("elasticsearch.username", ""):
        pair = f"{user}:{settings.get('elasticsearch.password', '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.get("tls.caFile") or None)
    if settings.get("tls.insecureSkipVerify") == "true":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate := settings.get("tls.certFile", ""):
        context.load_cert_chain(certificate, settings.get("tls.keyFile") or None)
    return context
