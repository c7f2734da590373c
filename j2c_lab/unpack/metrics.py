"""Finds the lines `::j2c-metrics {"step": 3, "loss": 0.25}` in what a process writes."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

_PREFIX = b"::j2c-metrics "
#: A longer line is no metric: bounds what is kept of a line without an end.
_LONGEST = 1 << 16
_LINE_END = re.compile(rb"[\r\n]")


class MetricLines:
    """Takes a stream in pieces of any size and gives the metrics of complete lines.

    Costs one search for the prefix a piece, so that a process which writes 50 MB/s is not slowed.
    """

    def __init__(self) -> None:
        # What may become a metric line: empty, or from a line's start on.
        self._kept = b""
        self._at_line_start = True

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return `values` (name to number) and `step`, if given, of each line that is complete."""
        if self._kept:
            data = self._kept + data
            self._kept = b""
            self._at_line_start = True
        found: list[dict[str, Any]] = []
        place = data.find(_PREFIX)
        while place >= 0:
            starts = self._at_line_start if place == 0 else data[place - 1 : place] in b"\r\n"
            if starts:
                end = _LINE_END.search(data, place)
                if end is None:
                    break
                if end.start() - place <= _LONGEST:
                    found += _parse(data[place + len(_PREFIX) : end.start()])
                place = end.start()
            place = data.find(_PREFIX, place + 1)
        self._keep_tail(data)
        return found

    def _keep_tail(self, data: bytes) -> None:
        start = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if start == 0 and not self._at_line_start:
            return
        tail = data[start : start + _LONGEST + 1]
        starts = tail.startswith(_PREFIX) or _PREFIX.startswith(tail)
        if tail and starts and len(tail) <= _LONGEST:
            self._kept = tail
            return
        self._at_line_start = not tail


def _parse(text: bytes) -> list[dict[str, Any]]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(values, dict):
        return []
    numbers = {
        name: value
        for name, value in values.items()
        # NaN and infinity are no JSON: a browser could not read them.
        if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    }
    step = numbers.pop("step", None)
    return [{"values": numbers} if step is None else {"values": numbers, "step": step}]
