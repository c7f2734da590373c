"""Lists as the contract wants them, from servers that sort otherwise.

S3 sorts keys as bytes. Servers on top of a file system (SeaweedFS) sort each directory by its
names: they give `a/x` before `a-b`, though `-` sorts before `/`, and take `StartAfter` in that
order too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from j2c_lab.store.base import ObjectInfo


async def sorted_as_bytes(
    found: AsyncIterator[ObjectInfo], prefix: str
) -> AsyncIterator[ObjectInfo]:
    """Yield what a server listed below `prefix`, sorted as bytes, holding back little.

    In either order, names that begin with one and the same name stand together, and the shortest
    comes first where directories are sorted by name. So a group ends at the first name that does
    not begin with the group's first one, and only within a group the orders differ.
    """
    group: list[ObjectInfo] = []
    stem = ""
    async for info in found:
        name = info.key[len(prefix) :].split("/", 1)[0]
        if group and not name.startswith(stem):
            for held in sorted(group):
                yield held
            group.clear()
        if not group:
            stem = name
        group.append(info)
    for held in sorted(group):
        yield held


def safe_start(prefix: str, after: str) -> str:
    """Return a `StartAfter` that skips nothing that sorts after `after`, in either order."""
    # Where a character below `/` stands, a directory of the shorter name comes before.
    places = range(len(prefix), len(after))
    low = next((place for place in places if after[place] < "/"), len(after))
    for end in range(low - 1, len(prefix), -1):
        # A directory of just this name would be skipped with all that it holds.
        if after[end] != "/" and after[end - 1] != "/":
            return after[:end]
    return ""


def may_come(key: str, reached: str) -> bool:
    """Return whether a list that has reached one key may still name another, in either order."""
    return key > reached or key.split("/") > reached.split("/")
