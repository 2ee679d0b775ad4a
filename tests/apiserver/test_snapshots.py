"""The state at an earlier version, of which the pages of a long list are made, is the one that was
there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hekla.local.apiserver.request.reading import snapshot
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.storage.store import Store

NAMESPACES = ("", "a", "b")
STARTS = ("", "a", "a/n3", "a/n4x", "b/n1", "b/n9", "c")


async def change(things: Collection, random: Random) -> None:
    """Create, update or delete one of a few objects."""
    namespace, name = random.choice("ab"), f"n{random.randrange(8)}"
    old = things.rows.get(f"{namespace}/{name}")
    metadata = {"name": name, "namespace": namespace, "uid": str(random.random())}
    if old is None:
        await things.create({"metadata": metadata}).done
    elif random.random() < 0.5:
        await things.update({"metadata": metadata}, old).done
    else:
        await things.delete(old.tree(), old).done


@pytest.mark.parametrize("seed", range(10))
async def test_a_snapshot_is_what_was_there(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    store = Store(tmp_path)
    store.start()
    things = store.collection("things", {})
    states: dict[int, dict[str, Row]] = {}
    for _ in range(random.randrange(1, 60)):
        await change(things, random)
        states[store.committed] = dict(things.rows)
    for version, state in states.items():
        for namespace in NAMESPACES:
            for start in STARTS:
                found = snapshot(things, version, namespace, start)
                assert found is not None
                wanted = sorted(
                    key
                    for key, row in state.items()
                    if key > start and namespace in ("", row.namespace)
                )
                assert found.keys == wanted
                assert [found.rows[key] for key in wanted] == [state[key] for key in wanted]
    await store.close()
