"""Numbers as people read them."""

from __future__ import annotations

import re
import time

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def size(number: float) -> str:
    """`0 B`, `999 B`, `1.2 kB`, `850 MB`: decimal, as disks and networks count."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 999.5 or unit == "TB":
            digits = 0 if unit == "B" or number >= 99.5 else 1
            return f"{number:.{digits}f} {unit}"
        number /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """`0.3 s`, `12 s`, `3 m 05 s`, `2 h 10 m`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def count(number: int, noun: str) -> str:
    """`1 layer`, `3 layers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def moment(seconds: float, now: float) -> str:
    """`14:05` for today, else `2026-12-01 14:05`, in local time."""
    at, today = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M" if at[:3] == today[:3] else "%Y-%m-%d %H:%M", at)


def visible(text: str) -> str:
    """Return a text of others on one line, without what would move a terminal's cursor."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def table(rows: list[list[str]], headers: list[str]) -> str:
    """Return columns, left-aligned, two spaces apart; the last one is not padded."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    lines = []
    for row in [headers, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
