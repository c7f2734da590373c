"""Removing layers and bundles that no kept run needs.

Safe beside packs and starting jobs on other machines: see `store.renewal`. Bundles go before the
layers they list, and what is unreadable is kept, so that a `gc` killed anywhere leaves nothing
that points at what is gone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import Callable
from typing import Any

from j2c_lab.errors import FormatError, NotFoundError, UsageError
from j2c_lab.formats.manifest import Manifest
from j2c_lab.formats.run import Run
from j2c_lab.store import layout
from j2c_lab.store.base import ObjectInfo, Store
from j2c_lab.store.renewal import NEVER_DELETED_BEFORE

Report = Callable[[dict[str, Any]], None]

#: Objects that are looked at once more and deleted together: few, so that the looks are fresh.
_BATCH = 100
#: Documents read at once.
_READS = 16


@dataclasses.dataclass
class Collected:
    """What was removed, or would be."""

    bundles: int = 0
    layers: int = 0
    #: Bytes of both.
    bytes: int = 0
    #: What interrupted writes had left.
    leftovers: int = 0
    kept_layers: int = 0

    def summary(self, dry_run: bool) -> dict[str, Any]:
        """Return the event `collected`."""
        return {"event": "collected", "dry_run": dry_run, **dataclasses.asdict(self)}


async def collect(store: Store, older_than: float, dry_run: bool = False) -> Collected:
    """Delete bundles and layers that no run needs and that are older than `older_than` seconds.

    Parameters
    ----------
    store : Store
    older_than : float
        Seconds since an object was written or last counted on; two days at least.
    dry_run : bool
        Only say what would go.

    Raises
    ------
    UsageError
        The time is too short to be safe.
    FormatError
        A run or a bundle cannot be read: what it needs is not known, so nothing goes.
    """
    if older_than < NEVER_DELETED_BEFORE:
        raise UsageError(
            "--older-than is too short: a pack on another machine may count on younger layers",
            "give 2d or more",
        )
    limit = await _now_of(store) - older_than
    # Candidates first: what a run written from here on needs was renewed before, and is young.
    layers = [info async for info in store.scan(layout.LAYERS)]
    bundles = [info async for info in store.scan(layout.BUNDLES)]
    needed_bundles = await _bundles_of_runs(store)
    old = [b for b in bundles if b.modified < limit and b.key not in needed_bundles]
    gone = {info.key for info in old}
    needed = await _layers_of_bundles(store, [b.key for b in bundles if b.key not in gone])
    unneeded = [info for info in layers if info.modified < limit and info.key not in needed]
    result = Collected(kept_layers=len(layers) - len(unneeded))
    try:
        for found, name in ((old, "bundles"), (unneeded, "layers")):
            removed = found if dry_run else await _delete(store, found, limit)
            setattr(result, name, len(removed))
            result.bytes += sum(info.size for info in removed)
    finally:
        if not dry_run:
            await store.delete([layout.COLLECTING])
    result.kept_layers = len(layers) - result.layers
    if not dry_run:
        result.leftovers = await store.sweep(older_than)
    return result


async def _now_of(store: Store) -> float:
    """The store's own clock: what objects' ages are told by."""
    key = layout.check(secrets.token_hex(8), "clock")
    await store.put(key, b"")
    try:
        return (await store.stat([key]))[key].modified
    finally:
        await store.delete([key])


async def _bundles_of_runs(store: Store) -> set[str]:
    keys = [info.key async for info in store.scan(layout.RUNS) if info.key.endswith("/run.json")]

    async def bundle_of(key: str) -> str | None:
        try:
            return layout.bundle(Run.from_json(await store.get(key)).bundle)
        except NotFoundError:
            return None  # deleted meanwhile
        except FormatError as error:
            run_id = key.split("/")[-2]
            raise FormatError(
                f"{key} in the store is damaged, and without it nothing is known to be unused: "
                f"{error.message}",
                f"bring it back, or remove the run: j2c rm {run_id}",
            ) from error

    return {key for key in await _each(keys, bundle_of) if key is not None}


async def _layers_of_bundles(store: Store, keys: list[str]) -> set[str]:
    async def layers_of(key: str) -> list[str]:
        try:
            manifest = Manifest.from_json(await store.get(key))
        except NotFoundError:
            return []
        return [layout.layer(ref.digest) for ref in manifest.layers]

    return {layer for layers in await _each(keys, layers_of) for layer in layers}


async def _each(keys: list[str], read: Callable[[str], Any]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(keys), _READS):
        found += await asyncio.gather(*map(read, keys[start : start + _READS]))
    return found


async def _delete(store: Store, found: list[ObjectInfo], limit: float) -> list[ObjectInfo]:
    """Delete those that are still old, under the sign that packs on other machines look for."""
    removed: list[ObjectInfo] = []
    for start in range(0, len(found), _BATCH):
        batch = found[start : start + _BATCH]
        await store.put(layout.COLLECTING, b"")
        fresh = await store.stat([info.key for info in batch])
        still = [fresh[info.key] for info in batch if info.key in fresh]
        still = [info for info in still if info.modified < limit]
        await store.delete([info.key for info in still])
        removed += still
    return removed
