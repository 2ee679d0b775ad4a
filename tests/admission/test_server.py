"""The webhook server at its own door: the exchange, certificates, configuration.  Reference:
api-and-admission 5.1, 7.14."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.admission import Settings, StaticLookup
from hekla.admission.certificates import Files, Own, bundle
from hekla.admission.daemon import DEFAULT_PATHS, FLAGS, enabled_admissions, settings_of
from hekla.admission.registration import Where, wanted, webhook
from hekla.admission.registry import ADMISSIONS
from hekla.admission.review import ResourceGroup
from hekla.admission.reviews import answer
from hekla.admission.rules.groups import BadConfiguration, load
from hekla.admission.server import ReviewServer
from hekla.kube import log as logs
from hekla.kube.connection.config import load as load_config
from hekla.kube.connection.serving import CertificateError, context_of, make, show
from hekla.kube.daemon import VERSION_FLAG, Daemon, DaemonError
from hekla.kube.flags import parse
from tests.admission.objects import QUEUES, Tree, job

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAY, MINUTE = datetime.timedelta(days=1), datetime.timedelta(minutes=1)
RESOURCE = {"group": "batch.volcano.sh", "version": "v1alpha1", "resource": "jobs"}


def request(
    operation: str = "CREATE", obj: Tree | None = None, resource: Tree | None = None
) -> bytes:
    asked = {
        "uid": "u-1",
        "operation": operation,
        "object": obj,
        "resource": resource or RESOURCE,
        "name": "train",
        "namespace": "default",
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    ).encode()


def answered(path: str, body: bytes, settings: Settings | None = None) -> Tree:
    content, _, _ = answer(ADMISSIONS[path], body, StaticLookup(QUEUES), settings or Settings())
    tree = json.loads(content)
    assert (tree["apiVersion"], tree["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Tree = tree["response"]
    return response


# -- the exchange ----------------------------------------------------------------------------------


def test_an_allowed_review_echoes_its_uid():
    assert answered("/jobs/validate", request(obj=job())) == {"uid": "u-1", "allowed": True}


def test_a_refusal_carries_only_its_message():
    response = answered("/jobs/validate", request(obj=job(queue="nowhere")))

    assert response["allowed"] is False
    assert response["status"] == {
        "message": 'unable to find job queue: queue.scheduling.volcano.sh "nowhere" not found;',
        "metadata": {},
    }


def test_a_mutator_answers_with_a_patch():
    response = answered(
        "/jobs/mutate", request(obj={"metadata": {"name": "train"}, "spec": {"tasks": []}})
    )

    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"]))[0] == {
        "op": "add",
        "path": "/spec/queue",
        "value": "default",
    }


@pytest.mark.scenario("api-and-admission", 164)
def test_nothing_to_change_is_the_literal_null():
    resource = {"group": "", "version": "v1", "resource": "pods"}
    groups = Settings(resource_groups=(ResourceGroup("g"),))

    assert (
        base64.b64decode(
            answered("/pods/mutate", request(obj={}, resource=resource), groups)["patch"]
        )
        == b"null"
    )
    assert "patch" not in answered("/pods/mutate", request(obj={}, resource=resource))


def test_the_wrong_resource_is_refused():
    response = answered(
        "/jobs/validate", request(obj=job(), resource={**RESOURCE, "resource": "pods"})
    )

    assert (
        response["status"]["message"]
        == "expect resource to be batch.volcano.sh/v1alpha1, Resource=jobs"
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"request": {"uid": 5}}', b"\xff\xfe"])
def test_a_body_that_is_no_review_is_refused(body: bytes):
    assert answered("/jobs/validate", body)["allowed"] is False


def test_a_quantity_that_is_none_is_a_refusal():
    broken = job()
    broken["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1.5.5"}
    }

    assert "quantit" in answered("/jobs/validate", request(obj=broken))["status"]["message"]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = ReviewServer(ADMISSIONS, StaticLookup(QUEUES), Settings())
    await server.listen_tcp("127.0.0.1", 0)
    yield server.port
    await server.close(0.1)


async def post(
    port: int, path: str, body: bytes, kind: str = "application/json"
) -> tuple[int, bytes]:
    import asyncio

    def send() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", path, body, {"Content-Type": kind})
        found = connection.getresponse()
        return found.status, found.read()

    return await asyncio.to_thread(send)


@pytest.mark.scenario("api-and-admission", 229)
async def test_content_types_and_sizes(port: int):
    assert await post(
        port, "/jobs/validate", request(obj=job()), "application/json; charset=utf-8"
    ) == (200, b"")
    assert (await post(port, "/jobs/validate", b" " * (3 * 1024 * 1024 + 1)))[0] == 413
    assert (await post(port, "/nothing", b"{}"))[0] == 404
    assert (await post(port, "/jobs/validate", request(obj=job())))[0] == 200


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.scenario("api-and-admission", 210)
@pytest.mark.scenario("api-and-admission", 211)
def test_paths_are_named_in_a_list():
    assert enabled_admissions("") == []
    assert [admission.path for admission in enabled_admissions(" /jobs/validate, ")] == [
        "/jobs/validate"
    ]
    with pytest.raises(
        DaemonError, match="enabled admission /nope not found on the admission registered map"
    ):
        enabled_admissions("/jobs/validate,/nope")


@pytest.mark.scenario("api-and-admission", 212)
def test_the_flags_have_the_originals_defaults():
    options = parse(
        (*FLAGS, *logs.FLAGS, VERSION_FLAG), ["--master=127.0.0.1", "--kube-api-burst=200"]
    )

    assert (options.kube_api_qps, options.kube_api_burst, options.port) == (50, 200, 8443)
    assert (options.scheduler_name, options.healthz_address, options.enable_healthz) == (
        ["volcano"],
        ":11251",
        False,
    )
    assert (options.graceful_shutdown_time, options.enable_queue_allocated_pods_check) == (
        30,
        False,
    )
    assert (options.max_queue_depth, options.enable_root_queue_protection) == (5, True)
    assert options.enabled_admission == DEFAULT_PATHS
    assert settings_of(options, True) == Settings()


def started(*flags: str) -> Any:
    from hekla.admission.daemon import Service

    options = parse((*FLAGS, *logs.FLAGS, VERSION_FLAG), ["--master=http://127.0.0.1:1", *flags])
    daemon = Daemon("admission", options)
    daemon.connect(1)
    return Service(daemon)


async def test_a_server_that_nobody_can_reach_does_not_start():
    assert load_config(master="http://127.0.0.1:1")
    with pytest.raises(
        DaemonError,
        match="failed to start webhooks as both 'url' and 'namespace/name' of webhook are empty",
    ):
        started()
    with pytest.raises(DaemonError, match="missing: --tls-private-key-file, --ca-cert-file"):
        started("--webhook-url=https://127.0.0.1", "--tls-cert-file=c")
    with pytest.raises(DaemonError, match=r"/gone/ca\.crt: No such file"):
        started(
            "--webhook-url=https://127.0.0.1",
            "--tls-cert-file=/gone/c",
            "--tls-private-key-file=/gone/k",
            "--ca-cert-file=/gone/ca.crt",
        )


# -- registration ----------------------------------------------------------------------------------


def test_a_webhook_says_where_when_and_what():
    hook = webhook(
        ADMISSIONS["/jobs/mutate"], Where(url="https://127.0.0.1:9443/"), b"CA", Settings()
    )

    assert hook["clientConfig"] == {
        "url": "https://127.0.0.1:9443/jobs/mutate",
        "caBundle": base64.b64encode(b"CA").decode(),
    }
    assert (hook["failurePolicy"], hook["matchPolicy"], hook["timeoutSeconds"]) == (
        "Fail",
        "Equivalent",
        10,
    )
    assert (hook["sideEffects"], hook["reinvocationPolicy"]) == ("NoneOnDryRun", "Never")


def test_in_a_cluster_a_service_leads_here():
    hook = webhook(
        ADMISSIONS["/hypernodes/validate"],
        Where(namespace="volcano-system", service="adm"),
        b"CA",
        Settings(),
    )

    assert hook["clientConfig"]["service"] == {
        "namespace": "volcano-system",
        "name": "adm",
        "path": "/hypernodes/validate",
        "port": 443,
    }
    assert "namespaceSelector" not in hook and hook["sideEffects"] == "None"


def test_pods_are_asked_about_only_where_an_answer_can_matter():
    mutate = ADMISSIONS["/pods/mutate"]

    assert not wanted(mutate, Settings())
    assert not wanted(mutate, Settings(resource_groups=()))
    assert wanted(mutate, Settings(resource_groups=(ResourceGroup("g"),)))
    assert wanted(mutate, Settings(resource_groups=(), scheduling_gates=True))
    conditions = webhook(
        ADMISSIONS["/pods/validate"],
        Where(url="https://h"),
        b"",
        Settings(scheduler_names=("a", "b")),
    )["matchConditions"]
    assert (
        conditions[0]["expression"]
        == "has(object.spec.schedulerName) && object.spec.schedulerName in ['a', 'b']"
    )
    assert (
        "'volcano.sh/jdb-min-available' in object.metadata.annotations"
        in conditions[1]["expression"]
    )


# -- certificates ----------------------------------------------------------------------------------


def handshake(server: ssl.SSLContext, authorities: bytes, name: str) -> bool:
    """Whether a client that trusts these authorities accepts what the server shows now."""
    client = ssl.create_default_context(cadata=authorities.decode())
    pipes = [ssl.MemoryBIO() for _ in range(4)]
    ours = client.wrap_bio(pipes[0], pipes[1], server_hostname=name)
    theirs = server.wrap_bio(pipes[2], pipes[3], server_side=True)
    for _ in range(5):
        for side, outgoing, incoming in ((ours, pipes[1], pipes[2]), (theirs, pipes[3], pipes[0])):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
            incoming.write(outgoing.read())
    return True


def test_own_certificates_overlap_when_they_are_renewed():
    now = datetime.datetime.now(datetime.UTC)
    source = Own(["127.0.0.1"], lifetime=8 * MINUTE)
    first = source.first()
    context = context_of(first)

    assert source.renewed(now + MINUTE) is None
    second = source.renewed(now + 4.5 * MINUTE)

    assert second is not None
    announced = bundle(first.authority, second.authority, now)
    assert handshake(context, announced, "127.0.0.1"), (
        "the old certificate is trusted while the new one is announced"
    )
    show(context, second)
    assert handshake(context, announced, "127.0.0.1")
    assert not handshake(context, first.authority, "127.0.0.1")


def test_the_bundle_forgets_what_has_expired():
    old, new = make(["a"], "authority", NOW, DAY), make(["a"], "authority", NOW + 2 * DAY, DAY)

    assert bundle(old.authority, new.authority, NOW + 2 * DAY) == new.authority
    assert bundle(b"not a certificate", new.authority, NOW) == new.authority
    assert bundle(new.authority, new.authority, NOW) == new.authority


def test_certificates_from_files_are_looked_at_again(tmp_path: Path):
    paths = [tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")]

    def write(pair: Any, lengthen: bytes = b"") -> None:
        for path, content in zip(paths, (pair.certificate, pair.key, pair.authority), strict=True):
            path.write_bytes(content + lengthen)

    first, second = make(["a"], "authority", NOW, DAY), make(["a"], "authority", NOW, DAY)
    write(first)
    source = Files(*map(str, paths))
    assert source.first() == first
    assert source.renewed(NOW) is None

    paths[1].write_bytes(second.key + b"\n")
    with pytest.raises(CertificateError):
        source.renewed(NOW)
    write(second, b"\n\n")
    found = source.renewed(NOW)
    assert found is not None and found.certificate.strip() == second.certificate.strip()


# -- resource groups -------------------------------------------------------------------------------


def test_the_configuration_is_read_with_its_quirks(tmp_path: Path):
    file = tmp_path / "volcano-admission.conf"
    file.write_text(
        "resourceGroups:\n- resourceGroup: cpu\n  object:\n    key: annotation\n    value:\n    - 'volcano.sh/resource-group: cpu'\n"
        "    - other: text\n  tolerations:\n  - {key: a, operator: Exists, tolerationSeconds: 4}\n"
    )

    (group,) = load(file)

    assert group.values == ("volcano.sh/resource-group: cpu", "other: text")
    assert group.tolerations == ({"key": "a", "operator": "Exists"},)


def test_an_empty_configuration_has_no_groups(tmp_path: Path):
    file = tmp_path / "conf"
    file.write_text("# all commented out\n")

    assert load(file) == ()


@pytest.mark.parametrize("text", ["- a", "resourceGroups: 5", "resourceGroups: [a]", "a: [", "'"])
def test_a_broken_configuration_says_so(tmp_path: Path, text: str):
    file = tmp_path / "conf"
    file.write_text(text)

    with pytest.raises(BadConfiguration):
        load(file)
