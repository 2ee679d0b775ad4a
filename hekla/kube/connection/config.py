"""Finding the API server: kubeconfig files, the pod's own mounted credentials, and what the two
say.

The rules are kubectl's: an explicit file is read alone; otherwise the files of KUBECONFIG are
merged (the first one to name a cluster, user, context or the current context wins), otherwise
~/.kube/config; and only where none of these names a server is the in-cluster configuration tried.
`server: unix:///path` is ours: a Unix socket of this machine.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hekla.kube.connection.credentials import (
    EXEC_VERSIONS,
    Credentials,
    Fixed,
    Plugin,
    TokenFile,
    basic,
    bearer,
)
from hekla.kube.connection.tls import Pem, TlsSource
from hekla.kube.http.client import Target
from hekla.kube.http.proxy import Proxy, from_environment

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MOUNTED = "HEKLA_MOUNT_VAR_RUN_SECRETS_KUBERNETES_IO_SERVICEACCOUNT"
"""Names the directory on a local cluster whose pods have no view of the files of their own."""
DEFAULT_SERVER = "http://localhost:8080"


class ConfigError(Exception):
    """The configuration cannot be used; the message names file and field."""


class NoConfiguration(ConfigError):
    """There is no configuration: no file, no environment variable, no pod."""


@dataclass(frozen=True, slots=True)
class Connection:
    """All that a client needs to reach one API server as one user."""

    target: Target
    credentials: Credentials = field(default_factory=Fixed)
    headers: bytes = b""
    """Headers of every request (impersonation)."""
    base_path: str = ""
    """The path before /api and /apis in the server's URL."""
    namespace: str = "default"
    context: str = ""
    source: str = ""
    """Where the configuration comes from, for messages."""
    tls: TlsSource | None = None
    """What its TLS contexts are made of; None for plain HTTP and sockets."""

    def beside(self, host: str, port: int, authority: str, name: str) -> Connection:
        """As the same user to another server of the cluster, whose certificate (PEM) is known
        otherwise and is for `name`."""
        tls = replace(
            self.tls or TlsSource(),
            authority=Pem(name, text=authority),
            insecure=False,
            _context=None,
        )
        return replace(
            self,
            target=Target(host=host, port=port, tls=tls.context, server_name=name),
            headers=b"",
            base_path="",
            source=name,
            tls=tls,
        )


def load(
    path: str | None = None,
    context: str | None = None,
    *,
    master: str = "",
    default_server: str = "",
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """The connection for `--kubeconfig path`, `--context context` and `--master master`, which are
    all optional.

    `default_server` is used if nothing names a server (the command line's http://localhost:8080);
    without it NoConfiguration is raised.  Raises ConfigError.
    """
    config = _merged(path, environment)
    name = context or config.current_context
    if context and context not in config.contexts:
        raise ConfigError(
            f'{config.source}: there is no context "{context}"{_known(config.contexts)}'
        )
    if name and name not in config.contexts and not master:
        where = config.where_current or config.source
        raise ConfigError(
            f'{where}: current-context "{name}" is not among the contexts{_known(config.contexts)}'
        )
    chosen = config.contexts.get(name) or _Entry({}, config.source, Path.cwd())
    cluster_name, user_name = (
        str(chosen.value.get("cluster") or ""),
        str(chosen.value.get("user") or ""),
    )
    cluster = _referenced(config.clusters, cluster_name, chosen, "cluster")
    user = _referenced(config.users, user_name, chosen, "user")
    if master:
        cluster = _Entry({**cluster.value, "server": master}, "--master", cluster.directory)
    if not cluster.value.get("server"):
        if cluster_name and cluster_name in config.clusters:
            raise ConfigError(f"{cluster.where}.server: missing")
        if not path and in_cluster(environment):
            return from_pod(environment)
        server = environment.get("KUBERNETES_MASTER") or default_server
        if not server:
            raise NoConfiguration(_nothing_found(path, environment))
        cluster = _Entry(
            {"server": server},
            "KUBERNETES_MASTER" if server != default_server else "default",
            Path.cwd(),
        )
    return replace(
        _connection(cluster, user, environment),
        namespace=str(chosen.value.get("namespace") or "default"),
        context=name,
        source=config.source if config.found else cluster.where,
    )


def in_cluster(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a pod with a service account."""
    directory = Path(environment.get(MOUNTED) or SERVICE_ACCOUNT)
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and (directory / "token").exists()


def from_pod(
    environment: Mapping[str, str] = os.environ, directory: Path | None = None
) -> Connection:
    """The connection of a process in a pod: the service's address, and the mounted token and
    certificate authority."""
    directory = directory or Path(environment.get(MOUNTED) or SERVICE_ACCOUNT)
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
    if not host:
        raise NoConfiguration("not in a cluster: KUBERNETES_SERVICE_HOST is not set")
    if not port.isdigit():
        raise ConfigError(f"KUBERNETES_SERVICE_PORT={port!r} is not a port")
    authority = directory / "ca.crt"
    tls = TlsSource(authority=Pem(str(authority), path=authority) if authority.exists() else None)
    namespace = directory / "namespace"
    return Connection(
        target=Target(host=host, port=int(port), tls=tls.context),
        credentials=TokenFile(directory / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        source=f"in-cluster ({directory})",
        tls=tls,
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named cluster, user or context, and its place in the files."""

    value: dict[str, Any]
    where: str
    directory: Path

    def text(self, name: str) -> str:
        value = self.value.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}.{name}: expected text, found {value!r}")
        return value

    def flag(self, name: str) -> bool:
        value = self.value.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}.{name}: expected true or false, found {value!r}")
        return value

    def pem(self, name: str) -> Pem | None:
        """`<name>-data` (base64), else the file `<name>`, which is relative to the kubeconfig's
        directory."""
        if data := self.text(f"{name}-data"):
            where = f"{self.where}.{name}-data"
            try:
                return Pem(where, text=base64.b64decode(data, validate=True).decode())
            except (binascii.Error, ValueError):
                raise ConfigError(f"{where}: not base64 of PEM text") from None
        if path := self.text(name):
            return Pem(f"{self.where}.{name}", path=self.directory / path)
        return None


@dataclass(slots=True)
class _Merged:
    clusters: dict[str, _Entry] = field(default_factory=dict)
    users: dict[str, _Entry] = field(default_factory=dict)
    contexts: dict[str, _Entry] = field(default_factory=dict)
    current_context: str = ""
    where_current: str = ""
    source: str = "kubeconfig"
    found: bool = False
    """Whether any file exists."""


def _merged(path: str | None, environment: Mapping[str, str]) -> _Merged:
    merged = _Merged()
    if path:
        files = [Path(path)]
        if not files[0].exists():
            raise ConfigError(f"{path}: no such kubeconfig file")
    elif environment.get("KUBECONFIG"):
        files = [Path(part) for part in environment["KUBECONFIG"].split(os.pathsep) if part]
    else:
        home = environment.get("HOME") or str(Path.home())
        files = [Path(home) / ".kube" / "config"]
    present = list(dict.fromkeys(file for file in files if file.exists()))
    if present:
        merged.source = ", ".join(map(str, present))
        merged.found = True
    for file in present:
        _merge_file(merged, file)
    return merged


def _merge_file(merged: _Merged, file: Path) -> None:
    tree = _read(file)
    for section, target, inner in (
        ("clusters", merged.clusters, "cluster"),
        ("users", merged.users, "user"),
        ("contexts", merged.contexts, "context"),
    ):
        entries = tree.get(section) or []
        if not isinstance(entries, list):
            raise ConfigError(f"{file}: {section}: expected a list, found {type(entries).__name__}")
        for index, entry in enumerate(entries):
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or not name:
                raise ConfigError(f"{file}: {section}[{index}].name: missing")
            value = entry.get(inner) or {}
            where = f"{file}: {section}[{name}].{inner}"
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: expected a map, found {value!r}")
            target.setdefault(name, _Entry(value, where, file.parent))
    current = tree.get("current-context")
    if current and not merged.current_context:
        merged.current_context = str(current)
        merged.where_current = str(file)


def _read(file: Path) -> dict[str, Any]:
    import yaml  # 20 ms to import, wanted only here

    from hekla.api.text import yamltext

    try:
        tree = yamltext.load(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not a text file") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(
            f"{file}{line}: not YAML: {getattr(error, 'problem', None) or error}"
        ) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{file}: a kubeconfig is a map, this is {type(tree).__name__}")
    if tree.get("kind") not in (None, "", "Config"):
        raise ConfigError(f"{file}: kind: expected Config, found {tree['kind']!r}")
    return tree


def _referenced(entries: dict[str, _Entry], name: str, context: _Entry, what: str) -> _Entry:
    if not name:
        return _Entry({}, f"{context.where}.{what}", context.directory)
    if name not in entries:
        raise ConfigError(f'{context.where}.{what}: there is no {what} "{name}"{_known(entries)}')
    return entries[name]


def _known(entries: Mapping[str, object]) -> str:
    return f"; there are: {', '.join(sorted(entries))}" if entries else ""


def _nothing_found(path: str | None, environment: Mapping[str, str]) -> str:
    if path:
        return f"{path}: no current context names a cluster with a server"
    if files := environment.get("KUBECONFIG"):
        return f"KUBECONFIG={files}: no file there names a cluster; start one with `hekla up`, or give --kubeconfig FILE"
    return "no cluster is configured: give --kubeconfig FILE, set KUBECONFIG, or start one with `hekla up`"


def _connection(cluster: _Entry, user: _Entry, environment: Mapping[str, str]) -> Connection:
    server = cluster.text("server")
    where = (
        cluster.where
        if cluster.where in ("--master", "KUBERNETES_MASTER", "default")
        else f"{cluster.where}.server"
    )
    credentials = _credentials(user, cluster)
    headers = _impersonation(user)
    if server.startswith("unix:"):
        socket = server.removeprefix("unix:").removeprefix("//")
        if not socket.startswith("/"):
            raise ConfigError(f"{where}: {server!r}: a socket is given as unix:///absolute/path")
        return Connection(Target(unix=socket), credentials, headers)
    parts = urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"{where}: {server!r}: expected https://, http:// or unix:///path")
    secure = parts.scheme == "https"
    try:
        port = parts.port or (443 if secure else 80)
    except ValueError:
        raise ConfigError(
            f"{where}: {server!r}: the port is not a number from 0 to 65535"
        ) from None
    host = parts.hostname
    if not host:
        raise ConfigError(f"{where}: {server!r} names no host")
    tls = _tls(cluster, user, credentials) if secure else None
    target = Target(
        host=host,
        port=port,
        tls=tls.context if tls else None,
        server_name=cluster.text("tls-server-name"),
        proxy=_proxy(cluster, host, port, secure, environment),
    )
    return Connection(target, credentials, headers, parts.path.rstrip("/"), tls=tls)


def _proxy(
    cluster: _Entry, host: str, port: int, secure: bool, environment: Mapping[str, str]
) -> Proxy | None:
    url = cluster.text("proxy-url")
    where = f"{cluster.where}.proxy-url" if url else "the environment's proxy"
    try:
        return Proxy.parse(url) if url else from_environment(host, port, secure, environment)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _tls(cluster: _Entry, user: _Entry, credentials: Credentials) -> TlsSource:
    authority = cluster.pem("certificate-authority")
    insecure = cluster.flag("insecure-skip-tls-verify")
    if insecure and authority:
        raise ConfigError(
            f"{authority.where}: a certificate authority and insecure-skip-tls-verify exclude each other"
        )
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise ConfigError(
            f"{user.where}.{missing}: missing; a client certificate and its key are given together"
        )
    given = (lambda: credentials.certificate) if isinstance(credentials, Plugin) else None
    return TlsSource(authority, certificate, key, insecure, given)


def _credentials(user: _Entry, cluster: _Entry) -> Credentials:
    if token := user.text("token"):
        if not token.isprintable() or " " in token:
            raise ConfigError(f"{user.where}.token: a token has no blanks or control characters")
        return Fixed(bearer(token))
    if path := user.text("tokenFile"):
        return TokenFile(user.directory / path)
    if username := user.text("username"):
        return Fixed(basic(username, user.text("password")))
    if plugin := user.value.get("exec"):
        return _plugin(plugin, user, cluster)
    if user.value.get("auth-provider"):
        raise ConfigError(
            f"{user.where}.auth-provider: Kubernetes clients no longer have these; use an exec plugin"
        )
    return Fixed()


def _plugin(spec: Any, user: _Entry, cluster: _Entry) -> Plugin:
    where = f"{user.where}.exec"
    if not isinstance(spec, dict):
        raise ConfigError(f"{where}: expected a map, found {spec!r}")
    entry = _Entry(spec, where, user.directory)
    version, command = entry.text("apiVersion"), entry.text("command")
    if version not in EXEC_VERSIONS:
        raise ConfigError(f"{where}.apiVersion: {version!r}: expected {' or '.join(EXEC_VERSIONS)}")
    if not command:
        raise ConfigError(f"{where}.command: missing")
    if entry.text("interactiveMode") == "Always":
        raise ConfigError(
            f"{where}.interactiveMode: Always: plugins that need a terminal are not supported"
        )
    if os.sep in command:
        # Relative to the file, as its other paths are; bare names are looked up in PATH.
        command = str(user.directory / command)
    try:
        env = {str(pair["name"]): str(pair["value"]) for pair in spec.get("env") or ()}
    except (TypeError, KeyError):
        raise ConfigError(f"{where}.env: expected a list of name and value") from None
    info: dict[str, Any] | None = None
    if entry.flag("provideClusterInfo"):
        names = (
            "server",
            "tls-server-name",
            "insecure-skip-tls-verify",
            "certificate-authority-data",
            "proxy-url",
        )
        info = {name: cluster.value[name] for name in names if name in cluster.value}
        authority = cluster.pem("certificate-authority")
        if authority is not None and authority.path is not None:
            info["certificate-authority-data"] = base64.b64encode(
                authority.read().encode()
            ).decode()
        for extension in cluster.value.get("extensions") or ():
            if extension.get("name") == "client.authentication.k8s.io/exec":
                info["config"] = extension.get("extension")
    args = [str(argument) for argument in spec.get("args") or ()]
    return Plugin(where, version, command, args, env, entry.text("installHint"), info)


def _impersonation(user: _Entry) -> bytes:
    lines: list[tuple[str, str]] = []
    if name := user.text("as"):
        lines.append(("Impersonate-User", name))
    if uid := user.text("as-uid"):
        lines.append(("Impersonate-Uid", uid))
    lines.extend(("Impersonate-Group", str(group)) for group in user.value.get("as-groups") or ())
    for key, values in (user.value.get("as-user-extra") or {}).items():
        lines.extend((f"Impersonate-Extra-{key}", str(value)) for value in values)
    if lines and not name:
        raise ConfigError(
            f"{user.where}.as: missing; groups, uid and extra are impersonated only with a user"
        )
    return "".join(f"{key}: {value}\r\n" for key, value in lines).encode()
