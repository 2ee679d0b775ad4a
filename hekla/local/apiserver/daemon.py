"""`hekla apiserver`: the API server in the foreground."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from hekla.kube import daemon as plumbing
from hekla.kube import notify
from hekla.kube.connection.tls import TlsError, load_files
from hekla.kube.flags import TEXT, WHOLE, Flag
from hekla.local.apiserver.admission import configuration as admissionconfig
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.in_process import Reviewer, reviewers
from hekla.local.apiserver.admission.podsecurity import PodSecurity
from hekla.local.apiserver.aggregation.backend import FrontProxy
from hekla.local.apiserver.auth.authentication import Authenticator
from hekla.local.apiserver.auth.tokens import TokenKeyError, Tokens
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.request.audit import EVERYTHING, Audit, Policy, PolicyError
from hekla.local.apiserver.request.health import KUBERNETES_MINOR
from hekla.local.apiserver.request.kubelet import Kubelets
from hekla.local.apiserver.request.server import ApiServer, Listener
from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage import fulldisk
from hekla.local.apiserver.storage.journal import StorageError
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.store import Store
from hekla.local.machine import certificates, homes
from hekla.local.machine.files import ClusterError, write_atomically

log = logging.getLogger("hekla.apiserver")

FLAGS = (
    Flag(
        "data-dir",
        TEXT,
        "",
        "directory of the database; certificates, keys and kubeconfigs are made there when none are given",
    ),
    Flag("bind-address", TEXT, "127.0.0.1", "address of the HTTPS door"),
    Flag("secure-port", WHOLE, 6443, "port of the HTTPS door; 0: any free one"),
    Flag("unix-socket", TEXT, "", "path of the Unix socket for programs of the same user"),
    Flag("tls-cert-file", TEXT, "", "certificate of the HTTPS door"),
    Flag("tls-private-key-file", TEXT, "", "key of that certificate"),
    Flag("client-ca-file", TEXT, "", "authority of client certificates and of kubelets"),
    Flag("token-auth-file", TEXT, "", 'static tokens, one a line: token,user,uid,"group1,group2"'),
    Flag("service-account-key-file", TEXT, "", "key that signs service account tokens"),
    Flag(
        "audit-log-path",
        TEXT,
        "",
        "file to which requests are logged in Kubernetes' audit format; nothing is logged without it",
    ),
    Flag(
        "audit-policy-file",
        TEXT,
        "",
        "which requests are logged, and how much of them; the metadata of all without it",
    ),
    Flag(
        "admission-control-config-file",
        TEXT,
        "",
        "AdmissionConfiguration: defaults and exemptions of PodSecurity",
    ),
    Flag("kubelet-client-certificate", TEXT, "", "certificate that this server shows to kubelets"),
    Flag("kubelet-client-key", TEXT, "", "key of that certificate"),
    Flag(
        "proxy-client-cert-file",
        TEXT,
        "",
        "certificate that this server shows to servers of aggregated APIs",
    ),
    Flag("proxy-client-key-file", TEXT, "", "key of that certificate"),
    Flag(
        "requestheader-client-ca-file",
        TEXT,
        "",
        "authority of that certificate, which those servers trust",
    ),
    Flag(
        "inside-webhooks",
        TEXT,
        "",
        "URL=module:function: who answers for the webhooks below a URL inside this process",
    ),
)


def main(argv: list[str]) -> int:
    return plumbing.main("apiserver", FLAGS, argv, run, connect=False)


class Files:
    """The certificate files in force: those of the flags, or a set of our own below the data
    directory."""

    def __init__(self, options: plumbing.Options) -> None:
        self.pki = Path(options.data_dir) / "pki"
        given = (
            options.tls_cert_file,
            options.tls_private_key_file,
            options.client_ca_file,
            options.service_account_key_file,
        )
        self.own = not all(given)
        self.serving = Path(options.tls_cert_file or self.pki / "apiserver.crt")
        self.serving_key = Path(options.tls_private_key_file or self.pki / "apiserver.key")
        self.authority = Path(options.client_ca_file or self.pki / "ca.crt")
        self.token_key = Path(options.service_account_key_file or self.pki / "sa.key")
        self.kubelet = Path(options.kubelet_client_certificate or self.pki / "kubelet-client.crt")
        self.kubelet_key = Path(options.kubelet_client_key or self.pki / "kubelet-client.key")
        self.proxy = Path(options.proxy_client_cert_file or self.pki / "front-proxy-client.crt")
        self.proxy_key = Path(options.proxy_client_key_file or self.pki / "front-proxy-client.key")
        self.proxy_authority = Path(
            options.requestheader_client_ca_file or self.pki / "front-proxy-ca.crt"
        )

    def hide(self, directory: Path) -> None:
        """Hide the data and the keys from the pods of this machine."""
        homes.remember(
            [
                directory,
                *(
                    key.absolute()
                    for key in (self.serving_key, self.token_key, self.kubelet_key, self.proxy_key)
                ),
            ]
        )

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_files(context, self.serving, self.serving_key, self.authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.set_alpn_protocols(["http/1.1"])
        return context


async def run(daemon: plumbing.Daemon) -> None:
    options = daemon.options
    if not options.data_dir:
        raise plumbing.DaemonError(
            "--data-dir is wanted: the directory in which the cluster's state lies"
        )
    directory = Path(options.data_dir).absolute()
    try:
        store = Store(directory)
    except StorageError as error:
        raise plumbing.DaemonError(str(error)) from None
    try:
        files = Files(options)
        files.hide(directory)
        if files.own:
            certificates.ensure(files.pki)
        await serve(daemon, store, files)
    except (StorageError, TlsError, TokenKeyError, ClusterError) as error:
        raise plumbing.DaemonError(str(error)) from None
    except Refusal as refusal:  # of what it stores for itself before it serves
        full = f": {fulldisk.FULL_DISK_ADVICE}" if fulldisk.FULL_DISK in str(refusal) else ""
        raise plumbing.DaemonError(f"{directory}{full or f': {refusal}'}") from None
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        if fulldisk.is_full(error, directory):
            raise plumbing.DaemonError(f"{named}{fulldisk.FULL_DISK_ADVICE}") from None
        raise plumbing.DaemonError(f"{named}{error.strerror or error}") from None


async def serve(daemon: plumbing.Daemon, store: Store, files: Files) -> None:
    options = daemon.options
    store.start()
    registry = Registry(store, builtin.kinds())
    tokens = Tokens(files.token_key, registry)
    token_file = Path(options.token_auth_file) if options.token_auth_file else None
    server = ApiServer(
        store, registry, Admission(registry), tokens, Authenticator(tokens, token_file)
    )
    if files.kubelet.exists() and files.kubelet_key.exists():
        server.kubelets = server.connections.kubelets = Kubelets(
            registry, files.kubelet, files.kubelet_key, files.authority
        )
    if files.proxy.exists() and files.proxy_key.exists():
        server.aggregator.proxy = FrontProxy(files.proxy, files.proxy_key)
    if options.inside_webhooks:
        server.webhooks.in_process = reviewers_of(options, registry)
    if options.admission_control_config_file:
        server.admission.pod_security = configured(options, registry)
    if options.audit_log_path:
        server.audit = open_audit(options)
    for name in store.unclaimed():
        log.warning("%s are stored, but nothing serves them", name)
    listeners: list[Listener] = []
    try:
        await server.start()
        port = await open_listeners(server, options, files, listeners)
        await server.bootstrap.advertise(
            "127.0.0.1" if options.bind_address in ("0.0.0.0", "") else options.bind_address, port
        )
        await server.bootstrap.tell_extension_servers(
            text_of(files.authority), text_of(files.proxy_authority)
        )
        if files.own:
            write_kubeconfigs(
                Path(options.data_dir).absolute(), files.pki, port, options.unix_socket
            )
        server.ready = True
        notify.ready()
        gc.collect()
        gc.freeze()
        log.info(
            "serving on https://%s:%d%s",
            options.bind_address,
            port,
            f" and {options.unix_socket}" if options.unix_socket else "",
        )
        await store.journal.lost()
    finally:
        server.stop()
        await asyncio.gather(*(listener.close() for listener in listeners))
        await store.close()


def text_of(file: Path) -> str:
    """What a file says; nothing where it is absent."""
    return file.read_text() if file.exists() else ""


def reviewers_of(options: plumbing.Options, registry: Registry) -> dict[str, Reviewer]:
    try:
        return reviewers(registry, options.inside_webhooks, int(KUBERNETES_MINOR))
    except ValueError as error:
        raise plumbing.DaemonError(f"--inside-webhooks: {error}") from None


def configured(options: plumbing.Options, registry: Registry) -> PodSecurity:
    path = options.admission_control_config_file
    try:
        return PodSecurity(registry, admissionconfig.read(Path(path)))
    except admissionconfig.ConfigurationError as error:
        raise plumbing.DaemonError(f"--admission-control-config-file: {error}") from None
    except OSError as error:
        raise plumbing.DaemonError(
            f"--admission-control-config-file {error.filename}: {error.strerror}"
        ) from None


def open_audit(options: plumbing.Options) -> Audit:
    policy = EVERYTHING
    if options.audit_policy_file:
        try:
            policy = Policy.read(Path(options.audit_policy_file))
        except (PolicyError, OSError) as error:
            raise plumbing.DaemonError(
                f"--audit-policy-file {options.audit_policy_file}: {error}"
            ) from None
    try:
        return Audit(Path(options.audit_log_path), policy)
    except OSError as error:
        raise plumbing.DaemonError(
            f"--audit-log-path {options.audit_log_path}: {error.strerror}"
        ) from None


async def open_listeners(
    server: ApiServer, options: plumbing.Options, files: Files, listeners: list[Listener]
) -> int:
    """Listens; gives the HTTPS port."""
    address = f"{options.bind_address}:{options.secure_port}"

    async def opened(where: str, listen: Callable[[Listener], object]) -> Listener:
        listener = Listener(server.handle)
        try:
            await listen(listener)  # type: ignore[misc]  # each is a coroutine, of another type
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise plumbing.DaemonError(
                    f"{where} is in use by another program; stop it or choose another"
                ) from None
            raise plumbing.DaemonError(
                f"{where}: {os.strerror(error.errno) if error.errno else error}"
            ) from None
        listeners.append(listener)
        return listener

    try:
        context = files.server_context()
    except TlsError as error:
        raise plumbing.DaemonError(f"--tls-cert-file and its companions: {error}") from None
    secure = await opened(
        f"--bind-address, --secure-port: {address}",
        lambda listener: listener.listen_tcp(options.bind_address, options.secure_port, context),
    )
    if options.unix_socket:
        await opened(
            f"--unix-socket {options.unix_socket}",
            lambda listener: listener.listen_unix(Path(options.unix_socket)),
        )
        # It needs no key, so pods must not see it.  Not before it exists: other daemons that add
        # their own paths drop those that do not.
        homes.remember([Path(options.unix_socket).absolute()])
    return secure.port


def write_kubeconfigs(directory: Path, pki: Path, port: int, socket: str) -> None:
    """For a server that was started alone: the two listeners, as files beside the database."""
    server = f"https://127.0.0.1:{port}"
    write_atomically(directory / "kubeconfig", certificates.kubeconfig(directory.name, server, pki))
    if socket:
        write_atomically(
            directory / "internal.kubeconfig",
            certificates.unix_kubeconfig(directory.name, Path(socket).absolute()),
        )
