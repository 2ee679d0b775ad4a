"""A webhook of the tests' own: HTTPS on loopback with a certificate made for it, remembering what
it was asked."""

from __future__ import annotations

import base64
import datetime
import http.server
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Tree = dict[str, Any]


class Hook:
    """What the webhook was asked; `answer(path, request)` is what it says."""

    def __init__(self, port: int, authority: bytes) -> None:
        self.port = port
        self.authority = base64.b64encode(authority).decode()
        self.asked: list[tuple[str, Tree]] = []
        self.answer: Callable[[str, Tree], Tree] = lambda path, request: {"allowed": True}

    def client(self, path: str) -> Tree:
        """The `clientConfig` of a webhook at this path."""
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": self.authority}

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


def patch(*operations: Tree) -> Tree:
    """An answer that changes the object."""
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
    }


@contextmanager
def serving(directory: Path) -> Iterator[Hook]:
    certificate, key = _certificate()
    (directory / "crt").write_bytes(certificate)
    (directory / "key").write_bytes(key)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            hook.asked.append((path, review["request"]))
            response = {"uid": review["request"]["uid"], **hook.answer(path, review["request"])}
            body = json.dumps(
                {
                    "apiVersion": review["apiVersion"],
                    "kind": "AdmissionReview",
                    "response": response,
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "crt", directory / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    hook = Hook(server.server_address[1], certificate)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()


def _certificate() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
