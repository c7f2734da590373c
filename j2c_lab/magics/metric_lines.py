"""Takes the lines that `log_metrics` prints out of a log: their numbers are drawn instead."""

from __future__ import annotations

import re

_PREFIX = b"\r::j2c-metrics {"
_LINE = re.compile(rb"\r?::j2c-metrics \{[^\r\n]*\}\r?\n")
_LONGEST = 1 << 16


class MetricLineFilter:
    """Filters a stream fed in chunks of any size.

    Also a line that follows an unfinished progress bar goes, so that the bar stays whole.
    """

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is to be shown of the stream so far; the start of a line may be held."""
        data = _LINE.sub(b"", self._held + data)
        start = _held_from(data)
        self._held = data[start:]
        return data[:start]

    def end(self) -> bytes:
        """Return what was held: the stream ends here."""
        held, self._held = self._held, b""
        return held


def _held_from(data: bytes) -> int:
    """Return where a metrics line may have begun that is not complete yet."""
    whole = data.rfind(_PREFIX[1:])
    if whole >= 0 and b"\n" not in data[whole:] and len(data) - whole <= _LONGEST:
        return whole - 1 if data[whole - 1 : whole] == b"\r" else whole
    for prefix in (_PREFIX, _PREFIX[1:]):
        for size in range(min(len(prefix) - 1, len(data)), 0, -1):
            if data.endswith(prefix[:size]):
                return len(data) - size
    return len(data)
