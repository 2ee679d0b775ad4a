"""kubeconfig files: merging, contexts, credentials, and errors that name file and field."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.kube.connection.config import ConfigError, NoConfiguration, from_pod, load
from hekla.kube.connection.credentials import Plugin, TokenFile

ENVIRONMENT = {"HOME": "/nowhere"}


def write(path: Path, **parts: Any) -> str:
    """A kubeconfig with the given clusters, users and contexts by name."""
    tree: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    for section, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
        if section in parts:
            tree[section] = [{"name": name, inner: value} for name, value in parts[section].items()]
    if "current" in parts:
        tree["current-context"] = parts["current"]
    path.write_text(yaml.safe_dump(tree))
    return str(path)


def simple(
    path: Path, server: str = "http://one:8080", user: dict[str, Any] | None = None, **cluster: Any
) -> str:
    return write(
        path,
        clusters={"c": {"server": server, **cluster}},
        users={"u": user or {}},
        contexts={"x": {"cluster": "c", "user": "u"}},
        current="x",
    )


def test_a_simple_file(tmp_path: Path) -> None:
    path = simple(tmp_path / "config", user={"token": "secret"})
    connection = load(path, environment=ENVIRONMENT)
    assert str(connection.target) == "http://one:8080"
    assert connection.credentials.current() == b"Authorization: Bearer secret\r\n"
    assert (connection.namespace, connection.context, connection.source) == ("default", "x", path)


def test_a_unix_socket(tmp_path: Path) -> None:
    connection = load(
        simple(tmp_path / "config", "unix:///run/hekla/api.sock"), environment=ENVIRONMENT
    )
    assert connection.target.unix == "/run/hekla/api.sock"
    assert connection.target.tls is None


def test_several_files_merge_and_the_first_to_name_something_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "a", users={"u": {"token": "first"}}, current="x")
    second = write(
        tmp_path / "b",
        clusters={"c": {"server": "https://two:6443/base/", "insecure-skip-tls-verify": True}},
        users={"u": {"token": "second"}},
        contexts={
            "x": {"cluster": "c", "user": "u", "namespace": "team"},
            "y": {"cluster": "c", "user": "u"},
        },
        current="y",
    )
    environment = {"KUBECONFIG": f"{first}:/not/there:{second}:{first}"}
    connection = load(environment=environment)
    assert connection.context == "x"
    assert connection.namespace == "team"
    assert connection.credentials.current() == b"Authorization: Bearer first\r\n"
    assert connection.base_path == "/base"
    assert load(context="y", environment=environment).namespace == "default"
    with pytest.raises(ConfigError, match='there is no context "z"; there are: x, y'):
        load(context="z", environment=environment)


def test_the_home_file_is_read_when_nothing_else_is_named(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    simple(tmp_path / ".kube" / "config", "http://home:1")
    assert load(environment={"HOME": str(tmp_path)}).target.host == "home"


def test_master_replaces_the_server_and_nothing_else(tmp_path: Path) -> None:
    path = simple(tmp_path / "config", user={"token": "t"})
    connection = load(path, master="http://elsewhere:1234", environment=ENVIRONMENT)
    assert str(connection.target) == "http://elsewhere:1234"
    assert connection.credentials.current() == b"Authorization: Bearer t\r\n"
    assert str(load(master="elsewhere", environment=ENVIRONMENT).target) == "http://elsewhere:80"


def test_with_no_configuration_at_all() -> None:
    with pytest.raises(
        NoConfiguration,
        match="give --kubeconfig FILE, set KUBECONFIG, or start one with `hekla up`",
    ):
        load(environment=ENVIRONMENT)
    assert load(environment=ENVIRONMENT, default_server="http://localhost:8080").target.port == 8080
    assert load(environment={**ENVIRONMENT, "KUBERNETES_MASTER": "http://m:1"}).target.host == "m"


def test_in_a_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mounted\n")
    (tmp_path / "namespace").write_text("team\n")
    connection = from_pod(
        {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path
    )
    assert str(connection.target) == "https://10.96.0.1:443"
    assert connection.namespace == "team"
    beside = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "HEKLA_MOUNT_VAR_RUN_SECRETS_KUBERNETES_IO_SERVICEACCOUNT": str(tmp_path),
    }
    assert load(environment={**beside, "HOME": str(tmp_path)}).namespace == "team", (
        "a pod without a view of its own says where it is"
    )


async def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("one")
    path = simple(tmp_path / "config", user={"tokenFile": "token"})
    credentials = load(path, environment=ENVIRONMENT).credentials
    assert isinstance(credentials, TokenFile)
    assert credentials.current() is None
    assert await credentials.refresh() == b"Authorization: Bearer one\r\n"
    assert not credentials.rejected()
    (tmp_path / "token").write_text("two")
    assert credentials.rejected()
    assert await credentials.refresh() == b"Authorization: Bearer two\r\n"


def plugin(tmp_path: Path, script: str, **extra: Any) -> Plugin:
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    spec = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", **extra}
    path = simple(
        tmp_path / "config",
        "https://one",
        user={"exec": spec},
        **{"insecure-skip-tls-verify": True},
    )
    credentials = load(path, environment=ENVIRONMENT).credentials
    assert isinstance(credentials, Plugin)
    return credentials


def answer(status: str, version: str = "v1") -> str:
    return f"""echo '{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/{version}","status":{status}}}'"""


async def test_a_plugin_is_run_once_until_its_answer_expires(tmp_path: Path) -> None:
    credentials = plugin(
        tmp_path,
        f'echo x >> {tmp_path}/runs; test -n "$KUBERNETES_EXEC_INFO" || exit 9; '
        + answer('{"token":"\'$WHO\'","expirationTimestamp":"2999-01-01T00:00:00Z"}'),
        env=[{"name": "WHO", "value": "alice"}],
        args=["--flag"],
        provideClusterInfo=True,
    )
    assert credentials.current() is None
    assert await credentials.refresh() == b"Authorization: Bearer alice\r\n"
    assert credentials.current() == b"Authorization: Bearer alice\r\n"
    assert (tmp_path / "runs").read_text() == "x\n"
    assert credentials.cluster == {"server": "https://one", "insecure-skip-tls-verify": True}
    assert credentials.rejected()
    assert credentials.current() is None


async def test_a_plugin_whose_answer_has_expired_is_run_again(tmp_path: Path) -> None:
    credentials = plugin(
        tmp_path, answer('{"token":"old","expirationTimestamp":"2001-01-01T00:00:00Z"}')
    )
    await credentials.refresh()
    assert credentials.current() is None


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "failed with exit code 3"),
        ("echo nonsense", "did not print JSON"),
        ("echo '{}'", "did not print an ExecCredential"),
        (answer('{"token":"t"}', "v1beta1"), "answered in 'client.authentication.k8s.io/v1beta1'"),
        (answer("{}"), "neither a token nor a client certificate"),
        (answer('{"clientCertificateData":"x"}'), "only one of client certificate and key"),
    ],
)
async def test_a_plugin_that_fails(tmp_path: Path, script: str, message: str) -> None:
    from hekla.kube.connection.credentials import CredentialError

    with pytest.raises(CredentialError, match=message) as caught:
        await plugin(tmp_path, script).refresh()
    assert "users[u].user.exec" in str(caught.value)


async def test_a_plugin_that_is_not_installed_shows_the_hint(tmp_path: Path) -> None:
    from hekla.kube.connection.credentials import CredentialError

    spec = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "no-such-program",
        "installHint": "brew install it",
    }
    connection = load(simple(tmp_path / "config", user={"exec": spec}), environment=ENVIRONMENT)
    with pytest.raises(
        CredentialError, match="not an executable that can be found\nbrew install it"
    ):
        await connection.credentials.refresh()


def test_impersonation(tmp_path: Path) -> None:
    user = {"as": "bob", "as-groups": ["a", "b"], "as-user-extra": {"scope": ["x"]}}
    connection = load(simple(tmp_path / "config", user=user), environment=ENVIRONMENT)
    assert connection.headers == (
        b"Impersonate-User: bob\r\nImpersonate-Group: a\r\nImpersonate-Group: b\r\nImpersonate-Extra-scope: x\r\n"
    )


def test_proxies(tmp_path: Path) -> None:
    path = simple(tmp_path / "config", "https://one", **{"proxy-url": "http://proxy:3128"})
    proxy = load(path, environment=ENVIRONMENT).target.proxy
    assert proxy is not None and (proxy.host, proxy.port) == ("proxy", 3128)
    plain = simple(tmp_path / "config", "https://one")
    through = load(
        plain, environment={**ENVIRONMENT, "HTTPS_PROXY": "http://env:8080"}
    ).target.proxy
    assert through is not None and through.host == "env"
    with pytest.raises(
        ConfigError, match=r"clusters\[c\].cluster.proxy-url: .*'socks5' are not supported"
    ):
        load(
            simple(tmp_path / "config", "https://one", **{"proxy-url": "socks5://p"}),
            environment=ENVIRONMENT,
        )


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("server", "cluster", "user", "message"),
    [
        (
            "ftp://x",
            {},
            {},
            r"clusters\[c\].cluster.server: 'ftp://x': expected https://, http:// or unix:///path",
        ),
        (
            "http://x:99999",
            {},
            {},
            r"clusters\[c\].cluster.server: 'http://x:99999': the port is not a number",
        ),
        ("unix://relative", {}, {}, r"a socket is given as unix:///absolute/path"),
        ("", {}, {}, r"clusters\[c\].cluster.server: missing"),
        (7, {}, {}, r"clusters\[c\].cluster.server: expected text, found 7"),
        (
            "https://x",
            {"certificate-authority-data": "***"},
            {},
            r"cluster.certificate-authority-data: not base64 of PEM text",
        ),
        (
            "https://x",
            {"insecure-skip-tls-verify": "yes"},
            {},
            r"insecure-skip-tls-verify: expected true or false, found 'yes'",
        ),
        (
            "https://x",
            {"insecure-skip-tls-verify": True, "certificate-authority": "ca"},
            {},
            r"insecure-skip-tls-verify exclude each other",
        ),
        (
            "https://x",
            {},
            {"client-certificate-data": encoded("x")},
            r"users\[u\].user.client-key: missing",
        ),
        ("https://x", {}, {"token": "two words"}, r"users\[u\].user.token: a token has no blanks"),
        (
            "https://x",
            {},
            {"auth-provider": {"name": "gcp"}},
            r"users\[u\].user.auth-provider: .* use an exec plugin",
        ),
        (
            "https://x",
            {},
            {"exec": {"apiVersion": "v0", "command": "x"}},
            r"user.exec.apiVersion: 'v0': expected client.auth",
        ),
        (
            "https://x",
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}},
            r"user.exec.command: missing",
        ),
        ("https://x", {}, {"as-groups": ["a"]}, r"users\[u\].user.as: missing"),
    ],
)
def test_errors_name_file_and_field(
    tmp_path: Path, server: Any, cluster: Any, user: Any, message: str
) -> None:
    path = simple(tmp_path / "config", server, user, **cluster)
    with pytest.raises(ConfigError, match=message) as caught:
        load(path, environment=ENVIRONMENT)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{unclosed: [", r"config:\d: not YAML"),
        ("just text", r"a kubeconfig is a map, this is str"),
        ("kind: Pod", r"kind: expected Config, found 'Pod'"),
        ("clusters: {}", None),
        ("clusters: text", r"clusters: expected a list, found str"),
        ("clusters: [{cluster: {}}]", r"clusters\[0\].name: missing"),
        ("users: [{name: u, user: text}]", r"users\[u\].user: expected a map, found 'text'"),
        ("current-context: gone", r'current-context "gone" is not among the contexts'),
        (
            "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x",
            r'contexts\[x\].context.cluster: there is no cluster "c"',
        ),
        ("", None),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str, message: str | None) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message or "names a cluster with a server") as caught:
        load(str(path), environment=ENVIRONMENT)
    assert str(path) in str(caught.value)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone: no such kubeconfig file"):
        load(str(tmp_path / "gone"), environment=ENVIRONMENT)
