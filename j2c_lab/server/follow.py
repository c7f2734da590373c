"""What one websocket of a run is sent: pulled by its reader, so a slow one gets it late, whole."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from j2c_lab.errors import J2CError, NotFoundError, StoreError
from j2c_lab.formats.journal import EVENT, GAP, LOG, JournalRecord
from j2c_lab.runs.journal_reader import JournalReader
from j2c_lab.runs.ledger import Ledger
from j2c_lab.server.documents import Document, dump, is_final
from j2c_lab.server.index import RunIndex
from j2c_lab.server.logs import LogReader, metrics_message

#: Log bytes in one frame, at most (a single record may be larger, up to the writer's own limit).
_FRAME = 256 << 10
_SHORTEST, _LONGEST = 0.05, 0.4
#: Seconds of silence after which something is said: proxies cut silent connections.
_HEARTBEAT = 15.0
#: Looks without news after the end was told, before it is believed that nothing comes any more.
_LAST_LOOKS = 4

Frame = str | bytes


class RunFollower:
    """Follows one rank of a run from a place on; lives in the engine's loop.

    Parameters
    ----------
    attempt : int, optional
        The attempt to follow; the last one if not given.
    after : int
        Number of the last record that the reader has of that attempt.
    tail : int, optional
        Begin this many log bytes before the end, when `after` is 0.
    """

    def __init__(
        self,
        ledger: Ledger,
        index: RunIndex,
        run_id: str,
        *,
        attempt: int | None = None,
        rank: int = 0,
        after: int = 0,
        tail: int | None = None,
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._run_id = run_id
        self._attempt = attempt
        self._rank = rank
        self._after = after
        self._tail = tail
        self._reader: JournalReader | None = None
        self._shown: Document | None = None
        self._start = 0
        self._spoken = time.monotonic()
        self._pause = _SHORTEST
        self._quiet = 0
        self.ended = False

    async def next(self) -> list[Frame]:
        """Return the next frames; waits for them. Empty and `ended` when there are no more.

        Raises
        ------
        NotFoundError
            There is no such run (any more).
        """
        while not self.ended:
            frames = await self._look()
            if frames:
                self._spoken = time.monotonic()
                self._pause = _SHORTEST
                return frames
            if time.monotonic() - self._spoken > _HEARTBEAT:
                self._spoken = time.monotonic()
                return [dump({"type": "ping"})]
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 1.5, _LONGEST)
        return []

    async def _look(self) -> list[Frame]:
        try:
            frames = await self._changes()
            if self._reader is None:
                return frames + await self._begin()
            records = await self._reader.poll()
            if records:
                self._quiet = 0
                return frames + self._frames(records)
            self._quiet += 1
            return frames + await self._end()
        except NotFoundError:
            raise
        except (StoreError, J2CError, OSError):
            # Lost is the connection to the store, not the run: look again.
            return []

    async def _changes(self) -> list[Frame]:
        shown = self._index.known(self._run_id) or await self._index.get(self._run_id)
        if shown == self._shown:
            return []
        self._shown = shown
        return [dump({"type": "run", "run": shown})]

    async def _begin(self) -> list[Frame]:
        """Open the journal, when there is one."""
        assert self._shown is not None
        attempt = self._attempt or self._shown["attempt"]
        ranks = await self._ledger.ranks(self._run_id, attempt) if attempt else []
        if self._rank not in ranks:
            if is_final(self._shown["state"]):
                self.ended = True
                return [dump({"type": "end", "attempt": attempt, "size": 0})]
            await self._refresh()
            return []
        self._attempt = attempt
        log = LogReader(self._ledger, self._run_id, attempt, self._rank)
        size = await log.size()
        if self._after:
            segment = await log.segment_of_record(self._after)
        else:
            self._start = max(0, size - self._tail) if self._tail is not None else 0
            segment = await log.segment_of_byte(self._start)
        self._reader = JournalReader(
            self._ledger.store,
            self._ledger.user,
            self._run_id,
            attempt,
            self._rank,
            after=self._after,
            segment=segment,
        )
        hello = {
            "type": "hello",
            "attempt": attempt,
            "rank": self._rank,
            "ranks": ranks,
            "size": size,
            "start": self._start,
        }
        earlier = [] if segment <= 1 or self._after else await log.metrics()
        return [dump(hello), *(dump(m) for m in earlier)]

    def _frames(self, records: list[JournalRecord]) -> list[Frame]:
        frames: list[Frame] = []
        piece: list[bytes] = []
        head: dict[str, Any] = {}

        def flush() -> None:
            if piece:
                data = b"".join(piece)
                frames.extend([dump({**head, "len": len(data)}), data])
                piece.clear()

        for record in records:
            if record.kind != LOG:
                flush()
                frames.extend(self._event(record))
                continue
            payload, at = record.payload, record.at
            if at < self._start:
                payload, at = payload[self._start - at :], self._start
            if not payload:
                continue
            size = sum(map(len, piece))
            if piece and (size + len(payload) > _FRAME or head["stream"] != record.stream):
                flush()
            if not piece:
                head = {"type": "log", "at": at, "stream": record.stream}
            head["n"], head["time"] = record.number, record.time
            piece.append(payload)
        flush()
        return frames

    def _event(self, record: JournalRecord) -> list[Frame]:
        event = record.event()
        if record.kind == GAP:
            lost = {"type": "gap", "n": record.number, "at": record.at, "bytes": event["bytes"]}
            return [dump(lost)]
        if record.kind != EVENT:
            return []
        if event.get("event") == "metrics":
            return [dump(metrics_message(record, event))]
        kind = str(event.pop("event", "event"))
        if kind in ("hello", "log", "gap", "run", "end", "ping"):
            return []
        return [dump({**event, "type": kind, "n": record.number, "time": record.time})]

    async def _end(self) -> list[Frame]:
        """When nothing came: whether nothing will come, or another attempt has begun."""
        assert self._shown is not None and self._reader is not None and self._attempt is not None
        outcome = await self._ledger.outcome(self._run_id, self._attempt, self._rank)
        whole = outcome is not None and self._reader.last >= outcome.journal_records
        if not whole and not (is_final(self._shown["state"]) and self._quiet > _LAST_LOOKS):
            if self._quiet % 8 == 0:
                await self._refresh()
            return []
        shown = await self._index.get(self._run_id)
        if shown["attempt"] > self._attempt:
            self._attempt, self._after, self._tail = None, 0, None
            self._reader, self._start, self._quiet = None, 0, 0
            return []
        if not is_final(shown["state"]):
            return []
        self.ended = True
        size = await LogReader(self._ledger, self._run_id, self._attempt, self._rank).size()
        last = [] if shown == self._shown else [dump({"type": "run", "run": shown})]
        return [*last, dump({"type": "end", "attempt": self._attempt, "size": size})]

    async def _refresh(self) -> None:
        """Read the run anew: the index does so by itself only while the list is listened to."""
        await self._index.get(self._run_id)
