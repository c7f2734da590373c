"""From the spool to the store: cuts the records into segments and puts them, whatever happens.

The open segment is put again with more records until it is sealed. A put whose fate is unknown (a
time-out, a lost connection) may still arrive later, so its bytes are put again unchanged until an
answer comes, and then nothing more is written under that name: a late arrival changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from j2c_lab.errors import J2CError
from j2c_lab.formats.journal import SEAL, JournalRecord, encode_record, encode_segment_start
from j2c_lab.store.base import Store
from j2c_lab.unpack.spool import BURST, Mark, Spool

#: Seconds between two puts of one segment: bounds the requests, and the followers' latency.
INTERVAL = 0.2
#: A segment of this size is sealed: bounds what is put again.
_SEAL_SIZE = 256 << 10
#: Seconds that one put may take before it is tried again.
_PUT_TIMEOUT = 60.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0


class Uploader:
    """Uploads one journal; all methods but `wake` belong to the event loop's thread.

    Parameters
    ----------
    key_of : callable
        The store's key of a segment's number.
    segment : int
        Number of the first segment to write.
    interval, pause : float
        Seconds between puts of one segment, and before a put is tried again the first time.
    """

    def __init__(
        self,
        store: Store,
        spool: Spool,
        key_of: Callable[[int], str],
        segment: int = 1,
        *,
        interval: float = INTERVAL,
        pause: float = _FIRST_PAUSE,
    ) -> None:
        self._store = store
        self._spool = spool
        self._key_of = key_of
        self._segment = segment
        self._interval = interval
        self._first_pause = pause
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._finishing = False
        self._woken = False

    def wake(self) -> None:
        """Say that the spool has something new; for any thread, and cheap when called often."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._news.set)

    def finish(self) -> None:
        """Let `run` return when everything has arrived."""
        self._finishing = True
        self._news.set()

    async def run(self) -> None:
        """Upload until `finish` was called and the store has every record."""
        start = acknowledged = self._spool.start
        last = 0.0
        while True:
            end = self._spool.until(start)
            if end.position == acknowledged.position:
                if self._finishing:
                    return
                await self._news.wait()
                self._news.clear()
                self._woken = False
                continue
            if acknowledged.position > start.position and not self._finishing:
                await self._pause(last + self._interval)
                end = self._spool.until(start)
            last = time.monotonic()
            sealed = self._is_full(start, end) or self._finishing
            certain = await self._put(start, end, sealed)
            acknowledged = end
            if sealed or not certain:
                self._segment += 1
                start = end
            self._spool.forget(start)

    def _is_full(self, start: Mark, end: Mark) -> bool:
        return end.position - start.position >= _SEAL_SIZE

    async def _pause(self, until: float) -> None:
        left = until - time.monotonic()
        while left > 0 and not self._finishing and self._spool.waiting < BURST:
            self._news.clear()
            self._woken = False
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except (TimeoutError, asyncio.TimeoutError):
                return
            left = until - time.monotonic()

    async def _put(self, start: Mark, end: Mark, sealed: bool) -> bool:
        """Put a segment until it has arrived; returns whether the first answer was certain."""
        body = encode_segment_start(self._segment, start.number, start.at)
        body += self._spool.read(start, end)
        if sealed:
            body += encode_record(JournalRecord(end.number, time.time(), SEAL))
        certain = True
        pause = self._first_pause
        while True:
            try:
                put = self._store.put(self._key_of(self._segment), body, once=True)
                await asyncio.wait_for(put, _PUT_TIMEOUT)
                return certain
            except (J2CError, OSError, TimeoutError, asyncio.TimeoutError):
                certain = False
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
