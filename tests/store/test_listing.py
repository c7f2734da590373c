"""Lists of servers that sort by directories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.store.base import ObjectInfo
from j2c_lab.store.listing import may_come, safe_start, sorted_as_bytes

component = st.text("a0-.z", min_size=1, max_size=3)
keys = st.lists(st.lists(component, min_size=1, max_size=4).map("/".join), max_size=12, unique=True)


def by_directory(found: list[str]) -> list[str]:
    return sorted(found, key=lambda key: key.split("/"))


def listed(found: list[str], prefix: str, start: str) -> list[str]:
    """What SeaweedFS gives: a directory of just the name that it starts after is skipped."""
    return [
        key
        for key in by_directory(found)
        if key.startswith(prefix)
        and (not start or key.split("/") > start.split("/"))
        and not key.startswith(start + "/" if start else "//")
    ]


@given(keys, component, st.booleans())
def test_any_order_of_the_server_comes_out_sorted_as_bytes(
    found: list[str], start: str, bytewise: bool
) -> None:
    given_ = sorted(found) if bytewise else by_directory(found)
    below = [key for key in given_ if key.startswith(start)]

    async def infos() -> AsyncIterator[ObjectInfo]:
        for key in below:
            yield ObjectInfo(key, 0, 0.0)

    async def collect() -> list[str]:
        return [info.key async for info in sorted_as_bytes(infos(), start)]

    assert asyncio.run(collect()) == sorted(below)


@given(keys, st.lists(component, min_size=1, max_size=4).map("/".join), st.integers(0, 6))
def test_a_start_skips_nothing_that_sorts_after_it(
    found: list[str], after: str, length: int
) -> None:
    prefix = after[:length]
    start = safe_start(prefix, after)
    wanted = {key for key in found if key.startswith(prefix) and key > after}
    assert wanted <= set(listed(found, prefix, start))
    assert wanted <= {key for key in found if key > start}


@given(keys, component)
def test_a_key_that_may_not_come_was_listed_before(found: list[str], reached: str) -> None:
    for order in (sorted([*found, reached]), by_directory([*found, reached])):
        behind = order[order.index(reached) + 1 :]
        assert all(may_come(key, reached) for key in behind if key != reached)


def test_a_start_stays_near() -> None:
    prefix = "runs/a.b/20261201-025028-7f3a9c/attempts/1/0/journal/"
    assert safe_start(prefix, f"{prefix}0000000041") == f"{prefix}000000004"
