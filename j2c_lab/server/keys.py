"""Idempotency keys: a request that is repeated with the same key makes no second run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path

#: Seconds after which a key may be used anew.
_KEPT = 86400.0
_MOST = 1000


class Keys:
    """Keys of a day, in a small file, so that a restarted server knows them."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "j2c-keys.json"
        self._locks: dict[str, asyncio.Lock] = {}
        self._known: dict[str, tuple[str, str, float]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._known = {k: tuple(v) for k, v in json.loads(self._path.read_text()).items()}

    @contextlib.asynccontextmanager
    async def lock(self, key: str):  # type: ignore[no-untyped-def]
        """Let one request with a key in at a time."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(key, None)

    def get(self, key: str) -> tuple[str, str] | None:
        """Return the run id and the fingerprint of the request that came with a key."""
        found = self._known.get(key)
        if found is None or time.time() - found[2] > _KEPT:
            return None
        return found[0], found[1]

    def put(self, key: str, run_id: str, fingerprint: str) -> None:
        """Remember what a key stands for."""
        now = time.time()
        self._known[key] = (run_id, fingerprint, now)
        fresh = {k: v for k, v in self._known.items() if now - v[2] <= _KEPT}
        self._known = dict(list(fresh.items())[-_MOST:])
        temporary = self._path.with_suffix(".part")
        # Arguments and variables stand in it: for the user's eyes only.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self._known, file)
        temporary.replace(self._path)
