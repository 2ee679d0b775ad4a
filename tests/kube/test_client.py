"""The REST client: paths, bodies, pages, errors, retries."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.api.kubernetes.core import CONFIG_MAP, POD, ConfigMap
from hekla.api.meta import ObjectMeta
from hekla.kube import errors
from hekla.kube.client import (
    LARGEST_PAGE,
    PAGE,
    PAGE_BYTES,
    PAGE_TRIES,
    Client,
    page_of_good_size,
)
from hekla.kube.connection.config import Connection
from hekla.kube.connection.credentials import TokenFile
from hekla.kube.http.client import Target
from hekla.kube.http.message import Request, Response
from hekla.kube.http.server import serve
from tests.kube.scripted_api import answer, config_map, expired, scripted_api, status


async def test_what_was_refused_goes_with_its_error(tmp_path: Path) -> None:
    async def handle(request: Request) -> Response:
        return answer(409, status(409, "AlreadyExists"))

    server = await serve(handle, unix=tmp_path / "s")
    async with Client(Connection(Target(unix=str(tmp_path / "s")))) as client:
        made = ConfigMap(metadata=ObjectMeta(name="a", namespace="ns"), data={"x": "y" * 1000})

        async def refused(times: int) -> None:
            for _ in range(times):
                try:
                    await client.create(CONFIG_MAP, made)
                except errors.AlreadyExists:
                    continue
                raise AssertionError("it was made")

        await refused(3)  # what is made once
        gc.collect()
        gc.disable()
        try:
            await refused(50)
            assert gc.collect() < 50
        finally:
            gc.enable()
    await server.close(grace=0)


async def test_what_each_call_sends(tmp_path: Path) -> None:
    seen: list[tuple[str, str, str, Any]] = []

    async def handle(request: Request) -> Response:
        body = msgspec.json.decode(request.body) if request.body else None
        seen.append(
            (
                request.method,
                f"{request.path}?{request.query}",
                request.headers.get("content-type", ""),
                body,
            )
        )
        return answer(200, config_map("a", 5, color="red"))

    server = await serve(handle, unix=tmp_path / "s")
    async with Client(
        Connection(Target(unix=str(tmp_path / "s"))), user_agent="hekla-test"
    ) as client:
        got = await client.get(CONFIG_MAP, "a", "ns")
        assert (got.metadata.name, got.data) == ("a", {"color": "red"})
        made = ConfigMap(metadata=ObjectMeta(name="a", namespace="ns"), data={"x": "y"})
        assert isinstance(await client.create(CONFIG_MAP, made), ConfigMap)
        await client.create(CONFIG_MAP.untyped, {"metadata": {"generateName": "a-"}}, "ns")
        await client.update(CONFIG_MAP, got)
        await client.update_status(CONFIG_MAP, got)
        await client.patch(CONFIG_MAP, "a", {"data": {"x": None}}, "ns")
        await client.patch(
            CONFIG_MAP, "a", [{"op": "test"}], "ns", type="json", subresource="status"
        )
        await client.patch(CONFIG_MAP, "a", {}, "ns", type="apply", field_manager="me", force=True)
        await client.delete(CONFIG_MAP, "a", "ns", grace=0, propagation="Background", uid="u")
        await client.delete(CONFIG_MAP, "a", "ns")
        await client.delete_collection(CONFIG_MAP, "ns", labels="app=web,tier in (a,b)")
        await client.post(POD, "p", "ns", "binding", {"target": {"name": "n1"}})
    await server.close(grace=0)

    maps = "/api/v1/namespaces/ns/configmaps"
    assert [call[:3] for call in seen] == [
        ("GET", f"{maps}/a?", ""),
        ("POST", f"{maps}?", "application/json"),
        ("POST", f"{maps}?", "application/json"),
        ("PUT", f"{maps}/a?", "application/json"),
        ("PUT", f"{maps}/a/status?", "application/json"),
        ("PATCH", f"{maps}/a?", "application/merge-patch+json"),
        ("PATCH", f"{maps}/a/status?", "application/json-patch+json"),
        ("PATCH", f"{maps}/a?fieldManager=me&force=true", "application/apply-patch+yaml"),
        ("DELETE", f"{maps}/a?", "application/json"),
        ("DELETE", f"{maps}/a?", ""),
        ("DELETE", f"{maps}?labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29", ""),
        ("POST", "/api/v1/namespaces/ns/pods/p/binding?", "application/json"),
    ]
    assert seen[1][3] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "ns"},
        "data": {"x": "y"},
    }
    assert seen[2][3] == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"generateName": "a-"},
    }
    assert seen[8][3] == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u"},
    }


async def test_a_list_comes_in_pages(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.version = 77
        api.objects = [config_map(f"c{i}", i) for i in range(7)]
        listing = await client.list(CONFIG_MAP, "ns", labels="a=b", limit=3)
        assert [item.metadata.name for item in listing.items] == [f"c{i}" for i in range(7)]
        assert listing.resource_version == "77"
        assert [r.option("continue") for r in api.requests] == ["", "3", "6"]
        assert {r.option("labelSelector") for r in api.requests} == {"a=b"}


async def test_the_next_page_is_made_while_one_is_read(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.objects = [config_map(f"c{i}", i) for i in range(6)]
        pages = client.pages(CONFIG_MAP, limit=2)
        first = await anext(pages)
        async with asyncio.timeout(5):
            while len(api.requests) < 2:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert [item.metadata.name for item in first.items] == ["c0", "c1"]
        assert [r.option("continue") for r in api.requests] == ["", "2"]  # and not the one after
        await pages.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_who_stops_reading_hears_nothing_of_the_next_page(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.objects = [config_map(f"c{i}", i) for i in range(6)]
        handle = api._list

        def refusing(request: Request) -> Response:
            refused = answer(403, status(403, "Forbidden"))
            return refused if request.option("continue") else handle(request)

        api._list = refusing  # type: ignore[method-assign]
        for wait in (0.0, 0.05):  # before the refusal comes, and after it
            pages = client.pages(CONFIG_MAP, limit=2)
            assert len((await anext(pages)).items) == 2
            await asyncio.sleep(wait)
            await pages.aclose()  # type: ignore[attr-defined]  # it is a generator
        del pages
        gc.collect()
        await asyncio.sleep(0)
        assert not caplog.records


async def test_pages_after_the_first_are_of_a_good_size(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.objects = [config_map(f"c{i}", i) for i in range(PAGE + 2)]
        assert len((await client.list(CONFIG_MAP)).items) == PAGE + 2
        assert [r.option("limit") for r in api.requests] == [str(PAGE), str(LARGEST_PAGE)]
    assert page_of_good_size(PAGE, PAGE * 1000) == LARGEST_PAGE
    assert page_of_good_size(PAGE, PAGE * 4000) == PAGE_BYTES // 4000
    assert page_of_good_size(PAGE, PAGE * 500_000) == PAGE
    assert page_of_good_size(0, 0) == page_of_good_size(0, 100) == PAGE


async def test_a_page_that_is_lost_costs_that_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.kube.client.PAGE_DELAYS", (0.001, 0.002))
    async with scripted_api(tmp_path) as (api, client):
        api.objects = [config_map(f"c{i}", i) for i in range(5)]
        handle, lost = api._list, {"2": 3, "4": 1}

        def losing(request: Request) -> Response:
            at = request.option("continue")
            if lost.get(at):
                lost[at] -= 1
                return answer(500, status(500, "InternalError"))
            return handle(request)

        api._list = losing  # type: ignore[method-assign]
        listing = await client.list(CONFIG_MAP, limit=2)
        assert [item.metadata.name for item in listing.items] == [f"c{i}" for i in range(5)]
        assert [r.option("continue") for r in api.requests] == ["", "2", "2", "2", "2", "4", "4"]

        lost["4"] = 100  # a page that never comes is an error in the end
        api.requests.clear()
        with pytest.raises(errors.ServerError):
            await client.list(CONFIG_MAP, limit=2)
        assert [r.option("continue") for r in api.requests] == ["", "2", *["4"] * PAGE_TRIES]


async def test_pages_that_expire_are_fetched_anew_in_one_piece(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.objects = [config_map(f"c{i}", i) for i in range(5)]
        handle = api._list

        def expiring(request: Request) -> Response:
            return answer(410, expired()) if request.option("continue") else handle(request)

        api._list = expiring  # type: ignore[method-assign]
        listing = await client.list(CONFIG_MAP, limit=2)
        assert len(listing.items) == 5
        assert [r.option("limit") for r in api.requests] == ["2", "2", ""]


async def test_a_malformed_object_hides_no_other(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        bad = config_map("bad", 2) | {"data": ["not", "a", "map"]}
        api.objects = [config_map("a", 1), bad, config_map("z", 3)]
        listing = await client.list(CONFIG_MAP)
        assert [item.metadata.name for item in listing.items] == ["a", "z"]
        assert [problem.key for problem in listing.malformed] == ["ns/bad"]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Gone", errors.Expired),
        (403, "Forbidden", errors.Forbidden),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.ServerError),
        (418, "Teapot", errors.ApiError),
    ],
)
async def test_refusals_are_told_apart_by_reason(
    tmp_path: Path, code: int, reason: str, kind: type[Exception]
) -> None:
    async with scripted_api(tmp_path) as (api, client):
        tree = status(code, reason, "the words of the server")
        tree["details"] = {
            "name": "x",
            "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"}
            ],
        }
        api.refusals = [answer(code, tree)]
        with pytest.raises(errors.ApiError) as caught:
            await client.get(CONFIG_MAP, "x", "ns")
    error = caught.value
    assert type(error) is kind
    assert str(error) == "the words of the server"
    assert (error.code, error.reason) == (code, reason)
    assert error.causes == (errors.Cause("FieldValueRequired", "Required value", "spec.a"),)
    assert error.has_cause("FieldValueRequired")


async def test_an_answer_that_is_no_status(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.refusals = [
            Response(404, b"404 page not found\n", "text/plain"),
            Response(502, b"", "text/html"),
        ]
        with pytest.raises(errors.NotFound, match="404 page not found"):
            await client.get(CONFIG_MAP, "x", "ns")
        with pytest.raises(errors.ServerError, match="502 without a reason"):
            await client.get(CONFIG_MAP, "x", "ns")


async def test_a_server_that_asks_for_patience_is_asked_again(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        busy = answer(429, status(429, "TooManyRequests"), Retry_After="0")
        api.refusals = [busy, answer(503, status(503, "ServiceUnavailable"), Retry_After="0")]
        assert (await client.list(CONFIG_MAP)).items == []
        assert len(api.requests) == 3
        api.refusals = [busy] * 20
        with pytest.raises(errors.TooManyRequests):
            await client.list(CONFIG_MAP)
        assert len(api.requests) == 3 + 11


async def test_without_retry_after_a_refusal_is_final(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.refusals = [answer(429, status(429, "TooManyRequests"))]
        with pytest.raises(errors.TooManyRequests):
            await client.post(POD, "p", "ns", "eviction", {})
        assert len(api.requests) == 1


async def test_after_a_401_the_token_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    seen: list[str] = []

    async def handle(request: Request) -> Response:
        seen.append(request.headers["authorization"])
        if seen[-1] == "Bearer new":
            return answer(200, config_map("a", 1))
        (tmp_path / "token").write_text("new")
        return answer(401, status(401, "Unauthorized"))

    server = await serve(handle, unix=tmp_path / "s")
    async with Client(
        Connection(Target(unix=str(tmp_path / "s")), TokenFile(tmp_path / "token"))
    ) as client:
        await client.get(CONFIG_MAP, "a", "ns")
        assert seen == ["Bearer old", "Bearer new"]
    await server.close(grace=0)


async def test_warnings_reach_whoever_wants_them(tmp_path: Path) -> None:
    heard: list[str] = []

    async def handle(request: Request) -> Response:
        return Response(
            200,
            msgspec.json.encode(config_map("a", 1)),
            headers={"Warning": '299 - "unknown field \\"foo\\""'},
        )

    server = await serve(handle, unix=tmp_path / "s")
    async with Client(
        Connection(Target(unix=str(tmp_path / "s"))), on_warning=heard.append
    ) as client:
        await client.get(CONFIG_MAP, "a", "ns")
    assert heard == ['unknown field "foo"']
    await server.close(grace=0)


async def test_events_of_a_watch_are_typed_and_errors_raised_in_order(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        watch = await client.open_watch(CONFIG_MAP, "ns", resource_version="1", timeout=5)
        await api.watching()
        api.feed(
            ("ADDED", config_map("a", 2)),
            ("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": "9"}}),
        )
        api.feed(
            ("DELETED", config_map("a", 10)), ("ERROR", expired()), ("ADDED", config_map("b", 11))
        )
        got: list[tuple[str, str]] = []
        with pytest.raises(errors.Expired, match="too old resource version"):
            while batch := await watch.batch():
                got += [(event.type, event.object.metadata.resource_version) for event in batch]
        assert got == [("ADDED", "2"), ("BOOKMARK", "9"), ("DELETED", "10")]
        watch.close()
        request = api.requests[0]
        assert request.option("resourceVersion") == "1"
        assert request.option("allowWatchBookmarks") == "true"
        assert request.option("timeoutSeconds") == "5"


async def test_untyped_kinds_stay_trees(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        tree = config_map("a", 2) | {"unheard": {"of": 1}}
        api.objects = [tree]
        assert (await client.list(CONFIG_MAP.untyped)).items == [tree]
        watch = await client.open_watch(CONFIG_MAP.untyped, resource_version="2")
        await api.watching()
        api.feed(("MODIFIED", tree), ("ERROR", expired()))
        assert [event.object for event in await watch.batch()] == [tree]
        with pytest.raises(errors.Expired):
            await watch.batch()
        watch.close()
