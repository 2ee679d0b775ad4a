"""The server's certificate: given by files, or made here, and replaced without a restart.

A certificate of our own is renewed after half of its life.  The order of a renewal matters: the new
authority is announced to the API server first, beside the old one, and only then does the server
show a certificate of the new one, so that no review in between meets a certificate that its caller
does not trust.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from hekla.kube.connection.serving import CertificateError, Pair, context_of, make

LIFETIME = datetime.timedelta(days=365)
MOST = 16
"""Authorities announced at one time: one a copy of the server, and those of copies that were there
before."""


class Source(Protocol):
    """A source of certificates.  `renewed` returns a new pair when it is due, None otherwise."""

    def first(self) -> Pair: ...

    def renewed(self, now: datetime.datetime) -> Pair | None: ...


class Files:
    """Certificates from files, read again when one of them changes."""

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        self._paths = (Path(authority), Path(certificate), Path(key))
        self._seen = self._stamps()

    def first(self) -> Pair:
        return Pair(*(_read(path) for path in self._paths))

    def renewed(self, now: datetime.datetime) -> Pair | None:
        stamps = self._stamps()
        if stamps == self._seen or None in stamps:
            return None  # unchanged, or in the middle of being replaced
        pair = self.first()
        context_of(pair)  # raises while certificate and key do not match
        self._seen = stamps
        return pair

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [stamp_of(path) for path in self._paths]


class Own:
    """Self-made certificates for the given names."""

    def __init__(self, names: Sequence[str], lifetime: datetime.timedelta = LIFETIME) -> None:
        self._names = list(names)
        self._lifetime = lifetime
        self._made = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def first(self) -> Pair:
        return self._make(datetime.datetime.now(datetime.UTC))

    def renewed(self, now: datetime.datetime) -> Pair | None:
        return self._make(now) if now - self._made >= self._lifetime / 2 else None

    def _make(self, now: datetime.datetime) -> Pair:
        self._made = now
        authority = f"{self._names[0]} admission authority"
        return make(self._names, authority, now, self._lifetime)


def bundle(announced: bytes, authority: bytes, now: datetime.datetime, limit: int = MOST) -> bytes:
    """The authorities to announce: the valid ones that were announced before, then this one;
    `limit` at most."""
    kept = {
        certificate.public_bytes(serialization.Encoding.PEM): None
        for certificate in _certificates(announced)
        if certificate.not_valid_after_utc > now
    }
    if authority in kept:
        # In the present order, so that copies of this server do not rewrite it in turn.
        return b"".join(kept)
    return b"".join([*kept][-(limit - 1) :]) + authority


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem) if pem.strip() else []
    except ValueError:
        return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror or error}") from error


def stamp_of(path: Path) -> tuple[int, int] | None:
    """The time and size by which a changed file is noticed; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
