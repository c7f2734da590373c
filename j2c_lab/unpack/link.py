"""The store, used from ordinary code: one thread with an event loop of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from j2c_lab.errors import J2CError, StoreError
from j2c_lab.unpack.spool import Spool

if TYPE_CHECKING:
    import asyncio

    from j2c_lab.store.base import Store
    from j2c_lab.unpack.uploader import Uploader

T = TypeVar("T")

#: Seconds between two looks for `cancel.json`: a directory costs nothing, a server a request.
_WATCH_LOCAL = 0.5
_WATCH_REMOTE = 5.0


class StoreLink:
    """Runs store calls and the journal's upload; never makes the caller wait beyond a time-out.

    The thread is a daemon: a file system that hangs in the kernel cannot keep the process alive.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop: asyncio.AbstractEventLoop
        self._store: Store
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._uploader: Uploader | None = None
        self._upload: Any = None
        self._thread = threading.Thread(target=self._serve, name="j2c-store", daemon=True)
        self._thread.start()

    def call(self, use: Callable[[Store], Awaitable[T]], timeout: float | None = None) -> T:
        """Return what `use` makes of the store.

        Raises
        ------
        StoreError
            The store failed, or did not answer within `timeout` seconds.
        """
        import asyncio
        import concurrent.futures

        self._wait_ready()

        async def work() -> T:
            return await use(self._store)

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result(timeout)
        except (concurrent.futures.TimeoutError, TimeoutError):
            future.cancel()
            raise StoreError(f"the store did not answer within {timeout:.0f} s") from None

    def upload_journal(
        self, spool: Spool, key_of: Callable[[int], str], segment: int = 1
    ) -> Callable[[], None]:
        """Begin to upload; returns what to call when the spool has something new."""
        from j2c_lab.unpack.uploader import Uploader

        async def begin(store: Store) -> None:
            self._uploader = Uploader(store, spool, key_of, segment)
            self._upload = self._loop.create_task(self._uploader.run())

        self.call(begin)
        assert self._uploader is not None
        return self._uploader.wake

    def finish_journal(self, timeout: float) -> bool:
        """Wait until the store has every record; False when it has not within `timeout` seconds."""
        import asyncio

        async def finish(store: Store) -> bool:
            assert self._uploader is not None
            self._uploader.finish()
            done, _ = await asyncio.wait([self._upload], timeout=timeout)
            if not done:
                self._upload.cancel()
            elif self._upload.exception() is not None:
                return False
            return bool(done)

        try:
            return self.call(finish, timeout + 5)
        except StoreError:
            return False

    def watch(self, key: str, seen: Callable[[bytes], None]) -> None:
        """Look for an object from time to time and call `seen` with its bytes, once."""
        import asyncio

        async def look(store: Store) -> None:
            pause = _WATCH_LOCAL if store.local_path(key) else _WATCH_REMOTE
            while True:
                with contextlib.suppress(J2CError, OSError):
                    if await store.stat([key]):
                        seen(await store.get(key))
                        return
                await asyncio.sleep(pause)

        async def begin(store: Store) -> None:
            # The loop keeps only weak references to tasks.
            self._watcher = self._loop.create_task(look(store))

        self.call(begin)

    def close(self) -> None:
        """Stop the thread; what has not arrived stays in the spool."""
        import asyncio

        if self._error is not None:
            return

        async def stop() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(J2CError, OSError):
                await self._store.close()
            self._loop.stop()

        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(stop()))
        self._thread.join(5)

    def _wait_ready(self) -> None:
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def _serve(self) -> None:
        # 65 ms, and in the main thread it would come before anything else.
        import asyncio

        from j2c_lab.store.opener import open_store

        try:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
            self._store = open_store(self.url)
        except BaseException as error:
            self._error = error
            self._loop.close()
            self._ready.set()
            return
        self._loop.call_soon(self._ready.set)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
