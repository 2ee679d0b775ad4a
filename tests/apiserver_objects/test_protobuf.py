"""Protobuf bodies: every recorded pair decodes to its JSON, and no bytes whatever make anything but
a clean 400."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api.text import durations
from hekla.local.apiserver.objects.encoding import fields, protobuf
from hekla.local.apiserver.objects.errors import BadBody

WIRE = Path(__file__).parents[2].parent / "shared" / "conformance" / "k8s-wire"
PAIRS = sorted(path.stem for path in WIRE.glob("*.pb"))

needs_pairs = pytest.mark.skipif(
    not PAIRS, reason="the recorded wire pairs are not beside this repository"
)


def opened(name: str) -> tuple[protobuf.Envelope, fields.Message]:
    found = protobuf.envelope((WIRE / f"{name}.pb").read_bytes())
    group, _, version = found.api_version.rpartition("/")
    described = fields.root(group, version, found.kind or name.rpartition(".")[2])
    assert described is not None, f"no table describes {name}"
    return found, described


@needs_pairs
@pytest.mark.parametrize("name", PAIRS)
def test_a_recorded_body_decodes_to_its_json(name: str) -> None:
    expected = json.loads((WIRE / f"{name}.json").read_text())
    found, described = opened(name)

    tree = protobuf.decode(found.raw, described)

    assert (found.api_version, found.kind) == (
        expected.pop("apiVersion", ""),
        expected.pop("kind", ""),
    )
    assert tree == expected


@needs_pairs
@pytest.mark.parametrize("name", PAIRS)
def test_a_recorded_body_survives_encoding(name: str) -> None:
    found, described = opened(name)
    tree = protobuf.decode(found.raw, described)

    again = protobuf.enclose(found.api_version, found.kind, protobuf.encode(tree, described))

    assert protobuf.decode(protobuf.envelope(again).raw, described) == tree


@needs_pairs
@pytest.mark.parametrize(
    "name", ["core.v1.Pod", "apps.v1.Deployment", "core.v1.Secret", "core.v1.DeleteOptions"]
)
def test_a_truncated_body_is_a_400(name: str) -> None:
    body = (WIRE / f"{name}.pb").read_bytes()
    described = opened(name)[1]
    for length in range(0, len(body) - 4, max(1, len(body) // 300)):
        with pytest.raises(BadBody) as refusal:
            protobuf.decode(protobuf.envelope(body[:length]).raw, described)
            raise BadBody("cut between two fields: still a message")
        assert refusal.value.code == 400


def test_a_body_without_the_prefix_is_refused() -> None:
    with pytest.raises(BadBody, match="expected prefix"):
        protobuf.envelope(b'{"kind": "Pod"}')


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_tree_or_a_400(garbage: bytes) -> None:
    for kind in ("Pod", "Node", "ConfigMap"):
        described = fields.root("", "v1", kind)
        assert described is not None
        try:
            protobuf.decode(protobuf.envelope(protobuf.MAGIC + garbage).raw, described)
            protobuf.decode(garbage, described)
        except BadBody as refusal:
            assert refusal.code == 400


def test_endless_nesting_is_refused() -> None:
    described = fields.message("apiextensions.v1", "JSONSchemaProps")
    assert described is not None
    raw = b""
    for _ in range(500):
        raw = protobuf.chunk(28, raw)
    with pytest.raises(BadBody, match="max depth"):
        protobuf.decode(raw, described)


TEXT = st.text(max_size=8)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.integers(-1000, 1000),
    "bytes": st.binary(max_size=6).map(lambda data: protobuf.b64encode(data).decode()),
    "Time": st.datetimes().map(
        lambda when: when.replace(microsecond=0).isoformat().ljust(19, "0") + "Z"
    ),
    "MicroTime": st.just("2024-05-06T07:08:09.000012Z"),
    "Quantity": st.sampled_from(["1", "100m", "2Gi"]),
    "IntOrString": st.integers(0, 100) | st.just("25%"),
    "Duration": st.sampled_from(["1h0m0s", "1.5s", "20ms"]),
}


def trees(described: fields.Message, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """Trees that hold any of a message's fields, with no zeros where zero means absent."""
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field, owner in fields.flat(described):
        inner = fields.message(owner.section, field.type)
        if field.type in SCALARS:
            one = SCALARS[field.type]
            if not field.many and not field.pointer:
                one = one.filter(bool)
        elif inner is None or depth > 3:
            continue
        else:
            one = trees(inner, depth + 1)
        if field.many == "list":
            one = st.lists(one, min_size=1, max_size=2)
        elif field.many == "map":
            one = st.dictionaries(TEXT, one, min_size=1, max_size=2)
        parts[field.name] = one
    return st.fixed_dictionaries({}, optional=parts)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_decodes_to_itself(data: st.DataObject) -> None:
    group, kind = data.draw(
        st.sampled_from(
            [("", "Service"), ("", "Secret"), ("batch", "CronJob"), ("policy", "Eviction")]
        )
    )
    described = fields.root(group, "v1", kind)
    assert described is not None
    tree = data.draw(trees(described))

    assert protobuf.decode(protobuf.encode(tree, described), described) == tree


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1_500_000_000, "1.5s"),
        (3_600_000_000_000, "1h0m0s"),
        (20_000_000, "20ms"),
        (-61_000_000_000, "-1m1s"),
        (1500, "1.5µs"),
    ],
)
def test_durations_print_as_go_does(nanoseconds: int, text: str) -> None:
    assert durations.nanoseconds_text(nanoseconds) == text
    assert durations.nanoseconds(text) == nanoseconds
