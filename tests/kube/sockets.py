"""Small servers for the tests of the HTTP client: one that says exactly what a test writes down,
and certificates for TLS."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from hekla.kube.http.client import Target

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """The head and body of one request; ("", b"") at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return "", b""
    length = next(
        (
            int(line.split(":")[1])
            for line in head.split("\r\n")
            if line.lower().startswith("content-length")
        ),
        0,
    )
    return head, await reader.readexactly(length)


@asynccontextmanager
async def scripted(script: Script, path: Path) -> AsyncIterator[Target]:
    """A server on a Unix socket that runs `script` for each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield Target(unix=str(path))
    finally:
        server.close()


@dataclass(frozen=True)
class Certificates:
    """A certificate authority, a server's certificate for 127.0.0.1 and `cluster.test`, and a
    client's; all as PEM files."""

    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.load_cert_chain(self.server, self.server_key)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


def make_certificates(directory: Path) -> Certificates:
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.now(datetime.UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])

    def certificate(
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *extensions: tuple[x509.ExtensionType, bool],
    ) -> bytes:
        builder = (
            x509.CertificateBuilder(ca_name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def write(name: str, content: bytes) -> Path:
        path = directory / name
        path.write_bytes(content)
        return path

    def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    names = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("cluster.test")]
    )
    server_key, client_key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
    client_name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
            x509.NameAttribute(NameOID.COMMON_NAME, "alice"),
        ]
    )
    return Certificates(
        write("ca.crt", certificate(ca_name, ca_key, (x509.BasicConstraints(True, None), True))),
        write("server.crt", certificate(server_name, server_key, (names, False))),
        write("server.key", pem(server_key)),
        write("client.crt", certificate(client_name, client_key)),
        write("client.key", pem(client_key)),
    )
