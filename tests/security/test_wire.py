"""Below HTTP: requests that two readers would split differently, old TLS, and doors that speak no
TLS."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import warnings
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.security.conftest import Fort

GET = b"GET /version HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\n"
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: hidden\r\n\r\n"


def talk(api: Api, data: bytes, seconds: float = 3.0) -> bytes:
    """What the server says to these bytes on a connection of the administrator's, until it closes
    or falls silent."""
    connection = api.connect(seconds)
    connection.connect()
    sock = connection.sock
    assert sock is not None
    answer = b""
    try:
        sock.sendall(data)
        while piece := sock.recv(65536):
            answer += piece
    except (TimeoutError, OSError):
        pass
    finally:
        connection.close()
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


SMUGGLED = {
    "both lengths": POST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + HIDDEN,
    "both lengths, the other way": POST
    + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"
    + HIDDEN,
    "two lengths": POST + b"Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + HIDDEN,
    "a list of lengths": POST + b"Content-Length: 0, 44\r\n\r\n" + HIDDEN,
    "a length with a sign": POST + b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "a length below nothing": POST + b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "a blank before the colon": POST + b"Content-Length : 0\r\n\r\n" + HIDDEN,
    "an encoding that nobody knows": POST
    + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    + HIDDEN,
    "an encoding behind chunked": POST
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
    + HIDDEN,
    "a folded header": POST
    + b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"
    + HIDDEN,
    "a bare line feed in a header": POST
    + b"X: a\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"
    + HIDDEN,
    "a size that overflows": POST
    + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n\r\n"
    + HIDDEN,
    "a size that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + HIDDEN,
    "a null in a header": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
}


@pytest.mark.parametrize("what", SMUGGLED)
def test_no_request_hides_behind_another(fort: Fort, what: str) -> None:
    answer = talk(fort.api, SMUGGLED[what], 1.5)
    assert b"\r\n\r\nok" not in answer, f"the hidden request was answered: {answer!r}"
    assert statuses(answer)[:1] in ([], [400]), answer


def test_requests_one_after_the_other_are_no_smuggling(fort: Fort) -> None:
    assert statuses(talk(fort.api, GET + b"\r\n" + GET + b"Connection: close\r\n\r\n")) == [
        200,
        200,
    ]


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_tls_is_not_spoken(fort: Fort, version: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
        except (ValueError, ssl.SSLError):
            pytest.skip(f"this machine's OpenSSL cannot speak {version} either")
    for port in (fort.api.address.port, fort.endpoint()[1]):
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            context.wrap_socket(plain)


def test_the_door_speaks_no_plain_http(fort: Fort) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", fort.api.address.port, timeout=5)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("GET", "/version")
        connection.getresponse()


def test_every_listener_is_of_this_machine_alone(fort: Fort) -> None:
    """Nothing of the cluster listens where others than this machine could come."""
    found = []
    for process in fort.daemons():
        for connection in process.net_connections("inet"):
            if connection.status == "LISTEN":
                found.append((process.name(), connection.laddr))
    assert found
    assert all(
        address.ip in ("127.0.0.1", "::1") or address.ip.startswith(("127.", "10."))
        for _, address in found
    ), found


@pytest.mark.parametrize(
    "path",
    ["/pods", "/containerLogs/default/x/c", "/exec/default/x/c?command=true&output=1", "/healthz"],
)
def test_a_node_talks_to_those_alone_who_may(fort: Fort, path: str, tmp_path: Path) -> None:
    """Neither strangers nor users without the right to nodes, who have a certificate of the cluster's, get
    anything from a node's own endpoint but its health."""
    host, port = fort.endpoint()
    pki = fort.cluster.pki

    def ask(certificate: str) -> int:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.check_hostname = False
        if certificate:
            context.load_cert_chain(certificate, certificate.replace(".crt", ".key"))
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    assert ask("") == (200 if path == "/healthz" else 401)
    user = fort.certificate("jane", tmp_path)
    assert ask(str(user)) == (200 if path == "/healthz" else 403)
    assert ask(str(pki / "kubelet-client.crt")) in (200, 400, 404)
