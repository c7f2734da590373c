"""A second event loop, in a thread, for everything that waits for the store.

A store on a slow network file system may block for a moment in any call; the server's own loop
must not.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread:
    """An event loop in a daemon thread; it ends with the server's process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="j2c-engine", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine there, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for it here; cancelling here cancels there."""
        return await asyncio.wrap_future(self.start(work))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
