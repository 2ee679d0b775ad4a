"""Requests for certificates: who signs which, and that a certificate opens the door it was asked
for."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.local.controller_manager.signing import (
    CERTIFICATE_REQUESTS,
    CLIENT,
    NODE_CLIENT,
    NODE_SERVING,
)
from tests.apiserver_process import ApiServerProcess
from tests.controller_manager.live import controllers, eventually

PAGE = Path(__file__).parents[2] / "docs/local-cluster.md"
KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with ApiServerProcess.started(tmp_path_factory.mktemp("signing")) as started:
        files = (
            f"--cluster-signing-cert-file={started.pki / 'ca.crt'}",
            f"--cluster-signing-key-file={started.pki / 'ca.key'}",
        )
        with controllers(started, *files):
            yield started


def pem(name: str, group: str = "", *hosts: str) -> bytes:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group:
        subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False
        )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request(name: str, signer: str, usages: list[str], text: bytes, **more: Any) -> Json:
    spec = {
        "request": base64.b64encode(text).decode(),
        "signerName": signer,
        "usages": usages,
        **more,
    }
    return {"metadata": {"name": name}, "spec": spec}


async def approve(client: Client, name: str, kind: str = "Approved") -> None:
    asked = await client.get(CERTIFICATE_REQUESTS, name)
    condition = {"type": kind, "status": "True", "reason": "Test", "message": "seen"}
    await client.update(
        CERTIFICATE_REQUESTS,
        {**asked, "status": {"conditions": [condition]}},
        subresource="approval",
    )


async def certificate(client: Client, name: str) -> x509.Certificate:
    async def issued() -> Any:
        return (await client.get(CERTIFICATE_REQUESTS, name)).get("status", {}).get("certificate")

    return x509.load_pem_x509_certificate(base64.b64decode(await eventually(issued)))


async def condition(client: Client, name: str, kind: str) -> Json:
    async def told() -> Any:
        found = (await client.get(CERTIFICATE_REQUESTS, name)).get("status", {}).get(
            "conditions"
        ) or ()
        return next((each for each in found if each["type"] == kind), None)

    found: Json = await eventually(told)
    return found


async def test_an_approved_request_is_signed(client: Client, server: ApiServerProcess) -> None:
    asked = request(
        "jane",
        CLIENT,
        ["client auth", "digital signature"],
        pem("jane", "team"),
        expirationSeconds=3600,
    )
    await client.create(CERTIFICATE_REQUESTS, asked)
    await approve(client, "jane")

    made = await certificate(client, "jane")

    authority = x509.load_pem_x509_certificate((server.pki / "ca.crt").read_bytes())
    made.verify_directly_issued_by(authority)
    assert made.subject.rfc4514_string() == "CN=jane,O=team"
    assert made.public_key() == KEY.public_key()
    assert (
        3600 <= (made.not_valid_after_utc - made.not_valid_before_utc).total_seconds() <= 3600 * 1.2
    )
    purposes = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]


async def test_what_is_denied_or_for_another_signer_stays_unsigned(client: Client) -> None:
    await client.create(
        CERTIFICATE_REQUESTS, request("denied", CLIENT, ["client auth"], pem("joe"))
    )
    await client.create(
        CERTIFICATE_REQUESTS, request("other", "example.com/signer", ["client auth"], pem("joe"))
    )
    await approve(client, "denied", "Denied")
    await approve(client, "other")
    await client.create(CERTIFICATE_REQUESTS, request("after", CLIENT, ["client auth"], pem("joe")))
    await approve(client, "after")
    await certificate(client, "after")
    for name in ("denied", "other"):
        assert "certificate" not in (await client.get(CERTIFICATE_REQUESTS, name))["status"]


@pytest.mark.parametrize(
    ("signer", "usages", "text", "why"),
    [
        (CLIENT, ["server auth"], pem("joe"), "invalid usages"),
        (
            NODE_SERVING,
            ["server auth", "digital signature"],
            pem("joe", "system:nodes", "h"),
            "common name",
        ),
        (
            NODE_SERVING,
            ["server auth", "digital signature"],
            pem("system:node:a", "other", "h"),
            "organization",
        ),
        (
            NODE_SERVING,
            ["server auth", "digital signature"],
            pem("system:node:a", "system:nodes"),
            "subjectAltName is required",
        ),
        (
            NODE_SERVING,
            ["client auth", "digital signature"],
            pem("system:node:a", "system:nodes", "h"),
            "usages did not match",
        ),
    ],
)
async def test_a_signer_says_why_it_does_not_sign(
    client: Client, signer: str, usages: list[str], text: bytes, why: str
) -> None:
    made = await client.create(
        CERTIFICATE_REQUESTS,
        {**request("", signer, usages, text), "metadata": {"generateName": "wrong-"}},
    )
    name = made["metadata"]["name"]
    await approve(client, name)
    failed = await condition(client, name, "Failed")
    assert failed["reason"] == "SignerValidationFailure"
    assert why in failed["message"]


async def test_a_node_gets_its_client_certificate_by_itself(client: Client) -> None:
    usages = ["client auth", "digital signature", "key encipherment"]
    await client.create(
        CERTIFICATE_REQUESTS,
        request("node-a", NODE_CLIENT, usages, pem("system:node:a", "system:nodes")),
    )
    approved = await condition(client, "node-a", "Approved")
    assert approved["reason"] == "AutoApproved"
    assert (
        await certificate(client, "node-a")
    ).subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"


async def test_a_served_name_is_in_the_certificate(client: Client) -> None:
    text = pem("system:node:b", "system:nodes", "b.example.com")
    await client.create(
        CERTIFICATE_REQUESTS,
        request("node-b", NODE_SERVING, ["server auth", "digital signature"], text),
    )
    await approve(client, "node-b")
    names = (
        (await certificate(client, "node-b"))
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert names.get_values_for_type(x509.DNSName) == ["b.example.com"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
async def test_kubectl_approves_and_the_certificate_opens_the_door(
    client: Client, server: ApiServerProcess, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    shutil.copy(server.kubeconfig, config)

    def kubectl(*arguments: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}
        done = subprocess.run(
            ["kubectl", *arguments], capture_output=True, text=True, timeout=60, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = yaml.safe_load(
        re.search(
            r"```yaml\n(.*?)```",
            PAGE.read_text().partition("## Certificates on request")[2],
            re.DOTALL,
        )[1]
    )
    shown["spec"]["request"] = base64.b64encode(pem("mary", "writers")).decode()
    (tmp_path / "mary.yaml").write_text(yaml.safe_dump(shown))
    kubectl("apply", "-f", str(tmp_path / "mary.yaml"))
    assert "Pending" in kubectl("get", "csr", "mary")
    kubectl("certificate", "approve", "mary")
    made = await certificate(client, "mary")
    assert "Approved,Issued" in kubectl("get", "csr", "mary")
    (tmp_path / "mary.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "mary.key").write_bytes(key)
    files = (
        f"--client-certificate={tmp_path / 'mary.crt'}",
        f"--client-key={tmp_path / 'mary.key'}",
    )
    kubectl("config", "set-credentials", "mary", *files)
    told = kubectl("--user=mary", "auth", "whoami", "-o", "json")
    assert '"mary"' in told
    assert '"writers"' in told
