"""How answers are compared: what a server chooses freely says nothing, everything else must be
equal or intended."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.api import Answer
from tests.kubernetes import differences, normal
from tests.kubernetes.differences import between, report, sorted_out
from tests.kubernetes.exchange import Script, Step

STEP = Step("GET", "/api/v1/namespaces/x/configmaps/a")
SCRIPT = Script("a story", (STEP,))


def answer(body: Any, status: int = 200, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, [("Content-Type", "application/json"), *headers.items()], raw)


def places(one: Answer, other: Answer) -> list[str]:
    return [difference.place for difference in between(SCRIPT, STEP, one, other)]


def made(uid: str, version: str, seconds: int) -> dict[str, Any]:
    stamp = f"2026-05-06T07:08:{seconds:02}Z"
    return {
        "metadata": {
            "name": "a",
            "uid": uid,
            "resourceVersion": version,
            "creationTimestamp": stamp,
        },
        "data": {"k": "v"},
    }


def test_what_a_server_chooses_itself_is_no_difference() -> None:
    one, other = (
        made("11111111-2222-3333-4444-555555555555", "5", 1),
        made("aaaaaaaa-2222-3333-4444-555555555555", "777", 59),
    )
    assert places(answer(one), answer(other)) == []


def test_a_random_name_is_compared_up_to_where_it_is_random() -> None:
    one, other = (
        {"metadata": {"generateName": "job-", "name": name}} for name in ("job-x2b4c", "job-zzzzz")
    )
    assert places(answer(one), answer(other)) == []
    assert places(
        answer(one), answer({"metadata": {"generateName": "job-", "name": "job-aeiou"}})
    ) == [".metadata.name"]


def test_every_value_that_differs_is_told_with_its_place() -> None:
    one, other = made("u", "5", 1), made("u", "5", 1)
    other["data"] = {"k": "w", "more": "1"}
    assert places(answer(one), answer(other)) == [".data.k", ".data.more"]
    assert places(answer({"a": 1}), answer({"a": "1"})) == [".a"]
    assert places(answer({"a": 1}), answer({"a": 1.0})) == [".a"]


def test_lists_of_named_things_are_compared_by_name() -> None:
    one = {"items": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]}
    assert places(answer(one), answer({"items": [{"name": "b", "x": 1}]})) == [".items[a]"]
    assert places(
        answer(one), answer({"items": [{"name": "b", "x": 1}, {"name": "a", "x": 1}]})
    ) == [".items (order)"]


def test_events_of_a_stream_are_compared_one_by_one() -> None:
    one = answer(b'{"type":"ADDED","object":{}}\n{"type":"DELETED","object":{}}\n')
    assert places(
        one, answer(b'{"type":"ADDED","object":{}}\n{"type":"MODIFIED","object":{}}\n')
    ) == ["[1].type"]


def test_another_status_is_told_alone() -> None:
    refusal = {"kind": "Status", "message": "no such thing", "code": 404}
    (found,) = between(SCRIPT, STEP, answer(refusal, 404), answer({}, 200))
    assert (found.place, found.reference, found.ours) == ("status", "404 no such thing", "200 ")


def test_warnings_and_other_headers_count() -> None:
    assert places(answer({}, Warning='299 - "old"'), answer({})) == ["header warning"]
    assert places(answer({}, Date="now"), answer({}, Date="then")) == []


def test_the_same_mistake_said_twice_is_said_once() -> None:
    cause = {"field": "metadata.labels", "message": "no"}
    assert normal.tree({"causes": [cause, cause]}) == {"causes": [cause]}


def test_what_is_intended_is_sorted_out_and_the_rest_reported() -> None:
    described = {"columnDefinitions": [{"name": "Age", "description": "one"}], "rows": 1}
    other = {"columnDefinitions": [{"name": "Age", "description": "two"}], "rows": 2}
    rest, met = sorted_out(between(SCRIPT, STEP, answer(described), answer(other)))
    assert [difference.place for difference in rest] == [".rows"] and sum(met.values()) == 1
    assert "1 x .rows" in report(rest) and "reference: 1" in report(rest)


def test_a_difference_names_the_request() -> None:
    (found,) = between(
        SCRIPT,
        Step("GET", "/a", accept="text/html", query={"b": "c"}),
        answer({"a": 1}),
        answer({"a": 2}),
    )
    assert found.request == "GET /a?b=c accept text/html"
    assert differences.ABSENT not in str(found)
