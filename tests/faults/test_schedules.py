"""Seeded random faults on the whole way: submits that happen once, logs that arrive to the byte.

`J2C_FAULT_SCHEDULES=200` runs as many as the table in `docs/reliability.md` counts.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from j2c_lab.errors import NotFoundError, StoreError
from j2c_lab.formats.journal import LOG
from j2c_lab.runs.journal_reader import JournalReader
from j2c_lab.store import layout
from j2c_lab.store.retry import Patience
from j2c_lab.store.s3 import S3Store
from j2c_lab.unpack.journal import Journal
from j2c_lab.unpack.spool import Spool
from j2c_lab.unpack.uploader import Uploader
from tests.faults.proxy import Fault, FaultProxy, Request
from tests.real.s3_servers import BUCKET, S3Server

SCHEDULES = int(os.environ.get("J2C_FAULT_SCHEDULES", "16"))
AT_ONCE = 8
RUN = ("ann", "20261201-025028-7f3a9c", 1, 0)
#: So short that some calls fail for good, and the callers above must cope.
IMPATIENT = Patience(stall=1.0, first=1.0, total=0.4, pause=0.02, longest_pause=0.1)

FAULTS = [
    Fault("reset"),
    Fault("reset-body"),
    Fault("lose-answer"),
    Fault("late", seconds=0.3),
    Fault("late", seconds=1.0),
    Fault("answer", 503, "SlowDown"),
    Fault("answer", 500),
    Fault("answer-after", 502, "BadGateway"),
    Fault("cut"),
    Fault("shorten"),
    Fault("stall", seconds=0.3),
]


class Outcome:
    """What a schedule did to the work."""

    def __init__(self) -> None:
        self.wins = 0
        self.stands: bytes | None = None
        self.won: bytes | None = None
        self.wrote = b""
        self.read = b""
        #: What a reader gets who comes after everything, late arrivals too.
        self.again = b""


@pytest.fixture
def proxy(seaweed: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint) as proxy:
        for name, value in seaweed.settings(proxy.endpoint).items():
            monkeypatch.setenv(name, value)
        yield proxy


def test_no_submit_is_lost_or_doubled_and_no_byte_of_a_log(
    proxy: FaultProxy, tmp_path: Path
) -> None:
    randoms: dict[str, random.Random] = {}
    begun: dict[str, float] = {}

    def schedule(request: Request) -> Fault | None:
        name = request.path.split("/")[2] if request.path.count("/") > 1 else ""
        name = name or request.query.get("prefix", [""])[0].split("/")[0]
        chance = randoms.get(name)
        # The worst ends some time, counted from the first request.
        if chance is None or time.monotonic() - begun.setdefault(name, time.monotonic()) > 4:
            return None
        return chance.choice(FAULTS) if chance.random() < 0.3 else None

    proxy.schedule = schedule

    async def one(seed: int) -> Outcome:
        name = f"{seed}-{uuid.uuid4().hex[:6]}"
        randoms[name] = random.Random(seed)
        return await worked(f"s3://{BUCKET}/{name}", seed, tmp_path / name)

    async def all_of_them() -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, SCHEDULES, AT_ONCE):
            seeds = range(start, min(SCHEDULES, start + AT_ONCE))
            outcomes += await asyncio.gather(*(one(seed) for seed in seeds))
        return outcomes

    outcomes = asyncio.run(all_of_them())
    print(f"{SCHEDULES} schedules, {sum(proxy.requests.values())} requests, {dict(proxy.faults)}")
    assert [seed for seed, o in enumerate(outcomes) if o.wins != 1] == []
    assert [seed for seed, o in enumerate(outcomes) if o.stands != o.won] == []
    assert [seed for seed, o in enumerate(outcomes) if o.read != o.wrote] == []
    assert [seed for seed, o in enumerate(outcomes) if o.again != o.wrote] == []
    assert proxy.faults.total() > SCHEDULES * 4


async def worked(url: str, seed: int, directory: Path) -> Outcome:
    outcome = Outcome()
    labs = [S3Store(url, IMPATIENT), S3Store(url, IMPATIENT)]
    try:
        await asyncio.gather(
            submit(labs[0], b"lab 0", outcome),
            submit(labs[1], b"lab 1", outcome),
            write(labs[0], seed, directory, outcome),
            follow(labs[1], outcome),
        )
        # Whatever is still on its way arrives now.
        await asyncio.sleep(1.2)
        outcome.stands = await patiently(labs[1], layout.submission(*RUN[:2]))
        again = Outcome()
        again.wrote = outcome.wrote
        await follow(labs[0], again)
        outcome.again = again.read
    finally:
        for lab in labs:
            await lab.close()
    return outcome


async def submit(store: S3Store, mine: bytes, outcome: Outcome) -> None:
    """As a lab does: after an error the command is repeated, and begins by looking."""
    key = layout.submission(*RUN[:2])
    while True:
        try:
            try:
                found: bytes | None = await store.get(key)
            except NotFoundError:
                found = None
            won = found == mine if found is not None else await store.put(key, mine, if_absent=True)
            break
        except StoreError:
            await asyncio.sleep(0.05)
    if won:
        outcome.wins += 1
        outcome.won = mine


async def write(store: S3Store, seed: int, directory: Path, outcome: Outcome) -> None:
    spool = Spool(directory)
    uploader = Uploader(store, spool, lambda number: layout.journal_segment(*RUN, number))
    journal = Journal(spool, wake=uploader.wake)
    running = asyncio.ensure_future(uploader.run())
    chance = random.Random(-seed)
    written = []
    for _ in range(12):
        data = chance.randbytes(chance.choice([1, 50, 5_000, 60_000]))
        journal.log("output", data)
        written.append(data)
        await asyncio.sleep(chance.uniform(0, 0.25))
    journal.finish()
    uploader.finish()
    await running
    outcome.wrote = b"".join(written)


async def follow(store: S3Store, outcome: Outcome) -> None:
    reader = JournalReader(store, *RUN)
    read = []
    end = time.monotonic() + 40
    while time.monotonic() < end:
        try:
            records = await reader.poll()
        except StoreError:
            records = []
        read += [record.payload for record in records if record.kind == LOG]
        if outcome.wrote and sum(map(len, read)) >= len(outcome.wrote):
            break
        await asyncio.sleep(0 if records else 0.05)
    outcome.read = b"".join(read)


async def patiently(store: S3Store, key: str) -> bytes:
    while True:
        try:
            return await store.get(key)
        except StoreError:
            await asyncio.sleep(0.1)
