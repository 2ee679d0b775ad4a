"""Rows that were read from the disk say the same as before, and are decoded when somebody asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.rows import LoadedRow, Row
from hekla.local.apiserver.storage.store import Store

FIELDS = {"spec.nodeName": ("spec", "nodeName")}
COLORS = {"color": ("spec", "color")}


def thing(number: int) -> dict[str, object]:
    metadata = {
        "name": f"n{number}",
        "namespace": "a",
        "uid": f"uid-{number}",
        "labels": {"x": "1"},
    }
    return {"metadata": metadata, "spec": {"nodeName": f"node-{number}", "color": "red"}}


def content(row: Row) -> tuple[object, ...]:
    return (
        *(row.id, row.namespace, row.name, row.key, row.uid, row.version),
        *(row.data, dict(row.labels), row.fields, row.held),
    )


async def filled(directory: Path, count: int) -> dict[str, tuple[object, ...]]:
    """A closed store with so many things; what its rows said."""
    store = Store(directory)
    store.start()
    things = store.collection("things", FIELDS)
    for number in range(count):
        await things.create(thing(number)).done
    said = {key: content(row) for key, row in things.rows.items()}
    await store.close()
    return said


async def loaded(directory: Path) -> Collection:
    store = Store(directory)
    store.start()
    return store.collection("things", FIELDS)


async def test_a_loaded_row_says_what_it_said(tmp_path: Path) -> None:
    said = await filled(tmp_path, 3)
    things = await loaded(tmp_path)
    assert [type(row) for row in things.rows.values()] == [LoadedRow] * 3
    assert things.ordered("a") == sorted(said)
    assert {key: content(row) for key, row in things.rows.items()} == said
    assert [type(row) for row in things.rows.values()] == [Row] * 3
    await things.store.close()


async def test_fields_that_become_selectable_later(tmp_path: Path) -> None:
    await filled(tmp_path, 2)
    things = await loaded(tmp_path)
    first, second = things.rows.values()
    assert first.fields == ("node-0",)
    things.store.collection("things", COLORS)
    assert (first.fields, second.fields) == (("node-0", "red"), ("node-1", "red"))
    await things.store.close()


async def test_a_loaded_row_that_is_changed_and_moves_to_the_history_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = await filled(tmp_path, 2)
    monkeypatch.setattr("hekla.local.apiserver.storage.store.MAX_PAST_BYTES_IN_MEMORY", 0)
    things = await loaded(tmp_path)
    before = things.store.committed
    changed, gone = things.rows.values()
    await things.update({**thing(0), "spec": {}}, changed).done
    await things.delete(gone.tree(), gone).done
    events = things.since(before)
    assert events is not None
    assert [content(event.old) for event in events if event.old] == list(said.values())
    assert [event.row.uid for event in events] == ["uid-0", "uid-1"]
    assert type(changed).__name__ == type(gone).__name__ == "PastRow"
    await things.store.close()
    again = await loaded(tmp_path)
    assert [row.fields for row in again.rows.values()] == [("",)]
    await again.store.close()
