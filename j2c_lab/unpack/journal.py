"""The writing side of the journal: records in order, on disk at once, in the store soon after.

Whoever writes never waits for the store. What the store cannot take waits in the spool up to a
limit; beyond it log bytes are dropped and counted in a `gap` record, never silently.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from j2c_lab.formats.journal import EVENT, GAP, LOG, JournalRecord, encode_record
from j2c_lab.unpack.metrics import MetricLines
from j2c_lab.unpack.spool import Spool

#: Kept free for events and the gap's own record when log bytes fill the spool.
_RESERVE = 1 << 20
_TAIL = 2048
DEFAULT_LIMIT = 2 << 30


class Journal:
    """Numbers records and hands them to the spool. May be called from any thread.

    Parameters
    ----------
    spool : Spool
        Where records wait.
    limit : int
        Most bytes that may wait.
    wake : callable
        Called when there is something new.
    tell : callable, optional
        Is given every record that was kept.
    """

    def __init__(
        self,
        spool: Spool,
        limit: int = DEFAULT_LIMIT,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        tell: Callable[[JournalRecord], None] | None = None,
    ) -> None:
        self.spool = spool
        self._limit = max(limit, 2 * _RESERVE)
        self._wake = wake
        self._clock = clock
        self._tell = tell
        self._lock = threading.RLock()
        self._number = spool.end.number
        self._at = spool.end.at
        self._lost = 0
        #: The last of what the process wrote: its exception, mostly.
        self.tail = b""
        self._metrics: dict[str, MetricLines] = {}

    @property
    def records(self) -> int:
        """Number of records so far."""
        return self._number - 1

    def log(self, stream: str, data: bytes) -> None:
        """Write what the user's process wrote, byte for byte."""
        with self._lock:
            self.tail = (self.tail + data[-_TAIL:])[-_TAIL:]
            if self.spool.waiting + len(data) > self._limit - _RESERVE:
                self._lost += len(data)
            else:
                self._write_gap()
                if self._lost or not self._append(LOG, data, stream, self._at + len(data)):
                    self._lost += len(data)
            if stream not in self._metrics:
                self._metrics[stream] = MetricLines()
            for values in self._metrics[stream].feed(data):
                self.event({"event": "metrics", **values})

    def event(self, event: dict[str, Any]) -> None:
        """Write an event; dropped only when the disk itself is full."""
        payload = json.dumps(event, separators=(",", ":")).encode()
        with self._lock:
            self._write_gap()
            self._append(EVENT, payload)

    def stage(self, stage: str, state: str, **details: Any) -> None:
        """Write that a stage began, is done or failed."""
        event = {"event": "stage", "stage": stage, "state": state, "at": round(self._clock(), 3)}
        self.event({**event, **details})

    def finish(self) -> int:
        """Write what is still to be said of lost bytes; returns the number of records."""
        with self._lock:
            self._write_gap(at_end=True)
            return self.records

    def _write_gap(self, at_end: bool = False) -> None:
        """Say how many bytes were lost, once there is room again or it is the end."""
        if not self._lost:
            return
        room = self.spool.waiting < self._limit - 2 * _RESERVE
        if not room and not at_end:
            return
        lost = self._lost
        payload = json.dumps({"event": "gap", "bytes": lost}).encode()
        if self._append(GAP, payload, at_after=self._at + lost, at=self._at):
            self._lost = 0

    def _append(
        self,
        kind: str,
        payload: bytes,
        stream: str = "",
        at_after: int | None = None,
        at: int = -1,
    ) -> bool:
        if kind == LOG:
            at = self._at
        record = JournalRecord(self._number, self._clock(), kind, payload, stream, at)
        after = self._at if at_after is None else at_after
        try:
            self.spool.append(encode_record(record), after)
        except OSError:
            return False
        self._number += 1
        self._at = after
        self._wake()
        if self._tell is not None:
            self._tell(record)
        return True
