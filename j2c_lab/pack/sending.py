"""Finds out what the store lacks, makes it, and sends it."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from j2c_lab.errors import PackError
from j2c_lab.pack.file_hashes import cache_directory
from j2c_lab.pack.items import Item, carried
from j2c_lab.pack.layer_writer import LayerResult, unreadable_error
from j2c_lab.pack.progress import Meter
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.store.renewal import counted_on

if TYPE_CHECKING:
    from j2c_lab.pack.pool import Workers

#: Takes one event: a JSON object with a key `event` (docs/events.md).
Report = Callable[[dict[str, Any]], None]

#: Layers that may lie finished and wait for the store, beyond those being made.
_WAITING = 4
#: Files of packs that were killed are removed from the staging directory after this many seconds.
_STALE = 24 * 3600.0
_STAGED = "layer-"
#: Seconds between two writes of what was learned: what a pack that is killed may forget.
_SAVE_EVERY = 1.0


class Sender:
    """Brings the layers of one pack into the store."""

    def __init__(
        self, items: list[Item], store: Store, report: Report, *, writes: bool = True
    ) -> None:
        self._items = items
        self._writes = writes
        self._store = store
        self._report = report
        self._saved = time.monotonic()
        self._uploads = Meter(report, "sending", None, None, stage="upload")

    async def ask_store(self) -> None:
        """Find out, with one question, which of the foretold layers the store has."""
        await self._ask(carried(self._items))

    async def hash_layers(self, *, everything: bool) -> None:
        """Read, without compressing, what may turn out not to be needed in the store.

        Those are the layers that it seems to have, those that the base image seems to have, and
        with `everything` all others too.
        """
        todo = [
            item
            for item in self._items
            if not item.certain and (everything or item.present or item.may_be_in_base)
        ]
        await self._work(todo, "checking", lambda item: item.foretold.unread_size, self._check)
        await self._ask([item for item in todo if not item.present and not item.in_base])

    async def make_layers(self) -> None:
        """Make and send what the store lacks."""
        todo = [item for item in carried(self._items) if not (item.certain and item.present)]
        if todo:
            staging = staging_directory(self._store)
            make = functools.partial(self._make, staging)
            try:
                await self._work(todo, "packing", lambda item: item.unpacked_size, make)
            finally:
                # A worker can begin a file just after it was removed; by now all have ended.
                for item in todo:
                    _remove(_staged_path(staging, item))

    def save_caches(self) -> None:
        """Write what was learned, for the next pack."""
        for item in self._items:
            item.remember()
        for cache in {id(item.cache): item.cache for item in self._items}.values():
            cache.save()
        self._saved = time.monotonic()

    async def _work(
        self,
        todo: list[Item],
        what: str,
        size_of: Callable[[Item], int],
        work: Callable[[Workers, Item], Awaitable[None]],
    ) -> None:
        """Do something to several layers at once, the largest first, and report progress."""
        if not todo:
            return
        from j2c_lab.pack.pool import run_all, workers_for

        todo = sorted(todo, key=size_of, reverse=True)
        total = sum(map(size_of, todo))
        meter = Meter(self._report, what, total, sum(len(item.plan.files) for item in todo))
        try:
            async with workers_for(len(todo), total, meter.advance) as workers:
                jobs = [functools.partial(work, workers, item) for item in todo]
                await run_all(jobs, workers.size + _WAITING)
        except PackError as error:
            if error.details:
                files = [file for item in self._items for file in item.plan.files]
                raise unreadable_error(files) from None
            raise
        meter.finish()

    async def _check(self, workers: Workers, item: Item) -> None:
        self._learn(item, await workers.hash(item.plan.files, item.foretold.known))

    async def _make(self, staging: str, workers: Workers, item: Item) -> None:
        path = _staged_path(staging, item)
        try:
            result = await workers.pack(item.plan.files, path)
            foretold = item.digest
            self._learn(item, result)
            if item.in_base:
                return
            if item.digest != foretold:
                # Nobody has asked for this one yet.
                await self._ask([item])
            if not item.present:
                await self._send(item, result, path)
        finally:
            _remove(path)

    async def _send(self, item: Item, result: LayerResult, path: str) -> None:
        key = layout.layer(result.digest)
        # A store on this machine takes the file as it is; there is nothing to watch.
        far = self._store.local_path(key) is None
        item.sent = await self._store.put_file(
            key,
            Path(path),
            if_absent=True,
            consume=True,
            progress=(lambda size: self._uploads.advance(size, 0)) if far else None,
        )
        item.present = True
        item.packed_size = result.packed_size
        if not item.sent:
            await self._ask([item])

    def _learn(self, item: Item, result: LayerResult) -> None:
        item.learn(result)
        if time.monotonic() - self._saved > _SAVE_EVERY:
            self.save_caches()

    async def _ask(self, items: Sequence[Item]) -> None:
        """Find out which of these layers the store has, and their sizes there."""
        keys = {layout.layer(item.digest) for item in items if item.digest}
        if not keys:
            return
        found = await self._store.stat(sorted(keys))
        if self._writes:
            found = await counted_on(self._store, found)
        for item in items:
            info = found.get(layout.layer(item.digest)) if item.digest else None
            if info is not None:
                item.present = True
                item.packed_size = info.size


def staging_directory(store: Store) -> str:
    """Return the directory for layers that are being made, freed of what killed packs left."""
    directory = store.staging()
    path = os.path.join(cache_directory(), "staging") if directory is None else str(directory)
    os.makedirs(path, exist_ok=True)
    limit = time.time() - _STALE
    with os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(_STAGED) and entry.stat().st_mtime < limit:
                    os.unlink(entry.path)
    return path


def _staged_path(staging: str, item: Item) -> str:
    return os.path.join(staging, f"{_STAGED}{os.getpid()}-{id(item):x}")


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
