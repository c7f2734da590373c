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
        total_bytes: int,
        total_files: int,
        what: str,
        stage: str = "pack",
    ) -> None:
        self._report = report
        self._stage = stage
        self._what = what
        self._total_bytes = total_bytes
        self._total_files = total_files
        self._bytes = 0
        self._files = 0
        self._last = time.monotonic()

    def advance(self, size: int, files: int) -> None:
        """Count `size` more bytes and `files` more files."""
        self._bytes += size
        self._files += files
        now = time.monotonic()
        if now - self._last >= _INTERVAL:
            self._last = now
            # A file that is read again counts twice; what is shown never exceeds the whole.
            self._say(min(self._bytes, self._total_bytes), min(self._files, self._total_files))

    def finish(self) -> None:
        """Say that all is done."""
        self._say(self._total_bytes, self._total_files)

    def _say(self, size: int, files: int) -> None:
        self._report(
            {
                "event": "progress",
                "stage": self._stage,
                "bytes": size,
                "total_bytes": self._total_bytes,
                "files": files,
                "total_files": self._total_files,
                "what": self._what,
            }
        )
