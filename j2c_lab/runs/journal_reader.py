"""Reads the journal of one rank of an attempt while it grows; every record exactly once."""

from __future__ import annotations

from j2c_lab.errors import NotFoundError
from j2c_lab.formats.journal import JournalRecord, SegmentParser
from j2c_lab.store import layout
from j2c_lab.store.base import Store

#: Every how many polls without news it is asked whether the next segment has begun.
_LOOK_AHEAD_EVERY = 5


class JournalReader:
    """A place in a journal.

    Parameters
    ----------
    after : int
        Records up to this number are passed over.
    segment : int
        The segment to begin with.
    """

    def __init__(
        self,
        store: Store,
        user: str,
        run_id: str,
        attempt: int,
        rank: int = 0,
        *,
        after: int = 0,
        segment: int = 1,
    ) -> None:
        self._store = store
        self._where = (user, run_id, attempt, rank)
        self._segment = segment
        self._parser = SegmentParser()
        self._quiet = 0
        #: Number of the last record that was returned or passed over.
        self.last = after
        self.attempt = attempt
        self.rank = rank

    @property
    def between(self) -> bool:
        """Whether the last segment was complete and nothing of the next has been seen."""
        return self._parser.offset == 0

    async def poll(self) -> list[JournalRecord]:
        """Return the next records; empty when there are none yet. One segment at most at a time."""
        while True:
            records = await self._read()
            if self._parser.sealed:
                self._next_segment()
            elif not records and await self._next_began():
                # The writer did not learn whether its last write arrived, and began the next
                # segment with the same records. This one may have grown just before that.
                records = await self._read()
                self._next_segment()
            else:
                return records
            if records:
                return records

    async def _read(self) -> list[JournalRecord]:
        key = layout.journal_segment(*self._where, self._segment)
        try:
            data = await self._store.get(key, self._parser.offset)
        except NotFoundError:
            data = b""
        if not data:
            self._quiet += 1
            return []
        self._quiet = 0
        records = [r for r in self._parser.feed(data) if r.number > self.last]
        if records:
            self.last = records[-1].number
        return records

    async def _next_began(self) -> bool:
        if self._quiet % _LOOK_AHEAD_EVERY:
            return False
        key = layout.journal_segment(*self._where, self._segment + 1)
        return key in await self._store.stat([key])

    def _next_segment(self) -> None:
        self._segment += 1
        self._parser = SegmentParser()
        self._quiet = 0


async def read_tail(
    store: Store, user: str, run_id: str, attempt: int, rank: int, lines: int
) -> list[JournalRecord]:
    """Return the last log records, at least `lines` lines of them if there are as many.

    Segments are read from the last backwards, so the end of a long log costs little.
    """
    prefix = layout.journal_prefix(user, run_id, attempt, rank)
    found: dict[int, JournalRecord] = {}
    seen = 0
    for name in reversed(await store.list_names(prefix)):
        parser = SegmentParser()
        for record in parser.feed(await store.get(prefix + name)):
            if record.number not in found:
                found[record.number] = record
                seen += record.payload.count(b"\n") if record.kind == "log" else 0
        if seen > lines:
            break
    return [record for _, record in sorted(found.items())]
