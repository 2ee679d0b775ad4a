"""Lists of stages: what is left of them where a part is known, and how they are run."""

from __future__ import annotations

import asyncio

import pytest

from hekla.local.apiserver.request.status import Refusal
from hekla.local.apiserver.storage.collection import WriteLost
from hekla.local.apiserver.write import create_cache, partial_update, status_patch_cache
from hekla.local.apiserver.write.creating import CREATE
from hekla.local.apiserver.write.stages import On, Stage, remaining, run_steps
from hekla.local.apiserver.write.updating import UPDATE

Words = list[str]


def first(words: Words) -> None:
    words.append("first")


async def _second(words: Words) -> None:
    await asyncio.sleep(0)
    words.append("second")


def second(words: Words) -> object:
    return _second(words)


def third(words: Words) -> None:
    words.append("third")


def shorter(words: Words) -> None:
    words.append("shorter")


STAGES: tuple[Stage[Words], ...] = (
    Stage(first, On.CONTENT),
    Stage(second, On.CONTENT | On.METADATA),  # type: ignore[arg-type]  # what it gives is awaited
    Stage(third, On.MOMENT),
)


async def test_steps_run_in_order_and_are_waited_for() -> None:
    words: Words = []
    await run_steps([stage.run for stage in STAGES], words)
    assert words == ["first", "second", "third"]


async def test_a_stage_that_depends_on_what_is_known_alone_is_left_out() -> None:
    words: Words = []
    await run_steps(remaining(STAGES, On.CONTENT, {second: shorter}), words)
    assert words == ["shorter", "third"]


def test_a_stage_can_be_done_by_another_step() -> None:
    assert remaining(STAGES, On(0), {second: shorter, third: None}) == (first, shorter)


async def test_a_write_that_the_disk_refuses_is_refused_to_the_client() -> None:
    def lost(words: Words) -> None:
        raise WriteLost("the disk is full")

    with pytest.raises(Refusal, match="the disk is full") as refused:
        await run_steps((lost,), [])
    assert refused.value.code == 500


@pytest.mark.parametrize(
    "whole, instead",
    [
        (CREATE, create_cache.INSTEAD),
        (UPDATE, partial_update.INSTEAD),
        (UPDATE, status_patch_cache.INSTEAD),
    ],
)
def test_only_stages_of_the_list_are_replaced(whole: object, instead: object) -> None:
    assert isinstance(whole, tuple) and isinstance(instead, dict)
    assert instead.keys() <= {stage.run for stage in whole}


def test_what_is_left_of_a_create_whose_spec_is_known() -> None:
    names = [step.__name__ for step in create_cache.REMAINING]
    assert "default" not in names and "decode" not in names
    assert names[-3:] == ["admit", "store", "answer"]
