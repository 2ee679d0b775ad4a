"""TLS contexts from a kubeconfig's inline data or files, which may be rotated while a daemon runs."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class TlsError(Exception):
    """Certificates or keys cannot be used; the message names file and field."""


@dataclass(frozen=True, slots=True)
class Pem:
    """PEM text, inline or in a file; `where` is its field."""

    where: str
    text: str = ""
    path: Path | None = None

    def read(self) -> str:
        if self.path is None:
            return self.text
        try:
            return self.path.read_text()
        except OSError as error:
            raise TlsError(f"{self.where}: {self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TlsError(f"{self.where}: {self.path}: not a PEM file") from None


@dataclass(slots=True)
class TlsSource:
    """Creates the context for the first connection, and again when one of its files has changed."""

    authority: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    insecure: bool = False
    given: Callable[[], tuple[str, str] | None] | None = None
    """A client certificate and key from elsewhere (a credential plugin), asked at each connection.
    """
    _context: ssl.SSLContext | None = None
    _made_of: tuple[object, ...] = ()

    def context(self) -> ssl.SSLContext:
        """The present context.  Raises TlsError."""
        made_of = self._ingredients()
        if self._context is None or made_of != self._made_of:
            self._context = self._make()
            self._made_of = made_of
        return self._context

    def _ingredients(self) -> tuple[object, ...]:
        times = []
        for pem in (self.authority, self.certificate, self.key):
            if pem is not None and pem.path is not None:
                try:
                    times.append(pem.path.stat().st_mtime_ns)
                except OSError:
                    times.append(0)
        return (*times, self.given() if self.given else None)

    def _make(self) -> ssl.SSLContext:
        text = self.authority.read() if self.authority else None
        try:
            context = ssl.create_default_context(cadata=text)
        except ssl.SSLError as error:
            where = self.authority.where if self.authority else "the system's certificates"
            raise TlsError(f"{where}: not a PEM certificate: {error.reason or error}") from None
        # Python >= 3.13 asks for key identifiers that many clusters' certificates do not have;
        # other clients do not ask.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        pair = self.given() if self.given else None
        if pair is not None:
            load_pair(context, pair[0], pair[1], "the credential plugin's client certificate")
        elif self.certificate is not None and self.key is not None:
            load_pair(context, self.certificate.read(), self.key.read(), self.certificate.where)
        return context


def load_files(
    context: ssl.SSLContext,
    certificate: str | Path,
    key: str | Path = "",
    authority: str | Path = "",
) -> None:
    """Load the pair of a server or client, and the authority that it trusts, into the context.
    Raises TlsError, which names the file."""
    for file in (certificate, key, authority):
        try:
            if file:
                open(file, "rb").close()
        except OSError as error:
            raise TlsError(f"{file}: {error.strerror}") from None
    try:
        context.load_cert_chain(certificate, key or None, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        pair = f"{certificate} and its key {key}" if key else str(certificate)
        raise TlsError(
            f"{pair}: they are damaged, no PEM, or do not belong together ({reason})"
        ) from None
    try:
        if authority:
            context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise TlsError(f"{authority}: no certificate in PEM ({error.reason or error})") from None


def load_pair(context: ssl.SSLContext, certificate: str, key: str, where: str) -> None:
    """Load a certificate and key from memory.  Python's ssl reads files only, so a temporary file
    is written."""
    descriptor, name = tempfile.mkstemp(prefix="hekla-", suffix=".pem")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{certificate}\n{key}\n")
        context.load_cert_chain(name, password="")
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise TlsError(
            f"{where}: the client certificate and key cannot be used: {reason}"
        ) from None
    finally:
        os.unlink(name)
