"""Counts bytes and files, and says so at most ten times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_INTERVAL = 0.1


class Meter:
    """Turns many small advances into few `progress` events (docs/events.md)."""

    def __init__(
        self,
        report: Callable[[dict[str, Any]], None],
        what: str,
        total_bytes: int | None,
        total_files: int | None,
        stage: str = "pack",
    ) -> None:
        self._report = report
        self._fixed = {"event": "progress", "stage": stage, "what": what}
        self._totals = {"bytes": total_bytes, "files": total_files}
        self._done = {"bytes": 0, "files": 0}
        self._last = time.monotonic()

    def advance(self, size: int, files: int) -> None:
        """Count `size` more bytes and `files` more files."""
        self._done["bytes"] += size
        self._done["files"] += files
        now = time.monotonic()
        if now - self._last >= _INTERVAL:
            self._last = now
            self._say(self._done)

    def finish(self) -> None:
        """Say that all is done."""
        self._say({name: total or 0 for name, total in self._totals.items()})

    def _say(self, done: dict[str, int]) -> None:
        event: dict[str, Any] = dict(self._fixed)
        for name, total in self._totals.items():
            event[name] = done[name]
            if total is not None:
                # A file that is read again counts twice; what is shown never exceeds the whole.
                event[name] = min(done[name], total)
                event[f"total_{name}"] = total
        self._report(event)
