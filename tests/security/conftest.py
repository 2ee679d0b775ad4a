"""One cluster as `hekla up` makes it, with its directory and its processes, to be looked at from
outside."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import running
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.conftest import (
    Kubectl,
    Namespace,
    _make_namespace,
    _remove,
    cluster_of_our_own,
    find_kubectl,
    find_real_node,
)
from tests.cluster.objects import shell


class Fort:
    """The cluster, and the few words in which it is attacked."""

    def __init__(self, kubeconfig: Path) -> None:
        self.cluster = Cluster(kubeconfig.parent)
        self.kubeconfig = kubeconfig
        self.api = Api(kubeconfig)
        self.node = find_real_node(self.api)

    def daemons(self) -> list[psutil.Process]:
        """The processes of the cluster itself; what runs in pods is not among them."""
        supervisor = running(self.cluster)
        assert supervisor is not None
        own = psutil.Process(supervisor)
        return [own, *(child for child in own.children(recursive=True) if _is_ours(child))]

    def start(self, ns: Namespace, name: str, script: str, **spec: Any) -> str:
        """Starts a pod and waits until it runs."""
        self.api.create(ns.path("pods"), shell(name, self.node, script, **spec))
        self.api.wait(ns.path("pods", name), lambda pod: pod["status"]["phase"] == "Running")
        return name

    def said(self, ns: Namespace, name: str, script: str, **spec: Any) -> str:
        """What a pod printed, run to its end."""
        self.api.create(ns.path("pods"), shell(name, self.node, script, **spec))
        self.api.wait(
            ns.path("pods", name), lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed")
        )
        return self.api.get(ns.path("pods", name, "log")).text

    def token(self, ns: Namespace, account: str, **spec: Any) -> str:
        answer = self.api.post(ns.path("serviceaccounts", account, "token"), {"spec": spec})
        assert answer.status == 201, answer
        return str(answer.tree["status"]["token"])

    def endpoint(self) -> tuple[str, int]:
        """Where the node's own service listens."""
        status = self.api.get(f"/api/v1/nodes/{self.node}").tree["status"]
        address = next(
            entry["address"] for entry in status["addresses"] if entry["type"] == "InternalIP"
        )
        return address, int(status["daemonEndpoints"]["kubeletEndpoint"]["Port"])

    def certificate(self, user: str, place: Path) -> Path:
        """A certificate of the cluster's for an ordinary user; its key is beside it."""
        pki = self.cluster.pki
        authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
        signer = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        signed = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .sign(signer, hashes.SHA256())
        )
        (place / "user.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        (place / "user.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return place / "user.crt"

    def with_token(self, token: str) -> Api:
        return Api(self.kubeconfig, token=token)

    def allow(self, ns: Namespace, name: str, subject: Tree, *rules: Tree) -> None:
        """Gives somebody a role of its own in the namespace."""
        group = "rbac.authorization.k8s.io"
        self.api.create(
            ns.path(f"{group}/v1/roles"), {"metadata": {"name": name}, "rules": list(rules)}
        )
        self.api.create(
            ns.path(f"{group}/v1/rolebindings"),
            {
                "metadata": {"name": name},
                "subjects": [subject],
                "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            },
        )


def _is_ours(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any(
        word == "hekla" or "hekla/local/kubelet" in word or word.startswith("hekla.")
        for word in words
    )


@pytest.fixture(scope="session")
def fort() -> Iterator[Fort]:
    with cluster_of_our_own(nodes=1) as kubeconfig:
        yield Fort(kubeconfig)


@pytest.fixture(scope="session")
def api(fort: Fort) -> Api:
    return fort.api


@pytest.fixture(scope="session")
def kubectl(fort: Fort, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return find_kubectl(fort.kubeconfig, tmp_path_factory.mktemp("kubectl-cache"))


@pytest.fixture(scope="module")
def mounts(fort: Fort) -> None:
    """Skips where pods have no view of the files of their own: there they are the user who started
    the cluster, no more and no less."""
    without = (
        fort.api.get(f"/api/v1/nodes/{fort.node}")
        .tree["metadata"]
        .get("annotations", {})
        .get("hekla.io/goes-without", "")
    )
    if "private view of the files" in without:
        pytest.skip("this machine gives pods no view of the files of their own")


@pytest.fixture(scope="module")
def ns(api: Api, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    made = _make_namespace(api, request.module.__name__.rpartition("test_")[2].replace("_", "-"))
    yield made
    _remove(api, made.name)


@pytest.fixture(scope="module")
def other(api: Api) -> Iterator[Namespace]:
    """A second namespace, with a secret."""
    made = _make_namespace(api, "other")
    api.create(
        made.path("secrets"), {"metadata": {"name": "treasure"}, "stringData": {"gold": "ounces"}}
    )
    yield made
    _remove(api, made.name)


__all__ = ["Fort", "api", "eventually", "fort", "kubectl", "mounts", "ns", "other"]
