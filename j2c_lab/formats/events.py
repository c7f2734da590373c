"""What `--json` writes of a journal: every record as an event of docs/events.md.

Both sides write it: whoever follows a run, and `j2c unpack --json` where it runs.
"""

from __future__ import annotations

import json
from typing import Any

from j2c_lab.formats.journal import EVENT, GAP, LOG, JournalRecord


def json_line(document: dict[str, Any]) -> str:
    """Return a document as one line of JSON, its end included."""
    # Escaped: a lone surrogate in a file's name is no UTF-8, and must not end the output.
    return json.dumps(document, separators=(",", ":")) + "\n"


class RecordEvents:
    """Makes events of records; a character that two records share comes whole, in the later one."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int, str], Utf8Joiner] = {}

    def event(self, attempt: int, rank: int, record: JournalRecord) -> dict[str, Any] | None:
        """Return the record's event; None for records that say nothing to a reader."""
        head = {"n": record.number, "attempt": attempt, "rank": rank, "time": record.time}
        if record.kind == LOG:
            joiner = self._joiner(attempt, rank, record.stream)
            joiner.number = record.number
            text = joiner.feed(record.payload, record.at)
            return {"event": "log", **head, "stream": record.stream, **text}
        if record.kind in (EVENT, GAP):
            return {"event": "gap", **record.event(), **head, **_at(record)}
        return None

    def prime(self, attempt: int, rank: int, record: JournalRecord) -> None:
        """Take a record that was shown before, for the half of a character at its end."""
        if record.stream:
            self._joiner(attempt, rank, record.stream).feed(record.payload, record.at)

    def rest(self) -> list[dict[str, Any]]:
        """Return events of what is left at the end, which never became a character."""
        return [
            {
                "event": "log",
                "n": joiner.number,
                "attempt": attempt,
                "rank": rank,
                "stream": stream,
                **joiner.end(),
            }
            for (attempt, rank, stream), joiner in self._texts.items()
            if joiner.rest
        ]

    def _joiner(self, attempt: int, rank: int, stream: str) -> Utf8Joiner:
        return self._texts.setdefault((attempt, rank, stream), Utf8Joiner())


class Utf8Joiner:
    """Makes text of chunks whose borders may lie inside a character."""

    def __init__(self) -> None:
        #: The beginning of a character whose end has not come yet: at most three bytes.
        self.rest = b""
        self._at = 0
        #: Number of the last record.
        self.number = 0

    def feed(self, chunk: bytes, at: int) -> dict[str, Any]:
        """Return `text`, or `data` in base64 where it is no UTF-8, and `at` of its first byte."""
        data = self.rest + chunk
        at -= len(self.rest)
        cut = len(data) - _begun(data)
        data, self.rest = data[:cut], data[cut:]
        self._at = at + cut
        return {**_text_or_data(data), "at": at}

    def end(self) -> dict[str, Any]:
        """Return what is left, which never became a character."""
        rest, self.rest = self.rest, b""
        return {**_text_or_data(rest), "at": self._at}


def _begun(data: bytes) -> int:
    """Return how many bytes at the end of `data` begin a character that is not complete."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
            return back if byte >= 0xC2 and byte < 0xF5 and length > back else 0
    return 0


def _text_or_data(data: bytes) -> dict[str, Any]:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {"data": base64.b64encode(data).decode("ascii")}


def _at(record: JournalRecord) -> dict[str, Any]:
    return {"at": record.at} if record.at >= 0 else {}
