"""Sends what an attempt could not: its journal, its outputs and its outcome, in this order."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from j2c_lab.errors import FormatError, J2CError
from j2c_lab.formats.journal import (
    GAP,
    LOG,
    SEAL,
    JournalRecord,
    SegmentParser,
    encode_record,
    encode_segment_start,
)
from j2c_lab.formats.run import AttemptStart, Outcome, Run
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.unpack import records
from j2c_lab.unpack.link import StoreLink
from j2c_lab.unpack.settings import Settings
from j2c_lab.unpack.spool import spooled_files, spooled_start
from j2c_lab.unpack.workdir import RunDirectory, run_directories, try_lock

_PAUSE = 0.5
_OUTPUTS = "outputs"
_PIECE = 1 << 20


def deliver_outcome(settings: Settings, link: StoreLink, outcome: Outcome, timeout: float) -> bool:
    """Write the outcome, trying again for `timeout` seconds; False when it did not succeed."""
    until = time.monotonic() + timeout
    while True:
        try:
            left = max(until - time.monotonic(), 1.0)
            link.call(lambda store: records.write_outcome(store, settings, outcome), left)
            return True
        except J2CError:
            if time.monotonic() + _PAUSE >= until:
                return False
            time.sleep(_PAUSE)


def keep_output(directory: Path, digest: str, path: Path) -> None:
    """Keep an output file with the journal in `directory`, because the store is away."""
    kept = directory / _OUTPUTS
    kept.mkdir(mode=0o700, exist_ok=True)
    # The name among the outputs may be a link; what it points to is what counts.
    path = path.resolve()
    try:
        os.link(path, kept / digest)
    except FileExistsError:
        return
    except OSError:
        import shutil  # 8 ms, and mostly the link can be made

        shutil.copyfile(path, kept / digest)


def deliver_outputs(run: Run, link: StoreLink, directory: Path) -> None:
    """Send the output files that were kept in `directory`; raises `StoreError`."""
    for path in sorted((directory / _OUTPUTS).glob("*")):
        key = layout.output(run.user, run.id, path.name)

        async def put(store: Store, key: str = key, path: Path = path) -> bool:
            return await store.put_file(key, path, if_absent=True, consume=True)

        link.call(put)
    with contextlib.suppress(OSError):
        (directory / _OUTPUTS).rmdir()


def deliver_leftovers(
    settings: Settings, run: Run, link: StoreLink, own: RunDirectory | None = None
) -> bool:
    """Deliver the journals that attempts of the run left on this node; False if some remain.

    Directories in which an attempt lives are passed over, but for `own`, whose lock we hold.
    """
    complete = True
    for path in run_directories(settings.workdir, run.id):
        lock = None
        if own is None or path != own.path:
            lock = try_lock(path)
            if lock is None:
                continue
        try:
            for left in sorted(Path(path, "spool").glob("*-*")):
                complete &= _deliver_one(settings, run, link, left)
        finally:
            if lock is not None:
                os.close(lock)
    return complete


def _deliver_one(settings: Settings, run: Run, link: StoreLink, left: Path) -> bool:
    """Deliver one attempt's spool and remove it."""
    attempt, _, rank = left.name.partition("-")
    if not (attempt.isdigit() and rank.isdigit()):
        return True
    number, rank_number = int(attempt), int(rank)

    def key_of(segment: int) -> str:
        return layout.journal_segment(run.user, run.id, number, rank_number, segment)

    try:
        prefix = layout.journal_prefix(run.user, run.id, number, rank_number)
        segment, have = link.call(lambda store: _arrived(store, prefix, key_of), 60)
        last = _send_records(link, left, segment + 1, have, key_of)
        deliver_outputs(run, link, left)
        outcome = link.call(lambda store: _outcome(store, left, run, number, rank_number, last), 60)
        link.call(lambda store: records.write_outcome(store, settings, outcome), 60)
    except (J2CError, OSError):
        return False
    for path in (*spooled_files(left), left / "outcome.json"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        left.rmdir()
    return True


async def _arrived(store: Store, prefix: str, key_of: Callable[[int], str]) -> tuple[int, int]:
    """Return the last segment in the store and the number of the last record that has arrived."""
    names = [int(name) for name in await store.list_names(prefix) if name.isdigit()]
    for segment in sorted(names, reverse=True):
        parser = SegmentParser()
        found: list[JournalRecord] = []
        with contextlib.suppress(FormatError):
            found = parser.feed(await store.get(key_of(segment)))
        if found:
            return max(names), found[-1].number
    return max(names, default=0), 0


def _send_records(
    link: StoreLink, left: Path, segment: int, have: int, key_of: Callable[[int], str]
) -> int:
    """Send the spooled records after number `have`; returns the last record's number."""
    last = have
    for first, at, encoded, end in _segments(left, have):
        body = encode_segment_start(segment, first, at) + encoded
        body += encode_record(JournalRecord(end + 1, time.time(), SEAL))
        key = key_of(segment)
        link.call(lambda store, key=key, body=body: store.put(key, body), 120)  # type: ignore[misc]
        segment += 1
        last = end
    return last


def _segments(left: Path, have: int) -> Iterator[tuple[int, int, bytes, int]]:
    """Yield the first record's number and `at`, the encoded records, and the last one's number."""
    encoded = bytearray()
    first = first_at = last = 0
    for record, at in _spooled(left):
        if record.number <= have:
            continue
        if not encoded:
            first, first_at = record.number, at
        encoded += encode_record(record)
        last = record.number
        if len(encoded) >= _PIECE:
            yield first, first_at, bytes(encoded), last
            encoded.clear()
    if encoded:
        yield first, first_at, bytes(encoded), last


def _spooled(left: Path) -> Iterator[tuple[JournalRecord, int]]:
    """Yield the spool's whole records, each with the number of log bytes before it."""
    for path in spooled_files(left):
        number, at = spooled_start(path)
        parser = SegmentParser()
        parser.feed(encode_segment_start(0, number, at))
        with open(path, "rb") as file:
            while piece := file.read(_PIECE):
                for record in parser.feed(piece):
                    at = max(at, record.at)
                    yield record, at
                    if record.kind == LOG:
                        at += len(record.payload)
                    elif record.kind == GAP:
                        at += int(record.event()["bytes"])


async def _outcome(
    store: Store, left: Path, run: Run, number: int, rank: int, last: int
) -> Outcome:
    """Return the outcome that waits, or that of an attempt which died before it had one."""
    try:
        return Outcome.from_json((left / "outcome.json").read_bytes())
    except (OSError, FormatError):
        pass
    started = 0.0
    with contextlib.suppress(J2CError):
        key = layout.attempt_start(run.user, run.id, number, rank)
        started = AttemptStart.from_json(await store.get(key)).started
    return Outcome(
        attempt=number,
        rank=rank,
        state="failed",
        reason="j2c unpack was killed before the run ended: out of memory, or a lost node",
        started=started,
        finished=max((path.stat().st_mtime for path in spooled_files(left)), default=started),
        journal_records=last,
    )
