"""One cluster for the whole run: the one that --kubeconfig names, or one of its own that is gone
afterwards."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api
from tests.cluster.checklist import Tally, items_of

FAKE_NODES = 10
_tally = Tally()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kubeconfig", help="the cluster to test; without it one is started for the run"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for number in items_of(item.name):
            item.add_marker(pytest.mark.scenario("local-cluster", number))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/cluster/" in report.nodeid:
        _tally.note(report)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not (_tally.passed or _tally.failed or _tally.skipped):
        return
    terminalreporter.section("conformance checklist")
    for line in _tally.lines():
        terminalreporter.write_line(line)


@contextlib.contextmanager
def cluster_of_our_own(**flags: object) -> Iterator[Path]:
    """The kubeconfig of a cluster made as `hekla up` with these flags makes one; gone afterwards."""
    from hekla.cli.down import stop
    from hekla.cli.up import bring_up
    from hekla.local.cluster.cluster import Cluster

    directory = Path(tempfile.mkdtemp(prefix="hekla-test-"))
    cluster = Cluster(directory / "checklist")
    try:
        bring_up(cluster, flags, 120, lambda *_: None)
        yield cluster.kubeconfig
    finally:
        stop(cluster)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Iterator[Path]:
    given = request.config.getoption("--kubeconfig", None)
    if given:
        yield Path(given)
        return
    with cluster_of_our_own(nodes=1, fake_nodes=FAKE_NODES) as made:
        yield made


@pytest.fixture(scope="session")
def own(request: pytest.FixtureRequest) -> bool:
    """Whether the cluster is of Hekla's making, on this machine."""
    return not request.config.getoption("--kubeconfig", None)


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Api:
    return Api(kubeconfig)


class Namespace:
    """A namespace, and the paths in it."""

    def __init__(self, api: Api, name: str) -> None:
        self.api = api
        self.name = name

    def path(self, resource: str, name: str = "", sub: str = "") -> str:
        """The path of a core resource, or of "group/version/resource"."""
        *group, plural = resource.split("/")
        root = f"/apis/{'/'.join(group)}" if group else "/api/v1"
        return (
            f"{root}/namespaces/{self.name}/{plural}"
            + (f"/{name}" if name else "")
            + (f"/{sub}" if sub else "")
        )

    def __str__(self) -> str:
        return self.name


def _make_namespace(api: Api, prefix: str) -> Namespace:
    made = Namespace(api, f"{prefix}-{uuid.uuid4().hex[:6]}")
    api.create("/api/v1/namespaces", {"metadata": {"name": made.name}})
    api.wait(made.path("serviceaccounts", "default"), lambda _: True)
    return made


@pytest.fixture(scope="module")
def ns(api: Api, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A fresh namespace for the stories of one file; they keep apart by the names that they use."""
    made = _make_namespace(api, request.module.__name__.rpartition("test_")[2].replace("_", "-"))
    yield made
    _remove(api, made.name)


@pytest.fixture
def new_ns(api: Api) -> Iterator[Callable[[], Namespace]]:
    """Makes namespaces for one test alone."""
    made: list[Namespace] = []

    def make() -> Namespace:
        made.append(_make_namespace(api, "own"))
        return made[-1]

    yield make
    for namespace in made:
        _remove(api, namespace.name)


def _remove(api: Api, namespace: str) -> None:
    # Pods first and without grace: a namespace waits for the full grace of its pods.
    api.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture(scope="session")
def real_node(api: Api) -> str:
    return find_real_node(api)


def find_real_node(api: Api) -> str:
    """A node that really runs containers; skips where there is none."""
    for node in api.get("/api/v1/nodes").tree["items"]:
        if node["metadata"].get("annotations", {}).get("kwok.x-k8s.io/node") == "fake" or node[
            "spec"
        ].get("taints"):
            continue
        if any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in node["status"].get("conditions", [])
        ):
            return str(node["metadata"]["name"])
    pytest.skip("no node of this cluster runs containers")


@pytest.fixture(scope="session")
def fake_node(api: Api) -> str:
    """A node whose pods only pretend to run."""
    for node in api.get("/api/v1/nodes").tree["items"]:
        if node["metadata"].get("annotations", {}).get("kwok.x-k8s.io/node") == "fake":
            return str(node["metadata"]["name"])
    pytest.skip("no node of this cluster is a fake one")


class Kubectl:
    """The machine's kubectl, as a user types it."""

    def __init__(self, program: str, kubeconfig: Path, cache: Path) -> None:
        self.program = program
        self.common = [f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    def run(
        self, *arguments: str, stdin: str | None = None, timeout: float = 90.0
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *self.common, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 90.0) -> str:
        """What it printed; fails the test when it fails."""
        done = self.run(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, (
            f"kubectl {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.program, *self.common, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return find_kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl-cache"))


def find_kubectl(kubeconfig: Path, cache: Path) -> Kubectl:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("this machine has no kubectl")
    return Kubectl(program, kubeconfig, cache)


@pytest.fixture(scope="session")
def toys(api: Api) -> Iterator[str]:
    """The path of a custom collection of this run alone; its kind is Toy, in namespace default."""
    group = f"toys{uuid.uuid4().hex[:6]}.example.com"
    spec = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {"type": "string", "default": "red"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": spec, "note": {"type": "string"}},
            }
        },
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"toys.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "toys", "kind": "Toy"},
            "versions": [version],
        },
    }
    path = f"/apis/{group}/v1/namespaces/default/toys"
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    api.wait(path, lambda _: True)
    yield path
    api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/toys.{group}")
