"""Any part of a log, found by bytes or by record, without reading what comes before it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from j2c_lab.errors import FormatError
from j2c_lab.formats.journal import EVENT, LOG, JournalRecord, SegmentParser
from j2c_lab.runs.ledger import Ledger
from j2c_lab.store import layout

#: Points of a metric that are answered; more are thinned out.
_MOST_POINTS = 4000


class Head(NamedTuple):
    """What a segment's first line says of its first record."""

    number: int
    at: int


class LogReader:
    """The journal of one rank of an attempt, read at random."""

    def __init__(self, ledger: Ledger, run_id: str, attempt: int, rank: int = 0) -> None:
        self._store = ledger.store
        self._where = (ledger.user, run_id, attempt, rank)
        self._heads: dict[int, Head] = {}

    async def size(self) -> int:
        """Return the number of log bytes so far."""
        segments = await self._segments()
        if not segments:
            return 0
        size = (await self._head(segments[-1])).at
        async for record in self._records(segments[-1]):
            if record.kind == LOG:
                size = record.at + len(record.payload)
        return size

    async def segment_of_byte(self, at: int) -> int:
        """Return the segment that holds the log byte at this place; 1 when there is none yet."""
        return await self._last_where(lambda head: head.at <= at)

    async def segment_of_record(self, number: int) -> int:
        """Return the segment that holds the record with this number."""
        return await self._last_where(lambda head: head.number <= number)

    async def read(self, start: int, end: int) -> AsyncIterator[bytes]:
        """Yield the log bytes from `start` to `end`, or to where the log ends now."""
        segments = await self._segments()
        first = await self.segment_of_byte(start)
        place = start
        for segment in [s for s in segments if s >= first]:
            async for record in self._records(segment):
                if record.kind != LOG or record.at + len(record.payload) <= place:
                    continue
                if record.at >= end:
                    return
                piece = record.payload[max(0, place - record.at) : end - record.at]
                place = record.at + len(record.payload)
                yield piece

    async def metrics(self) -> list[dict[str, Any]]:
        """Return what the run reported with `log_metrics`, thinned out when it is very much."""
        found: list[dict[str, Any]] = []
        last = 0
        for segment in await self._segments():
            async for record in self._records(segment):
                if record.kind != EVENT or record.number <= last:
                    continue
                last = record.number
                event = record.event()
                if event.get("event") == "metrics":
                    found.append(metrics_message(record, event))
        while len(found) > _MOST_POINTS:
            found = [*found[:-1:2], found[-1]]
        return found

    async def _segments(self) -> list[int]:
        names = await self._store.list_names(layout.journal_prefix(*self._where))
        return [int(name) for name in names if name.isdigit()]

    async def _last_where(self, test: Any) -> int:
        segments = await self._segments()
        low, high = 0, len(segments)
        while high - low > 1:
            middle = (low + high) // 2
            if test(await self._head(segments[middle])):
                low = middle
            else:
                high = middle
        return segments[low] if segments else 1

    async def _head(self, segment: int) -> Head:
        if segment not in self._heads:
            first = b""
            async for piece in self._store.read(layout.journal_segment(*self._where, segment)):
                first = piece.partition(b"\n")[0]
                break
            try:
                head = json.loads(first)
                self._heads[segment] = Head(head["n"], head["at"])
            except (ValueError, KeyError, TypeError):
                raise FormatError("the journal is damaged: a segment has no first line") from None
        return self._heads[segment]

    async def _records(self, segment: int) -> AsyncIterator[JournalRecord]:
        parser = SegmentParser()
        async for piece in self._store.read(layout.journal_segment(*self._where, segment)):
            for record in parser.feed(piece):
                yield record


def metrics_message(record: JournalRecord, event: dict[str, Any]) -> dict[str, Any]:
    """Return a `metrics` message of the stream."""
    values = event.get("values")
    return {
        "type": "metrics",
        "n": record.number,
        "time": record.time,
        "step": event.get("step"),
        "values": values if isinstance(values, dict) else {},
    }
