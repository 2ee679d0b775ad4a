"""Bodies in JSON and YAML: what is read, what is warned of, and the words of every refusal
(local-cluster 2.9)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hekla.local.apiserver.objects.encoding import decode, protobuf
from hekla.local.apiserver.objects.errors import BadBody

POD = decode.reader("", "v1", "Pod")
CONFIG_MAP = decode.reader("", "v1", "ConfigMap")
DEPLOYMENT = decode.reader("apps", "v1", "Deployment")
JSON, YAML = "application/json", "application/yaml"


def refusal(read: decode.Reader, body: Any, validation: str = "Warn", media: str = JSON) -> str:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(BadBody) as caught:
        read(raw, media, validation)
    assert caught.value.code == 400
    return str(caught.value)


def test_kind_and_version_are_inferred_from_the_url() -> None:
    tree = CONFIG_MAP(b'{"metadata":{"name":"a"},"data":{"k":"v"}}', "", "Strict").tree
    assert tree == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"k": "v"},
    }


def test_meaningless_zeros_and_nulls_go_and_meant_ones_stay() -> None:
    spec = {"replicas": 0, "paused": False, "template": {"spec": {"nodeName": ""}}}
    body = {"metadata": {"name": "a", "creationTimestamp": None}, "spec": spec}
    tree = DEPLOYMENT(json.dumps(body).encode(), JSON, "Strict").tree
    assert tree["metadata"] == {"name": "a"}
    assert tree["spec"] == {"replicas": 0, "template": {"spec": {}}}


def test_quantities_become_canonical() -> None:
    limits = {"cpu": "1000m", "memory": "1024Mi", "a.b/c": 2, "d.e/f": "0.5Gi", "g.h/i": 2.5}
    tree = POD(
        json.dumps({"spec": {"containers": [{"resources": {"limits": limits}}]}}).encode(),
        JSON,
        "Strict",
    ).tree
    found = tree["spec"]["containers"][0]["resources"]["limits"]
    assert found == {"cpu": "1", "memory": "1Gi", "a.b/c": "2", "d.e/f": "512Mi", "g.h/i": "2500m"}


def test_times_become_utc_seconds() -> None:
    body = {"status": {"startTime": "2024-01-01T10:00:00.5+02:00"}}
    assert (
        POD(json.dumps(body).encode(), JSON, "Strict").tree["status"]["startTime"]
        == "2024-01-01T08:00:00Z"
    )


def test_unknown_and_duplicate_fields() -> None:
    body = b'{"metadata":{"name":"a"},"foo":1,"data":{"a":"1","a":"2"}}'
    found = CONFIG_MAP(body, JSON, "Warn")
    assert list(found.warnings) == ['unknown field "foo"', 'duplicate field "data.a"']
    assert found.tree["data"] == {"a": "2"} and "foo" not in found.tree
    assert CONFIG_MAP(body, JSON, "Ignore").warnings == ()
    assert refusal(CONFIG_MAP, body, "Strict") == (
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo", duplicate field "data.a"'
    )


def test_an_escaped_duplicate_does_not_hide() -> None:
    body = b'{"data":{"a":"1","\\u0061":"2"},"metadata":{"name":"\\u0022x\\u0022"}}'
    assert list(CONFIG_MAP(body, JSON, "Warn").warnings) == ['duplicate field "data.a"']


@pytest.mark.parametrize(
    ("read", "body", "words"),
    [
        (CONFIG_MAP, {"metadata": {"name": 3}}, "cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"),
        (DEPLOYMENT, {"spec": {"replicas": "3"}},
         "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (DEPLOYMENT, {"spec": {"replicas": 1.5}}, "cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas"),
        (DEPLOYMENT, {"spec": {"replicas": 2**40}}, "of type int32"),
        (POD, {"spec": []}, "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec"),
        (POD, {"spec": {"containers": [{"command": "sh"}]}},
         "cannot unmarshal string into Go struct field Container.spec.containers.command of type []string"),
        (POD, {"spec": {"containers": [{"resources": {"limits": {"cpu": "1.5.5"}}}]}},
         "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        (POD, {"status": {"startTime": "yesterday"}}, 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00"'),
        (CONFIG_MAP, {"binaryData": {"a": "???"}}, "illegal base64 data at input byte 0"),
        (CONFIG_MAP, {"kind": "Pod", "apiVersion": "v1"}, "cannot be handled as a ConfigMap"),
        (CONFIG_MAP, {"kind": "ConfigMap", "apiVersion": "v2"},
         'no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"'),
        (CONFIG_MAP, b"", "unexpected end of JSON input"),
        (CONFIG_MAP, b'{"data":', "unexpected end of JSON input"),
        (CONFIG_MAP, b'{"data":NaN}', "invalid character 'N' looking for beginning of value"),
        (CONFIG_MAP, b"[]", "the object provided is unrecognized (must be of type ConfigMap)"),
        (CONFIG_MAP, b'{"data":{"a":"\xff"}}', "invalid UTF-8"),
        (CONFIG_MAP, b'{"data":' * 100_000, "exceeded max depth"),
        (POD, b'{"spec":{"priority":' + b"9" * 10_000 + b"}}", "number"),
    ],
)  # fmt: skip
def test_wrong_bodies_are_refused_with_their_reason(
    read: decode.Reader, body: Any, words: str
) -> None:
    for validation in ("Strict", "Warn", "Ignore"):
        assert words in refusal(read, body, validation)


def test_another_media_type_is_a_415() -> None:
    with pytest.raises(
        BadBody, match="unknown format - accepted media types include: application/json"
    ) as caught:
        POD(b"", "text/csv", "Warn")
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


def test_options_of_any_group() -> None:
    body = b'{"apiVersion":"batch/v1","kind":"DeleteOptions","gracePeriodSeconds":0}'
    assert decode.options(body, JSON, "DeleteOptions")["gracePeriodSeconds"] == 0
    empty = protobuf.enclose("v1", "DeleteOptions", b"")
    assert decode.options(empty, protobuf.MEDIA_TYPE, "DeleteOptions")["kind"] == "DeleteOptions"
    assert decode.options(b"", "", "DeleteOptions") == {}


# --- YAML -----------------------------------------------------------------------------------------


def test_yaml_as_kubernetes_reads_it() -> None:
    text = """
metadata:
  name: a
data:
  yes: "no"
  time: "12:30:00"
  plain: text
immutable: true
"""
    tree = CONFIG_MAP(text.encode(), YAML, "Strict").tree
    assert tree["data"] == {"true": "no", "time": "12:30:00", "plain": "text"}
    assert tree["immutable"] is True


def test_yaml_octal_modes_and_anchors() -> None:
    text = b"spec:\n  volumes:\n  - &v {name: a, configMap: {name: x, defaultMode: 0644}}\n  - <<: *v\n    name: b\n"
    volumes = POD(text, YAML, "Strict").tree["spec"]["volumes"]
    assert [volume["configMap"]["defaultMode"] for volume in volumes] == [420, 420]
    assert [volume["name"] for volume in volumes] == ["a", "b"]


def test_yaml_duplicates_name_their_line() -> None:
    text = b"data:\n  a: x\n  a: z\n"
    expected = 'yaml: unmarshal errors:\n  line 3: key "a" already set in map'
    assert list(CONFIG_MAP(text, YAML, "Warn").warnings) == [expected]
    assert expected in refusal(CONFIG_MAP, text, "Strict", YAML)


LAUGHS = b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + b"\n".join(
    b"a%d: &a%d [%s]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: b: c", "mapping values are not allowed"),
        (b"a: \xff", "invalid leading UTF-8 octet"),
        (b"a: *nobody", "unknown anchor"),
        (b"[" * 50_000, "exceeded max depth"),
        (LAUGHS, "excessive aliasing"),
    ],
)  # fmt: skip
def test_yaml_that_is_none_or_too_much(text: bytes, words: str) -> None:
    assert words in refusal(CONFIG_MAP, text, media=YAML)
