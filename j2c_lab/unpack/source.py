"""The bytes of a stored object, for code that runs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from j2c_lab.errors import NotFoundError
from j2c_lab.store.opener import open_store

if TYPE_CHECKING:
    import asyncio

    from j2c_lab.store.base import Store

_PIECE = 1 << 16


class ObjectSource:
    """Reads objects of one store, one after another, in the calling thread."""

    def __init__(self, store_url: str) -> None:
        self._store: Store = open_store(store_url)
        self._loop: asyncio.AbstractEventLoop | None = None

    def pieces(self, key: str) -> Iterator[bytes]:
        """Yield an object's bytes; raises `NotFoundError` or `StoreError`."""
        path = self._store.local_path(key)
        if path is None:
            yield from self._read(key)
            return
        try:
            # Unbuffered: the pieces go straight to the decompressor.
            with open(path, "rb", buffering=0) as file:
                while piece := file.read(_PIECE):
                    yield piece
        except FileNotFoundError:
            raise NotFoundError(f"the store has no {key}", "submit the run again") from None

    def close(self) -> None:
        """Release the store's connections."""
        if self._loop is not None:
            self._loop.run_until_complete(self._store.close())
            self._loop.close()

    def _read(self, key: str) -> Iterator[bytes]:
        # Costs 65 ms to import, and a directory store needs none.
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        reader = self._store.read(key)
        while True:
            try:
                yield self._loop.run_until_complete(anext(reader))
            except StopAsyncIteration:
                return
