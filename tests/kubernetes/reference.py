"""The reference server: etcd, kube-apiserver and kube-controller-manager as a cluster of their own,
gone when it is closed.

Certificates are Hekla's, as are the nodes (the kubelet's fake ones) and the scheduler of
`default-scheduler`: they are told a kubeconfig and nothing else, so that a cluster of this kind
judges them too.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from hekla.engine.framework.policy import DEFAULT
from hekla.local.machine import certificates
from hekla.local.machine.certificates import Authority, Leaf
from tests.admission.process import PATIENCE, in_force, install_kinds
from tests.deploy import accounts
from tests.kubernetes import programs
from tests.kubernetes.processes import Processes
from tests.ports import free_port

SERVICES = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc.cluster.local"
ADVERTISED = "192.0.2.1"
"""What the Service `kubernetes` leads to: loopback addresses are refused there, and nobody goes
this way."""
NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "default")
START = 180.0
"""Seconds that one server may take to be ready, which is ten of a core's time; one that has ended
is told of at once."""
MANAGER = Leaf("controller-manager", "system:kube-controller-manager")


class Reference:
    """One reference cluster in a directory."""

    def __init__(
        self, directory: Path, built: dict[str, Path], *, durable: bool = False, audit: bool = True
    ) -> None:
        self.directory = directory
        self.durable = durable
        """Whether etcd waits for the disk, as a benchmark has to; tests do not."""
        self.audit = audit
        """Whether it is noted what Hekla's accounts ask for."""
        self.kubeconfig = directory / "kubeconfig"
        self.pki = directory / "pki"
        self.processes = Processes(directory)
        self.audit_log = directory / "audit.log"
        self._built = built
        self._accounts: dict[str, Path] = {}
        self.port = free_port()
        self.etcd = ""
        """The URL of etcd, once it has been started."""

    def start(self, *flags: str, controllers: bool = True) -> None:
        """Starts the servers and returns when they answer.  Raises NotStarted."""
        certificates.ensure(self.pki)
        Authority(self.pki).ensure(MANAGER)
        self._write_public_key()
        self._write_kubeconfig(self.kubeconfig, "admin")
        self._write_kubeconfig(self.directory / "controller-manager.kubeconfig", MANAGER.name)
        self.etcd = self._start_etcd()
        self._start_apiserver(self.etcd, flags)
        if controllers:
            self._start_controllers()

    def _start_etcd(self) -> str:
        store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.processes.start(
            "etcd",
            [
                str(self._built["etcd"]),
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={store}",
                f"--advertise-client-urls={store}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
                "--log-level=warn",
                *(() if self.durable else ("--unsafe-no-fsync",)),
            ],
        )
        return store

    def _start_apiserver(self, store: str, flags: tuple[str, ...]) -> None:
        pki = self.pki
        self.processes.start(
            "kube-apiserver",
            [
                str(self._built["kube-apiserver"]),
                f"--etcd-servers={store}",
                f"--etcd-prefix=/{self.directory.name}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self.port}",
                f"--advertise-address={ADVERTISED}",
                f"--cert-dir={pki}",
                f"--tls-cert-file={pki / 'apiserver.crt'}",
                f"--tls-private-key-file={pki / 'apiserver.key'}",
                f"--client-ca-file={pki / 'ca.crt'}",
                f"--service-cluster-ip-range={SERVICES}",
                "--authorization-mode=Node,RBAC",
                f"--service-account-issuer={ISSUER}",
                f"--service-account-key-file={pki / 'sa.pub'}",
                f"--service-account-signing-key-file={pki / 'sa.key'}",
                f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
                f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
                f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
                f"--kubelet-client-key={pki / 'kubelet-client.key'}",
                f"--kubelet-certificate-authority={pki / 'ca.crt'}",
                "--kubelet-preferred-address-types=InternalIP,Hostname",
                "--allow-privileged=true",
                "--enable-admission-plugins=NodeRestriction",
                *self._audit_flags(),
                *flags,
            ],
        )
        self.processes.wait("kube-apiserver", self._ready, START)

    def _audit_flags(self) -> list[str]:
        """So that what Hekla's accounts may not do is known afterwards; most benchmarks do without."""
        if not self.audit:
            return []
        policy = self.directory / "audit.json"
        policy.write_text(json.dumps(accounts.AUDIT))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _start_controllers(self) -> None:
        pki = self.pki
        own = self.directory / "controller-manager.kubeconfig"
        self.processes.start(
            "kube-controller-manager",
            [
                str(self._built["kube-controller-manager"]),
                f"--kubeconfig={own}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                f"--cert-dir={pki}",
                f"--root-ca-file={pki / 'ca.crt'}",
                f"--service-account-private-key-file={pki / 'sa.key'}",
                "--use-service-account-credentials=true",
                f"--cluster-signing-cert-file={pki / 'ca.crt'}",
                f"--cluster-signing-key-file={pki / 'ca.key'}",
                "--enable-hostpath-provisioner=true",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
        )
        self.processes.wait(
            "kube-controller-manager",
            lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default")[0] == 200,
            START,
        )

    def add_nodes(self, *flags: str) -> None:
        """Starts Hekla's kubelet against the server; the flags say which nodes."""
        root = self.directory / "pods"
        self.processes.start(
            "kubelet",
            [
                sys.executable,
                "-m",
                "hekla",
                "kubelet",
                f"--kubeconfig={self.kubeconfig}",
                f"--root-dir={root}",
                f"--tls-cert-file={self.pki / 'kubelet.crt'}",
                f"--tls-private-key-file={self.pki / 'kubelet.key'}",
                f"--client-ca-file={self.pki / 'ca.crt'}",
                "--stop-pods-on-exit",
                *flags,
            ],
        )

    def add_scheduler(self, *flags: str, elected: bool = False) -> None:
        """Starts Hekla's scheduler as the default one, once the kinds that it is installed with are
        served.

        Its controllers too: they open the queues, without which only pods that ask for nothing are
        placed.  `elected`: both elect leaders, as they do unless told otherwise.  Both have the accounts that the chart would give them.
        """
        install_kinds(self)
        self.start_scheduler(*flags, elected=elected)
        self.processes.start(
            "controllers",
            [
                sys.executable,
                "-m",
                "hekla",
                "controllers",
                f"--kubeconfig={self._account('volcano-controllers', accounts.CONTROLLERS)}",
                f"--leader-elect={str(elected).lower()}",
            ],
        )

    def start_scheduler(self, *flags: str, elected: bool = False) -> None:
        """The scheduler alone, where its kinds are served already."""
        self.processes.start(
            "scheduler",
            [
                sys.executable,
                "-m",
                "hekla",
                "scheduler",
                f"--kubeconfig={self._account('volcano-scheduler', accounts.SCHEDULER)}",
                "--default-scheduler",
                f"--leader-elect={str(elected).lower()}",
                *flags,
            ],
        )

    def add_descheduler(self, policy: Path, *flags: str) -> None:
        """Starts Hekla's descheduler, where its kinds are served already."""
        self.processes.start(
            "descheduler",
            [
                sys.executable,
                "-m",
                "hekla",
                "descheduler",
                f"--kubeconfig={self._account('volcano-descheduler', accounts.DESCHEDULER)}",
                f"--policy-config-file={policy}",
                "--secure-port=0",
                *flags,
            ],
        )

    def add_agent(self, environment: Mapping[str, str], *flags: str) -> None:
        """Starts Hekla's colocation agent of a node that is there; the environment says where the
        node's files are."""
        self.processes.start(
            "agent",
            [
                sys.executable,
                "-m",
                "hekla",
                "agent",
                f"--kubeconfig={self._account('volcano-agent', accounts.AGENT)}",
                "--healthz-address=127.0.0.1",
                *flags,
            ],
            {**os.environ, **environment},
        )

    def add_webhooks(self) -> None:
        """Starts Hekla's webhooks, the rest of what one installs on a cluster that is there;
        returns when the server asks them."""
        own = f"--kubeconfig={self._account('volcano-admission', accounts.ADMISSION)}"
        self._start_webhooks(sys.executable, "-m", "hekla", "admission", own)

    def _start_webhooks(self, *command: str) -> None:
        port = free_port()
        self.processes.start(
            "admission",
            [
                *command,
                f"--port={port}",
                f"--ca-cert-file={self.pki / 'ca.crt'}",
                f"--tls-cert-file={self.pki / 'admission.crt'}",
                f"--tls-private-key-file={self.pki / 'admission.key'}",
                f"--webhook-url=https://127.0.0.1:{port}",
            ],
        )
        self.processes.wait("admission", lambda: in_force(self), PATIENCE)

    def add_volcano(self, programs: Path) -> None:
        """Starts Volcano's scheduler, controllers and webhooks from a directory in the place of
        Hekla's, as the administrator and without limits of their clients, on the same kinds."""
        install_kinds(self)
        own = f"--kubeconfig={self.kubeconfig}"
        unlimited = ("--kube-api-qps=5000", "--kube-api-burst=5000")
        policy = self.directory / "volcano-scheduler.conf"
        policy.write_text(json.dumps(DEFAULT))
        for name, program, *flags in (
            ("scheduler", "vc-scheduler", f"--scheduler-conf={policy}"),
            ("controllers", "vc-controller-manager"),
        ):
            command = [str(programs / program), own, "--leader-elect=false", *unlimited, *flags]
            self.processes.start(name, command)
        self._start_webhooks(str(programs / "vc-webhook-manager"), own, *unlimited)

    def _account(self, name: str, given: accounts.Account) -> Path:
        """The kubeconfig of one of the chart's accounts, which is made when it is first asked for."""
        if name not in self._accounts:
            self._accounts[name] = accounts.grant(self.kubeconfig, name, given)
        return self._accounts[name]

    def get(self, path: str) -> tuple[int, bytes]:
        """One read as the administrator; status 0 where nothing answers."""
        return self.request("GET", path, timeout=5)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 30.0,
    ) -> tuple[int, bytes]:
        """The same with any method."""
        tls = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        tls.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=tls, timeout=timeout
        )
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    def _write_public_key(self) -> None:
        # kube-apiserver reads a public key from a public key's file only.
        key = load_pem_private_key((self.pki / "sa.key").read_bytes(), None)
        self.pki.joinpath("sa.pub").write_bytes(
            key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )

    def _ready(self) -> bool:
        # The server makes these namespaces when it is ready; it does not wait for them.
        return all(
            self.get(path)[0] == 200
            for path in ("/readyz", *(f"/api/v1/namespaces/{name}" for name in NAMESPACES))
        )

    def _write_kubeconfig(self, file: Path, leaf: str) -> None:
        user = {
            "client-certificate": str(self.pki / f"{leaf}.crt"),
            "client-key": str(self.pki / f"{leaf}.key"),
        }
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self.pki / "ca.crt"),
        }
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "reference",
                    "clusters": [{"name": "reference", "cluster": cluster}],
                    "users": [{"name": leaf, "user": user}],
                    "contexts": [
                        {"name": "reference", "context": {"cluster": "reference", "user": leaf}}
                    ],
                },
                indent=1,
            )
        )
        file.chmod(0o600)

    def stop(self) -> None:
        self.processes.stop()


@contextmanager
def reference(
    *flags: str,
    controllers: bool = True,
    durable: bool = False,
    audit: bool | None = None,
    say: programs.Say = lambda _: None,
) -> Iterator[Reference]:
    """A reference cluster for the time of a `with`, or only its API server; audited unless it is
    durable or that is said otherwise.  Raises CannotBuild, NotStarted."""
    built = programs.need(*programs.SERVER, say=say)
    directory = Path(tempfile.mkdtemp(prefix="hekla-reference-"))
    server = Reference(
        directory, built, durable=durable, audit=not durable if audit is None else audit
    )
    try:
        server.start(*flags, controllers=controllers)
        yield server
        lacking = accounts.refused(server.audit_log)
        assert not lacking, (
            f"the accounts of the chart (deploy/chart/rights) may not do what the daemons do: {lacking}"
        )
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
