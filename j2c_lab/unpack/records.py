"""What an attempt reads and writes in the store, besides its journal."""

from __future__ import annotations

import hashlib
import os
import time

from j2c_lab.errors import DigestMismatchError, FormatError, NotFoundError, UnpackError
from j2c_lab.formats.manifest import Manifest
from j2c_lab.formats.run import AttemptStart, Cancellation, Outcome, Run
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.unpack.settings import Settings


async def read_run(store: Store, settings: Settings) -> Run:
    """Return the run; raises `NotFoundError`, or `FormatError` when it is another's."""
    try:
        run = Run.from_json(await store.get(layout.run(settings.user, settings.run_id)))
    except NotFoundError:
        raise NotFoundError(
            f"the store {store.url} has no run {settings.run_id} of {settings.user}",
            "check the run URL, and that this machine sees the same store",
        ) from None
    if (run.user, run.id) != (settings.user, settings.run_id):
        raise FormatError(f"{settings.run_url} holds the run {run.id} of {run.user}")
    return run


async def read_manifest(store: Store, digest: str) -> Manifest:
    """Return the bundle's manifest, proved by its digest."""
    try:
        data = await store.get(layout.bundle(digest))
    except NotFoundError:
        raise NotFoundError(
            f"the store has no bundle {digest[:12]}", "submit the run again"
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise DigestMismatchError(
            f"the bundle {digest[:12]} has other content", "submit the run again"
        )
    return Manifest.from_json(data)


async def claim_attempt(store: Store, settings: Settings) -> AttemptStart:
    """Take the next attempt's number for ourselves, from the scheduler's on if it counts."""
    user, run_id, rank = settings.user, settings.run_id, settings.rank
    number = settings.attempt
    if not number:
        names = await store.list_names(layout.attempts(user, run_id))
        number = max((int(name) for name in names if name.isdigit()), default=0)
        # Rank 0 counts; the number may be taken by another rank of this same attempt.
        number = max(number, 1) if rank else number + 1
    while True:
        start = AttemptStart(
            attempt=number,
            rank=rank,
            host=os.uname().nodename,
            started=time.time(),
            pid=os.getpid(),
        )
        key = layout.attempt_start(user, run_id, number, rank)
        if await store.put(key, start.to_json(), if_absent=True):
            return start
        number += 1
        if number > 10_000:
            raise UnpackError("the run has too many attempts")


async def write_outcome(store: Store, settings: Settings, outcome: Outcome) -> None:
    """Write how the attempt ended; does nothing when that stands already."""
    key = layout.outcome(settings.user, settings.run_id, outcome.attempt, outcome.rank)
    await store.put(key, outcome.to_json(), if_absent=True)


def canceller(data: bytes) -> str:
    """Return who wrote `cancel.json`."""
    try:
        return Cancellation.from_json(data).by or "somebody"
    except FormatError:
        return "somebody"
