"""Coroutines that begin without a loop and go on in one when they must."""

from __future__ import annotations

import asyncio

import pytest

from j2c_lab import loops


async def plain(value: int) -> int:
    return value


async def late(value: int) -> int:
    before = loops.has_loop()
    await plain(0)
    await loops.need_loop()
    await loops.need_loop()
    await asyncio.sleep(0)
    assert loops.has_loop()
    return value + before


def test_what_never_waits_runs_without_a_loop() -> None:
    assert loops.run(plain(3)) == 3


def test_what_has_to_wait_goes_on_in_a_loop_with_all_it_had() -> None:
    assert loops.run(late(3)) == 3


def test_in_a_loop_none_is_begun() -> None:
    assert asyncio.run(late(3)) == 4


def test_an_error_and_an_error_in_the_loop_come_out() -> None:
    async def fail(with_loop: bool) -> None:
        if with_loop:
            await loops.need_loop()
        raise ValueError

    for with_loop in (False, True):
        with pytest.raises(ValueError):
            loops.run(fail(with_loop))


def test_asyncio_used_unannounced_is_a_plain_error() -> None:
    async def wrong() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="need_loop"):
        loops.run(wrong())
