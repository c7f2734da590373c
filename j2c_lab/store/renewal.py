"""How a pack counts on layers that are there already, beside a `j2c gc` on another machine.

Whoever counts on an object that is over a day old renews it first, and `j2c gc` deletes nothing
that is younger than two days. What remains is the moment between the last look of `gc` at an old
object and its deletion. For that, `gc` first puts the object `layout.COLLECTING`, then looks, then
deletes; whoever renews looks for that object afterwards. If it is not there, a `gc` that begins
now will see the renewal. If it is, one waits until it is gone, and looks again what there is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from j2c_lab.store import layout
from j2c_lab.store.base import ObjectInfo, Store

#: Seconds. Older objects are renewed before they are counted on.
RENEWED_AFTER = 24 * 3600.0
#: Nothing younger is ever deleted by `j2c gc`.
NEVER_DELETED_BEFORE = 2 * RENEWED_AFTER
#: A `gc` that has not said so for this long was killed.
COLLECTING_FOR = 15 * 60.0


def is_young(info: ObjectInfo, now: float | None = None) -> bool:
    """Return whether an object can be counted on as it is."""
    return (time.time() if now is None else now) - info.modified < RENEWED_AFTER


async def counted_on(store: Store, found: Mapping[str, ObjectInfo]) -> dict[str, ObjectInfo]:
    """Return what of `found` is there and will stay for a day, the old of it renewed.

    Costs nothing when all of it is young.
    """
    old = [key for key, info in found.items() if not is_young(info)]
    if not old:
        return dict(found)
    there = await store.renew(old)
    if await _collecting(store):
        there = set(await store.stat(sorted(there)))
    return {key: info for key, info in found.items() if key not in old or key in there}


async def _collecting(store: Store) -> bool:
    """Return whether a `gc` was at work; waits until it is not."""
    seen = False
    while True:
        info = (await store.stat([layout.COLLECTING])).get(layout.COLLECTING)
        if info is None or time.time() - info.modified > COLLECTING_FOR:
            return seen
        seen = True
        # Here alone: a pack into a directory goes without it, and it takes 50 ms to load.
        import asyncio

        await asyncio.sleep(0.5)
