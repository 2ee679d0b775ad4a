"""managedFields are read from the disk by layout as they are read plainly."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from hekla.local.apiserver.storage.managed_fields import NOBODY, ManagedFields, Ownership
from hekla.local.apiserver.storage.stored_ownership import StoredOwnership

MANAGERS = ("kubectl", "kubelet", "scheduler")
TIMES = (
    *("2026-11-23T10:00:00Z", "2026-11-23T10:00:01Z", "2026-11-23T11:00:00Z") * 4,
    "2026-11-23T10:00:00.5Z",
    "2026-11-23 10:00:00Z",
    "1969-12-31T23:59:59Z",
    "time",
    "",
    None,
)
KEYS = (
    *('k:{"ip":"10.0.0.1"}', 'k:{"ip":"10.0.0.2"}', 'k:{"uid":"6ba7b810-9dad-11d1"}') * 2,
    'k:{"ip":"10.0.0.1","port":80}',
    'k:{"uid":"a\\"b"}',
    'k:{"name":"main"}',
    "f:time",
)


def entry(random: Random) -> dict[str, object]:
    fields = {random.choice(KEYS): {"f:a": {}} for _ in range(random.randrange(3))}
    made: dict[str, object] = {
        "manager": random.choice(MANAGERS),
        "operation": random.choice(("Update", "Update", "Apply")),
        "apiVersion": random.choice(("v1", "v1", "v1beta1")),
        "time": random.choice(TIMES),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:podIPs": fields}, "f:phase": {}},
    }
    if made["time"] is None:
        del made["time"]
    if random.random() < 0.3:
        made["subresource"] = "status"
    return made


def text(held: Ownership) -> bytes:
    owners, stamps = held
    return b"" if owners is None else owners.render(stamps)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_by_layout_is_what_is_read_plainly(seed: int) -> None:
    random = Random(seed)
    managed = ManagedFields()
    by_layout = StoredOwnership(managed)
    learned = 0
    for _ in range(500):
        entries = [entry(random) for _ in range(random.randrange(1, 4))]
        written = msgspec.json.encode(entries)
        plainly = managed.read(entries) or NOBODY
        if random.random() < 0.7 and plainly != NOBODY:
            written = text(plainly)  # as the server itself writes it
            plainly = managed.read(msgspec.json.decode(written)) or NOBODY
        known = len(written) in by_layout._layouts
        assert by_layout.read(written) == plainly
        learned += known
    assert learned > 100


def test_what_differs_from_object_to_object_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    written = (
        '[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-11-23T10:00:%02dZ",'
        '"fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:podIPs":{"k:{\\"ip\\":\\"10.0.0.%d\\"}":{}}}}}]'
    )
    managed = ManagedFields()
    by_layout = StoredOwnership(managed)
    first = by_layout.read((written % (1, 1)).encode())
    monkeypatch.setattr(managed, "read", None)
    second = by_layout.read((written % (2, 9)).encode())
    assert second[0] is first[0]
    assert text(second) == (written % (2, 9)).encode()
