"""What an attempt reports, in order: log chunks and events, cut into segments.

A journal is a sequence of records, numbered from 1 without gaps. Records are kept in segments
`journal/<number>` (numbered from 1, ten digits). The last segment grows: it is written again with
more records, always an extension of what it held, until it is sealed; a reader keeps its place in
bytes and asks for what follows. A sealed segment never grows again, and the next one has the next
number, so a reader finds it by name. A writer that does not know whether an upload arrived starts
the next segment with the same records; readers drop the records whose number they have had.

Each record is a line of JSON, then its payload and a newline::

    {"n":12,"t":1764557428.25,"k":"log","s":"output","at":1048576,"len":5}
    hello

`n` is its number, `t` seconds since the epoch, `k` its kind, `len` the payload's length in bytes.
A `log` record says its stream `s` (`output` for both in one, else `stdout` or `stderr`) and `at`,
the number of log bytes before it. The other kinds: `event` (the payload is a JSON object with a
key `event`), `gap` (`at`; the payload is a JSON object with `bytes`, the log bytes that were lost)
and `seal` (no payload; the segment is complete). A segment begins with its own line::

    {"j2c-journal":1,"segment":3,"n":120,"at":1048576}

so that a reader can begin at any segment.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from j2c_lab.errors import FormatError

LOG = "log"
EVENT = "event"
GAP = "gap"
SEAL = "seal"

OUTPUT = "output"
STDOUT = "stdout"
STDERR = "stderr"

#: A reader refuses a longer header line: no writer makes one.
_LONGEST_HEADER = 4096


class JournalRecord(NamedTuple):
    """One record. `stream` and `at` are empty and -1 where the kind has none."""

    number: int
    time: float
    kind: str
    payload: bytes = b""
    stream: str = ""
    at: int = -1

    def event(self) -> dict[str, Any]:
        """Return the JSON object of an `event` or `gap` record."""
        value = json.loads(self.payload)
        if not isinstance(value, dict):
            raise FormatError("a journal event is not a JSON object")
        return value


def encode_record(record: JournalRecord) -> bytes:
    """Return the record's bytes in a segment."""
    head: dict[str, Any] = {"n": record.number, "t": round(record.time, 3), "k": record.kind}
    if record.stream:
        head["s"] = record.stream
    if record.at >= 0:
        head["at"] = record.at
    head["len"] = len(record.payload)
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + record.payload + b"\n"


def encode_segment_start(segment: int, number: int, at: int) -> bytes:
    """Return a segment's first line; `number` and `at` are those of its first record."""
    head = {"j2c-journal": 1, "segment": segment, "n": number, "at": at}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


class SegmentParser:
    """Parses one segment fed in pieces of any size; incomplete records wait for more bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._started = False
        #: Bytes fed so far: the place from which to ask for more.
        self.offset = 0
        #: Whether the segment's seal was read: it will never grow.
        self.sealed = False

    def feed(self, data: bytes) -> list[JournalRecord]:
        """Take the next bytes of the segment and return the records that became complete.

        Raises
        ------
        FormatError
            The bytes are no journal.
        """
        self.offset += len(data)
        self._buffer += data
        place = 0
        records: list[JournalRecord] = []
        try:
            while True:
                newline = self._buffer.find(b"\n", place)
                if newline < 0:
                    if len(self._buffer) - place > _LONGEST_HEADER:
                        raise FormatError("the journal is damaged: a record has no end")
                    return records
                head = _parse_head(bytes(self._buffer[place:newline]))
                if not self._started:
                    if head.get("j2c-journal") != 1:
                        raise FormatError("this is not a journal, or one of a newer j2c")
                    self._started = True
                    place = newline + 1
                    continue
                end = newline + 1 + _length(head)
                if len(self._buffer) <= end:
                    return records
                payload = bytes(self._buffer[newline + 1 : end])
                place = end + 1
                record = JournalRecord(
                    number=head.get("n", 0),
                    time=head.get("t", 0.0),
                    kind=head.get("k", ""),
                    payload=payload,
                    stream=head.get("s", ""),
                    at=head.get("at", -1),
                )
                if record.kind == SEAL:
                    self.sealed = True
                else:
                    records.append(record)
        finally:
            del self._buffer[:place]


def _parse_head(line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise FormatError("the journal is damaged: a record's first line is not JSON")
    return head


def _length(head: dict[str, Any]) -> int:
    length = head.get("len")
    if not isinstance(length, int) or length < 0:
        raise FormatError("the journal is damaged: a record has no length")
    return length
