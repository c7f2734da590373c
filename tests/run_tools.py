"""Writes into a store what the cluster side writes, piece by piece."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from j2c_lab.formats.journal import (
    EVENT,
    LOG,
    SEAL,
    JournalRecord,
    encode_record,
    encode_segment_start,
)
from j2c_lab.formats.run import (
    AttemptStart,
    EntryPoint,
    Outcome,
    Resources,
    Run,
    Submission,
    new_run_id,
)
from j2c_lab.runs.ledger import Ledger
from j2c_lab.schedulers.base import RUNNING, JobState
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Said:
    """Answers `state` as the test says, where it is about what follows from the answer."""

    name = "said"

    def __init__(self) -> None:
        self.answer = JobState(RUNNING)

    async def state(self, handle: str) -> JobState:
        return self.answer


class Desk:
    """A user's ledger on a directory store."""

    user = "ada"

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.directory = directory
        self.store = LocalStore(directory / "store")
        self.said = Said()
        self.ledger = Ledger(self.store, self.user, environ)
        self.ledger._schedulers["said"] = self.said  # type: ignore[assignment]

    async def make_run(self, name: str = "train", nodes: int = 1, run_id: str = "") -> str:
        run_id = run_id or new_run_id()
        document = Run(
            id=run_id,
            user=self.user,
            name=name,
            created=time.time(),
            bundle="0" * 64,
            entry=EntryPoint(kind="script", target="train.py"),
            scheduler="said",
            resources=Resources(nodes=nodes),
        )
        await self.store.put(layout.run(self.user, run_id), document.to_json())
        return run_id

    async def submitted(self, run_id: str, number: int = 1, attempts_before: int = 0) -> None:
        document = Submission(
            scheduler="said",
            handle=run_id,
            submitted=time.time(),
            number=number,
            attempts_before=attempts_before,
        )
        key = layout.submission(self.user, run_id, number)
        await self.store.put(key, document.to_json())

    async def started(self, run_id: str, attempt: int = 1, rank: int = 0) -> None:
        document = AttemptStart(attempt=attempt, rank=rank, started=time.time())
        key = layout.attempt_start(self.user, run_id, attempt, rank)
        await self.store.put(key, document.to_json())

    async def ended(
        self, run_id: str, state: str = "succeeded", attempt: int = 1, rank: int = 0, **rest: Any
    ) -> None:
        document = Outcome(
            attempt=attempt,
            rank=rank,
            state=state,
            started=time.time(),
            finished=time.time(),
            **rest,
        )
        key = layout.outcome(self.user, run_id, attempt, rank)
        await self.store.put(key, document.to_json())

    def journal(self, run_id: str, attempt: int = 1, rank: int = 0) -> Writer:
        return Writer(self, run_id, attempt, rank)


class Writer:
    """Writes a journal as `formats.journal` describes it."""

    def __init__(self, desk: Desk, run_id: str, attempt: int, rank: int) -> None:
        self._desk = desk
        self._where = (desk.user, run_id, attempt, rank)
        self.segment = 1
        self.number = 0
        self.at = 0
        self.content = encode_segment_start(1, 1, 0)

    def log(self, payload: bytes, stream: str = "output") -> None:
        self.number += 1
        record = JournalRecord(self.number, time.time(), LOG, payload, stream, self.at)
        self.at += len(payload)
        self.content += encode_record(record)

    def event(self, **values: Any) -> None:
        self.number += 1
        record = JournalRecord(self.number, time.time(), EVENT, json.dumps(values).encode())
        self.content += encode_record(record)

    async def flush(self) -> None:
        await self._desk.store.put(layout.journal_segment(*self._where, self.segment), self.content)

    async def seal(self) -> None:
        self.content += encode_record(JournalRecord(0, time.time(), SEAL))
        await self.flush()
        self.next()

    def next(self, repeated: Iterable[JournalRecord] = ()) -> None:
        self.segment += 1
        self.content = encode_segment_start(self.segment, self.number + 1, self.at)
        for record in repeated:
            self.content += encode_record(record)
