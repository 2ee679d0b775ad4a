"""A client's credentials: tokens, token files, passwords and credential plugins.

`current()` is called for every request and must be cheap; only if it returns None is `refresh()`
awaited.  `rejected()` is called after a 401 and returns whether other credentials may help.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hekla.api.text.times import instant

TOKEN_FILE_PERIOD = 60.0
"""Seconds after which a token file is read again: mounted tokens are rotated in place."""
PLUGIN_TIMEOUT = 120.0
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class CredentialError(Exception):
    """There are no credentials; the message says why and where they should come from."""


class Credentials(Protocol):
    def current(self) -> bytes | None:
        """The header block to send (b"" for none), None when it must be refreshed first."""

    async def refresh(self) -> bytes: ...

    def rejected(self) -> bool: ...


def bearer(token: str) -> bytes:
    return b"Authorization: Bearer " + token.encode() + b"\r\n"


def basic(username: str, password: str) -> bytes:
    return b"Authorization: Basic " + base64.b64encode(f"{username}:{password}".encode()) + b"\r\n"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Credentials that do not change: a token, a password, or none (client certificates belong to
    the connection)."""

    header: bytes = b""

    def current(self) -> bytes:
        return self.header

    async def refresh(self) -> bytes:
        return self.header

    def rejected(self) -> bool:
        return False


class TokenFile:
    """A token in a file, which is replaced from time to time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._header = b""
        self._read_at = -TOKEN_FILE_PERIOD

    def current(self) -> bytes | None:
        return self._header if time.monotonic() - self._read_at < TOKEN_FILE_PERIOD else None

    async def refresh(self) -> bytes:
        try:
            token = self.path.read_text().strip()
        except OSError as error:
            if self._header:  # the file is being replaced at this moment: the old token serves on
                return self._header
            raise CredentialError(
                f"{self.path}: the token file cannot be read: {error.strerror}"
            ) from None
        if not token:
            raise CredentialError(f"{self.path}: the token file is empty")
        self._header = bearer(token)
        self._read_at = time.monotonic()
        return self._header

    def rejected(self) -> bool:
        before = self._header
        self._read_at = -TOKEN_FILE_PERIOD
        try:
            return bearer(self.path.read_text().strip()) != before
        except OSError:
            return False


@dataclass(slots=True)
class Plugin:
    """A program that prints an ExecCredential (kubeconfig `user.exec`), which is valid until it
    expires.

    `certificate` is the client certificate and key (PEM) that the program may return instead of a
    token or with it.
    """

    where: str
    """File and field of the plugin, for messages."""
    api_version: str
    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    cluster: dict[str, Any] | None = None
    """The cluster information for the plugin (provideClusterInfo)."""
    certificate: tuple[str, str] | None = None
    _header: bytes | None = None
    _expires: float = 0.0
    _running: asyncio.Task[bytes] | None = None

    def current(self) -> bytes | None:
        return self._header if time.time() < self._expires else None

    async def refresh(self) -> bytes:
        """Run the plugin; concurrent callers share one run."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())
        return await asyncio.shield(self._running)

    def rejected(self) -> bool:
        self._expires = 0.0
        return True

    async def _run(self) -> bytes:
        program = shutil.which(self.command)
        if program is None:
            hint = f"\n{self.install_hint}" if self.install_hint else ""
            raise CredentialError(
                f"{self.where}.command: {self.command!r} is not an executable that can be found{hint}"
            )
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec}
        environment = {
            **os.environ,
            **self.env,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        process = await asyncio.create_subprocess_exec(
            program,
            *self.args,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CredentialError(
                f"{self.where}: {self.command} gave no answer for {PLUGIN_TIMEOUT:g} s"
            ) from None
        if process.returncode:
            raise CredentialError(
                f"{self.where}: {self.command} failed with exit code {process.returncode}"
            )
        return self._accept(output)

    def _accept(self, output: bytes) -> bytes:
        try:
            answer = msgspec.json.decode(output)
        except msgspec.DecodeError as error:
            raise CredentialError(
                f"{self.where}: {self.command} did not print JSON: {error}"
            ) from None
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise CredentialError(f"{self.where}: {self.command} did not print an ExecCredential")
        if answer.get("apiVersion") != self.api_version:
            given, wanted = answer.get("apiVersion"), self.api_version
            raise CredentialError(
                f"{self.where}: {self.command} answered in {given!r}, the kubeconfig says {wanted!r}"
            )
        status = answer.get("status") or {}
        token, certificate, key = (
            status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if not token and not certificate:
            raise CredentialError(
                f"{self.where}: {self.command} gave neither a token nor a client certificate"
            )
        if bool(certificate) != bool(key):
            raise CredentialError(
                f"{self.where}: {self.command} gave only one of client certificate and key"
            )
        self.certificate = (certificate, key) if certificate else None
        expiry = status.get("expirationTimestamp")
        self._expires = instant(expiry) if expiry else float("inf")
        self._header = bearer(token) if token else b""
        return self._header
