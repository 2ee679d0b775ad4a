"""The cache against a server that does its worst: the cache converges, and its listeners hear every
difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.api.kinds import Malformed
from hekla.api.kubernetes.core import CONFIG_MAP, ConfigMap
from hekla.api.meta import ObjectMeta
from hekla.kube.cache import Cache
from hekla.kube.http.message import Request, Response, Stream
from tests.kube.scripted_api import ScriptedApi, answer, config_map, expired, scripted_api, status


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hekla.kube.cache.FIRST_DELAY", 0.001)
    monkeypatch.setattr("hekla.kube.cache.LONGEST_DELAY", 0.002)


class World:
    """A scripted server, a cache of its config maps, and what the cache's listener heard."""

    def __init__(
        self, api: ScriptedApi, cache: Cache[ConfigMap], malformed: list[Malformed]
    ) -> None:
        self.api = api
        self.cache = cache
        self.malformed = malformed
        self.heard: list[str] = []
        cache.on_change(self._hear)

    def _hear(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        obj = new or old
        assert obj is not None
        sign = "+" if old is None else "-" if new is None else "~"
        self.heard.append(f"{sign}{obj.metadata.name}@{obj.metadata.resource_version}")

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.001)

    def names(self) -> list[str]:
        return sorted(obj.metadata.name for obj in self.cache.all())


@asynccontextmanager
async def a_world(tmp_path: Path, *objects: dict[str, Any], **options: Any) -> AsyncIterator[World]:
    malformed: list[Malformed] = []
    async with scripted_api(tmp_path) as (api, client):
        api.objects = list(objects)
        api.version = 10
        cache = Cache(client, CONFIG_MAP, on_malformed=malformed.append, **options)
        world = World(api, cache, malformed)
        await cache.start()
        await cache.synced()
        await api.watching()
        yield world
        await cache.stop()


async def test_what_is_there_and_what_changes(tmp_path: Path) -> None:
    async with a_world(tmp_path, config_map("a", 1), config_map("b", 2), page=1) as world:
        assert world.heard == ["+a@1", "+b@2"]
        world.api.feed(
            ("MODIFIED", config_map("a", 11)),
            ("ADDED", config_map("c", 12)),
            ("DELETED", config_map("b", 13)),
        )
        await world.until(lambda: len(world.heard) == 5)
        assert world.heard[2:] == ["~a@11", "+c@12", "-b@13"]
        assert world.names() == ["a", "c"]
        assert world.cache.resource_version == "13"
        assert world.cache.get("ns/a").metadata.resource_version == "11"  # type: ignore[union-attr]
        assert "ns/b" not in world.cache and len(world.cache) == 2


async def test_a_late_listener_hears_what_is_there(tmp_path: Path) -> None:
    async with a_world(tmp_path, config_map("a", 1)) as world:
        late: list[Any] = []
        world.cache.on_change(lambda old, new: late.append((old, new)))
        assert late == [(None, world.cache.get("ns/a"))]


async def test_a_listener_may_ask_for_some_objects_only(tmp_path: Path) -> None:
    asked: list[str] = []

    def team(obj: ConfigMap) -> tuple[str, ...]:
        asked.append(obj.metadata.name)
        return (obj.data["team"],)

    red, blue = {"team": "red"}, {"team": "blue"}
    async with a_world(
        tmp_path, {**config_map("a", 1), "data": red}, {**config_map("b", 2), "data": blue}
    ) as world:
        heard: list[tuple[str, str | None, str | None]] = []

        def hear(who: str) -> Callable[[ConfigMap | None, ConfigMap | None], None]:
            def told(old: ConfigMap | None, new: ConfigMap | None) -> None:
                heard.append((who, old and old.metadata.name, new and new.metadata.name))

            return told

        world.cache.on_change_of(team, ["red"], hear("of red"))
        world.cache.on_change_of(team, ["green"], hear("of green"))
        world.cache.on_change_of(team, ["red", "green"], hear("of both"))
        assert heard == [("of red", None, "a"), ("of both", None, "a")]
        heard.clear()
        asked.clear()

        world.api.feed(("ADDED", {**config_map("c", 11), "data": blue}))
        await world.until(lambda: len(world.heard) == 3)
        assert not heard and asked == ["c"]

        world.api.feed(
            ("MODIFIED", {**config_map("a", 12), "data": {"team": "green"}}),
            ("DELETED", {**config_map("a", 13), "data": blue}),
        )
        await world.until(lambda: len(world.heard) == 5)
        assert sorted(heard[:3]) == [
            ("of both", "a", "a"),
            ("of green", "a", "a"),
            ("of red", "a", "a"),
        ]
        assert heard[3:] == []


async def test_the_watch_goes_on_from_where_it_was(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        bookmark = {"kind": "ConfigMap", "metadata": {"resourceVersion": "40"}}
        world.api.feed(("ADDED", config_map("a", 11)), ("BOOKMARK", bookmark))
        await world.until(lambda: world.cache.resource_version == "40")
        world.api.hang_up()
        await world.api.watching()
        assert world.api.requests[-1].option("resourceVersion") == "40"
        assert sum(not request.flag("watch") for request in world.api.requests) == 1
        assert world.heard == ["+a@11"]


@pytest.mark.parametrize("how", ["event", "answer"])
async def test_when_history_is_gone_the_difference_is_told(tmp_path: Path, how: str) -> None:
    objects = [
        config_map("stays", 1),
        config_map("changes", 2),
        config_map("goes", 3),
        config_map("reborn", 4, uid="one"),
    ]
    async with a_world(tmp_path, *objects) as world:
        world.heard.clear()
        reborn = config_map("reborn", 33, uid="two")
        world.api.objects = [
            config_map("stays", 1),
            config_map("changes", 31),
            config_map("comes", 32),
            reborn,
        ]
        world.api.version = 50
        if how == "event":
            world.api.feed(("ERROR", expired()))
        else:
            world.api.refusals = [answer(410, expired())]
            world.api.hang_up()
        await world.api.watching()
        assert world.api.requests[-1].option("resourceVersion") == "50"
        assert world.heard == ["-goes@3", "~changes@31", "+comes@32", "-reborn@4", "+reborn@33"]
        assert world.names() == ["changes", "comes", "reborn", "stays"]


async def test_a_streamed_cache_tells_of_the_first_list_page_by_page(tmp_path: Path) -> None:
    objects = [config_map(name, number) for number, name in enumerate("abc", 1)]
    asked: list[int] = []
    async with scripted_api(tmp_path) as (api, client):
        api.objects, api.version = objects, 10
        cache = Cache(client, CONFIG_MAP, page=1, streamed=True)
        cache.on_change(lambda old, new: asked.append(len(api.requests)))
        await cache.start()
        await cache.synced()
        # Each before the page after the next was asked for, which is the one that was being made.
        assert [count <= page for page, count in enumerate(asked, 2)] == [True] * 3
        await cache.stop()


async def test_a_streamed_list_that_expires_half_way_leaves_nothing_that_has_gone(
    tmp_path: Path,
) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.objects, api.version = [config_map("goes", 1), config_map("changes", 2)], 10
        cache = Cache(client, CONFIG_MAP, page=1, streamed=True)
        world = World(api, cache, [])

        handle = api._list

        def expiring(request: Request) -> Response:
            if not request.option("continue"):
                return handle(request)
            api.objects, api.version = [config_map("changes", 20), config_map("comes", 21)], 30
            return answer(410, expired())

        api._list = expiring  # type: ignore[method-assign]
        await cache.start()
        await cache.synced()
        assert world.heard == ["+goes@1", "-goes@1", "+changes@20", "+comes@21"]
        assert cache.resource_version == "30"
        await cache.stop()


async def test_errors_are_outlived(tmp_path: Path) -> None:
    async with a_world(tmp_path, config_map("a", 1)) as world:
        world.api.objects.append(config_map("b", 20))
        world.api.refusals = [
            answer(500, status(500, "InternalError")),
            answer(403, status(403, "Forbidden")),
            Response(502, b"bad gateway", "text/plain"),
            Response(200, b"not json", "text/plain"),
        ]
        world.api.hang_up()
        await world.until(lambda: world.names() == ["a", "b"])


async def test_a_new_cluster_at_the_old_address(tmp_path: Path) -> None:
    async with a_world(tmp_path, config_map("old", 500)) as world:
        world.api.feed(("ADDED", config_map("older", 900)))
        await world.until(lambda: world.cache.resource_version == "900")
        world.api.objects, world.api.version = [config_map("new", 3, uid="n")], 5
        world.api.break_off()
        await world.until(lambda: world.names() == ["new"])
        await world.api.watching()
        assert world.api.requests[-1].option("resourceVersion") == "5"
        assert world.heard[2:] == ["-old@500", "-older@900", "+new@3"]


async def test_a_cache_does_not_queue_behind_the_work_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, served = ScriptedApi.handle, 0

    async def slow(self: ScriptedApi, request: Request) -> Response | Stream:
        nonlocal served
        if request.method == "POST":
            await asyncio.sleep(0.002)
            served += 1
            return answer(201, config_map("made", 1))
        return await plain(self, request)

    monkeypatch.setattr(ScriptedApi, "handle", slow)
    async with a_world(tmp_path) as world:
        writes = [
            asyncio.ensure_future(
                world.cache._client.create(CONFIG_MAP, config_map(f"c{i}", 1), "ns")
            )
            for i in range(1000)
        ]
        await world.until(lambda: served > 0)
        world.api.break_off()
        await world.api.watching()
        assert served < 500
        await asyncio.gather(*writes)


async def test_a_connection_that_breaks_in_the_middle_of_a_line(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        line = msgspec.json.encode({"type": "ADDED", "object": config_map("a", 11)})
        world.api.feed_lines(line[:40])
        await asyncio.sleep(0)
        world.api.hang_up()
        await world.api.watching()
        assert world.heard == []
        world.api.feed_lines(line[:40])
        await asyncio.sleep(0.005)
        world.api.feed_lines(line[40:] + b"\n")
        await world.until(lambda: world.heard == ["+a@11"])


async def test_malformed_objects_are_left_out_and_reported(tmp_path: Path) -> None:
    bad = config_map("bad", 5) | {"data": "text"}
    async with a_world(tmp_path, config_map("a", 1), bad) as world:
        assert world.names() == ["a"]
        assert [problem.key for problem in world.malformed] == ["ns/bad"]
        world.api.feed(
            ("ADDED", config_map("b", 11)),
            ("MODIFIED", config_map("a", 12) | {"data": ["x"]}),
            ("ADDED", config_map("c", 13)),
        )
        await world.until(lambda: "+c@13" in world.heard)
        assert world.names() == ["b", "c"]  # what cannot be read any more is as good as gone
        assert world.heard == ["+a@1", "-a@1", "+b@11", "+c@13"]
        world.api.feed(("MODIFIED", config_map("a", 14)))
        await world.until(lambda: world.names() == ["a", "b", "c"])


async def test_a_bookmark_is_no_object_and_so_never_malformed(tmp_path: Path) -> None:
    class Wanting(msgspec.Struct):
        """A reader's struct that insists on what a bookmark has not."""

        metadata: ObjectMeta
        data: dict[str, str]

    async with scripted_api(tmp_path) as (api, client):
        api.objects, api.version = [config_map("a", 11)], 11
        malformed: list[Malformed] = []
        kind = replace(CONFIG_MAP, type=Wanting)
        cache: Cache[Any] = Cache(client, kind, on_malformed=malformed.append)
        async with cache:
            await api.watching()
            api.feed(("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": "40"}}))
            async with asyncio.timeout(20):
                while cache.resource_version != "40":
                    await asyncio.sleep(0.001)
        assert (malformed, [one.metadata.name for one in cache.all()]) == ([], ["a"])


async def test_indexes_follow(tmp_path: Path) -> None:
    def colors(obj: ConfigMap) -> list[str]:
        return (obj.data.get("colors") or "").split()

    objects = [config_map("a", 1, colors="red blue"), config_map("b", 2, colors="red")]
    async with a_world(tmp_path, *objects, indexes={"color": colors}) as world:
        cache = world.cache

        def by(color: str) -> list[str]:
            return [obj.metadata.name for obj in cache.by("color", color)]

        assert (by("red"), by("blue"), by("green")) == (["a", "b"], ["a"], [])
        assert [cache.count("color", color) for color in ("red", "blue", "green")] == [2, 1, 0]
        world.api.feed(
            ("MODIFIED", config_map("a", 11, colors="blue green")), ("DELETED", config_map("b", 12))
        )
        await world.until(lambda: len(cache) == 1)
        assert (by("red"), by("blue"), by("green")) == ([], ["a"], ["a"])
        assert cache.by("color", "green")[0].metadata.resource_version == "11"
        assert set(cache.values("color")) == {"blue", "green"}


async def test_a_listener_that_fails_stops_nobody(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        cache = world.cache

        def fails(old: Any, new: Any) -> None:
            raise RuntimeError("a bug")

        cache._listeners.of_all.insert(0, fails)
        world.api.feed(("ADDED", config_map("a", 11)))
        await world.until(lambda: world.heard == ["+a@11"])


async def test_a_thousand_events_in_one_burst(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        world.api.feed(*(("ADDED", config_map(f"c{i}", 100 + i)) for i in range(1000)))
        await world.until(lambda: len(world.cache) == 1000)
        assert world.cache.resource_version == "1099"
        assert world.heard == [f"+c{i}@{100 + i}" for i in range(1000)]
