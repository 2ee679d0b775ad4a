"""The webhook server's life beside a real API server: certificates, restarts, resource groups.
Reference: api-and-admission 5."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admission.objects import Tree, job
from tests.admission.process import (
    BATCH,
    REGISTRATIONS,
    admission,
    call,
    install_kinds,
    make_queue,
    wait_for,
)
from tests.apiserver_process import ApiServerProcess

VALIDATING = f"{REGISTRATIONS}/validatingwebhookconfigurations"
MUTATING = f"{REGISTRATIONS}/mutatingwebhookconfigurations"
JOBS = f"{BATCH}/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with ApiServerProcess.started(tmp_path_factory.mktemp("daemon")) as server:
        install_kinds(server)
        make_queue(server, "default")
        yield server


def hook_of(server: ApiServerProcess, path: str) -> Tree:
    status, found = call(server, "GET", path)
    assert status == 200, found
    hook: Tree = found["webhooks"][0]
    return hook


def test_it_registers_under_the_fixed_names_with_an_authority_of_its_own(
    server: ApiServerProcess, tmp_path: Path
):
    with admission(server, tmp_path) as process:
        hook = hook_of(server, f"{VALIDATING}/volcano-admission-service-jobs-validate")

        assert hook["name"] == "validatejob.volcano.sh"
        assert hook["clientConfig"]["url"].endswith("/jobs/validate")
        assert base64.b64decode(hook["clientConfig"]["caBundle"]).startswith(
            b"-----BEGIN CERTIFICATE-----"
        )
        assert call(server, "GET", f"{MUTATING}/volcano-admission-service-pods-mutate")[0] == 404, (
            "it has nothing to do"
        )
        assert process.stop() == 0


def test_after_a_crash_the_next_one_takes_over(server: ApiServerProcess, tmp_path: Path):
    with admission(server, tmp_path) as process:
        process.process.kill()
        process.process.wait()
    status, answer = call(server, "POST", JOBS, job(name="orphan"))
    assert status == 500 and "failed calling webhook" in answer["message"]

    (tmp_path / "second").mkdir()
    with admission(
        server, tmp_path / "second", paths="/jobs/mutate,/jobs/validate,/queues/validate"
    ):
        wait_for(
            "the next one is asked",
            lambda: call(server, "POST", JOBS, job(name="adopted"))[0] == 201,
        )


def test_only_pods_that_could_be_refused_are_asked_about(server: ApiServerProcess, tmp_path: Path):
    def pod(name: str, **marks: str) -> Tree:
        spec = {"schedulerName": "volcano", "containers": [{"name": "c", "image": "busybox"}]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": marks},
            "spec": spec,
        }

    with admission(server, tmp_path) as process:
        assert (
            call(server, "POST", PODS, pod("budgeted", **{"volcano.sh/jdb-min-available": "0"}))[0]
            == 400
        )
        process.stop()

        assert call(server, "POST", PODS, pod("plain"))[0] == 201, "nobody has to answer for it"
        assert (
            call(server, "POST", PODS, pod("budgeted", **{"volcano.sh/jdb-min-available": "2"}))[0]
            == 500
        )


def test_given_certificates_are_shown_and_announced(server: ApiServerProcess, tmp_path: Path):
    import datetime

    from hekla.kube.connection.serving import make

    names = ("tls.crt", "tls.key", "ca.crt")

    def write(announced: bytes = b"") -> bytes:
        pair = make(
            ["127.0.0.1"],
            "authority",
            datetime.datetime.now(datetime.UTC),
            datetime.timedelta(days=1),
        )
        for name, content in zip(
            names, (pair.certificate, pair.key, announced + pair.authority), strict=True
        ):
            (tmp_path / f"{name}.new").write_bytes(content)
        for name in names:
            (tmp_path / f"{name}.new").replace(tmp_path / name)
        return announced + pair.authority

    def announced() -> bytes:
        hook = hook_of(server, f"{VALIDATING}/volcano-admission-service-jobs-validate")
        return base64.b64decode(hook["clientConfig"]["caBundle"])

    first = write()
    flags = [
        f"--{flag}={tmp_path / name}"
        for flag, name in zip(
            ("tls-cert-file", "tls-private-key-file", "ca-cert-file"), names, strict=True
        )
    ]
    with admission(server, tmp_path, *flags):
        assert announced() == first
        assert call(server, "POST", JOBS, job(name="before"))[0] == 201

        second = write(first)
        wait_for("the new authority is announced", lambda: announced() == second)
        wait_for(
            "jobs are admitted on", lambda: call(server, "POST", JOBS, job(name="after"))[0] == 201
        )


def test_copies_leave_each_others_authority_alone(server: ApiServerProcess, tmp_path: Path):
    """Each has a certificate of its own; whichever the service leads to has to be trusted, also
    after the other has looked again."""
    path = f"{VALIDATING}/volcano-admission-service-jobs-validate"

    def announced() -> bytes:
        return base64.b64decode(hook_of(server, path)["clientConfig"]["caBundle"])

    call(server, "DELETE", path)
    service = (
        "--webhook-url=",
        "--webhook-namespace=volcano-system",
        "--webhook-service-name=hooks",
    )
    file = tmp_path / "groups.yaml"
    file.write_text("resourceGroups: []")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    paths = "/jobs/validate,/pods/mutate"  # in this order they are looked at
    with admission(server, tmp_path / "first", *service, f"--admission-conf={file}", paths=paths):
        alone = announced()
        with admission(server, tmp_path / "second", *service, paths="/jobs/validate"):
            both = announced()
            assert both.startswith(alone) and both.count(b"BEGIN CERTIFICATE") == 2
            group = {
                "resourceGroup": "a",
                "object": {"key": "namespace", "value": ["a"]},
                "labels": {"a": "b"},
            }
            file.write_text(json.dumps({"resourceGroups": [group]}))  # for the first to look again
            mutation = f"{MUTATING}/volcano-admission-service-pods-mutate"
            wait_for("the first looks again", lambda: call(server, "GET", mutation)[0] == 200)
            assert announced() == both
            file.write_text("resourceGroups: []")
            wait_for("it withdraws", lambda: call(server, "GET", mutation)[0] == 404)
    call(server, "DELETE", path)


def test_resource_groups_come_and_go_with_their_file(server: ApiServerProcess, tmp_path: Path):
    configuration = tmp_path / "volcano-admission.conf"
    configuration.write_text("# no groups yet\n")
    pods_mutate = f"{MUTATING}/volcano-admission-service-pods-mutate"

    def pod(name: str) -> Tree:
        metadata = {"name": name, "annotations": {"volcano.sh/resource-group": "gpu"}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        }

    with admission(server, tmp_path, f"--admission-conf={configuration}"):
        assert call(server, "GET", pods_mutate)[0] == 404
        configuration.write_text(
            json.dumps(
                {
                    "resourceGroups": [
                        {
                            "resourceGroup": "gpu",
                            "schedulerName": "volcano",
                            "labels": {"kind": "gpu"},
                        }
                    ]
                }
            )
        )
        wait_for(
            "the pods' webhook is registered", lambda: call(server, "GET", pods_mutate)[0] == 200
        )
        status, stored = call(server, "POST", PODS, pod("sorted"))
        assert status == 201, stored
        assert (stored["spec"]["nodeSelector"], stored["spec"]["schedulerName"]) == (
            {"kind": "gpu"},
            "volcano",
        )

        configuration.write_text("resourceGroups: [")
        configuration.write_text("resourceGroups: []\n")
        wait_for(
            "the pods' webhook is withdrawn", lambda: call(server, "GET", pods_mutate)[0] == 404
        )
