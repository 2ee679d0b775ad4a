"""A watch that resumes late gets all events that it missed, and the server does not keep past
versions in memory."""

from __future__ import annotations

import re
from pathlib import Path

from hekla.local.apiserver.storage.history import PastVersions
from tests.apiserver.http import CONFIG_MAPS, MERGE, Http, config_map

WRITES, SIZE = 1000, 50_000


def number(page: str, name: str) -> int:
    found = re.search(rf"^{name} (\d+)$", page, re.MULTILINE)
    assert found is not None, page
    return int(found[1])


def test_fifty_megabytes_of_history_are_sent_in_order(http: Http) -> None:
    first = http.post(CONFIG_MAPS, config_map("long", data={"n": "0", "ballast": "x" * SIZE})).tree[
        "metadata"
    ]["resourceVersion"]
    for count in range(1, WRITES + 1):
        assert http.patch(f"{CONFIG_MAPS}/long", {"data": {"n": str(count)}}, MERGE).status == 200
    page = http.get("/metrics").body.decode()
    assert number(page, "hekla_store_history_bytes") < 5 * 1024 * 1024
    with http.watch(
        f"{CONFIG_MAPS}?watch=1&resourceVersion={first}&fieldSelector=metadata.name=long"
    ) as watched:
        told = [watched.next()["object"]["data"]["n"] for _ in range(WRITES)]
    assert told == [str(count) for count in range(1, WRITES + 1)]
    old = http.get(
        f"{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=Exact&fieldSelector=metadata.name=long"
    ).tree["items"]
    assert [item["data"]["n"] for item in old] == ["0"]


def test_a_deleted_event_has_the_last_state(http: Http) -> None:
    version = http.post(
        CONFIG_MAPS, config_map("gone", metadata={"labels": {"which": "gone"}})
    ).tree["metadata"]["resourceVersion"]
    http.patch(f"{CONFIG_MAPS}/gone", {"metadata": {"labels": {"which": "other"}}}, MERGE)
    http.delete(f"{CONFIG_MAPS}/gone")
    with http.watch(
        f"{CONFIG_MAPS}?watch=1&resourceVersion={version}&labelSelector=which=gone"
    ) as watched:
        event = watched.next()
    assert event["type"] == "DELETED" and event["object"]["metadata"]["labels"] == {"which": "gone"}


def test_past_versions_are_read_back_as_written(tmp_path: Path) -> None:
    past_versions = PastVersions(tmp_path)
    pieces = [bytes([n % 251]) * (n + 1) for n in range(300)]
    places = [
        place
        for start in range(0, 300, 50)
        for place in past_versions.append(pieces[start : start + 50])
    ]
    assert [past_versions.read(place) for place in places] == pieces
    assert list(tmp_path.iterdir()) == []  # its files have no names
    past_versions.close()
    assert past_versions.bytes == 0 and not past_versions.segments
