"""Following a run: every record once, the end when it is the end, and never before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st
from run_tools import Desk, run

from j2c_lab.errors import StoreError
from j2c_lab.formats.journal import LOG, JournalRecord
from j2c_lab.runs.follow import Followed, Follower, Position
from j2c_lab.runs.journal_reader import JournalReader, read_tail
from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, UNKNOWN, JobState
from j2c_lab.store.base import ObjectInfo
from j2c_lab.store.local import LocalStore

QUICK = (0.005, 0.02)


async def collect(follower: Follower) -> list[Followed]:
    return [item async for item in follower]


def text(items: list[Followed]) -> bytes:
    return b"".join(i.record.payload for i in items if i.record and i.record.kind == LOG)


def states(items: list[Followed]) -> list[str]:
    return [item.state for item in items if item.state]


def test_records_come_while_the_run_writes_and_the_last_before_its_end(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        desk.said.answer = JobState(PENDING, "waits for a GPU")
        follower = Follower(desk.ledger, run_id, pause=QUICK)
        items: list[Followed] = []

        async def read() -> None:
            async for item in follower:
                items.append(item)

        task = asyncio.create_task(read())
        while not items:
            await asyncio.sleep(0.01)
        desk.said.answer = JobState(RUNNING)
        await desk.started(run_id)
        journal = desk.journal(run_id)
        journal.event(event="stage", stage="running", state="started")
        for number in range(5):
            journal.log(b"line %d\n" % number)
            await journal.flush()
            while not text(items).endswith(b"line %d\n" % number):
                await asyncio.sleep(0.005)
        await journal.seal()
        journal.log(b"the last")
        await journal.flush()
        await desk.ended(run_id, journal_records=journal.number)
        await task
        assert follower.result is not None
        assert follower.result.state == "succeeded"
        return items

    items = run(work())
    assert text(items) == b"line 0\nline 1\nline 2\nline 3\nline 4\nthe last"
    assert states(items) == ["queued", "running", "succeeded"]
    assert items[0].reason == "waits for a GPU"


def test_an_outcome_that_is_seen_before_the_last_segment_waits_for_it(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        journal = desk.journal(run_id)
        journal.log(b"early ")
        await journal.seal()
        journal.log(b"late")
        await desk.ended(run_id, journal_records=2)
        task = asyncio.create_task(collect(Follower(desk.ledger, run_id, pause=QUICK)))
        await asyncio.sleep(0.3)
        assert not task.done()
        await journal.flush()
        return await task

    assert text(run(work())) == b"early late"


def test_records_that_a_writer_repeats_in_the_next_segment_come_once(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        journal = desk.journal(run_id)
        journal.log(b"one ")
        await journal.flush()
        journal.log(b"two ")
        # Not known whether it arrived: never sealed, and the same record begins the next segment.
        journal.next([JournalRecord(2, 0.0, LOG, b"two ", "output", 4)])
        journal.log(b"three")
        await journal.flush()
        await desk.ended(run_id, journal_records=3)
        return await collect(Follower(desk.ledger, run_id, pause=QUICK))

    assert text(run(work())) == b"one two three"


def test_a_job_that_ended_without_an_outcome_is_lost_and_says_why(desk: Desk) -> None:
    async def work() -> tuple[list[Followed], Follower]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        journal = desk.journal(run_id)
        journal.event(event="stage", stage="running", state="started")
        journal.log(b"last words")
        await journal.flush()
        desk.said.answer = JobState(ENDED, "the machine restarted while it ran")
        follower = Follower(desk.ledger, run_id, pause=QUICK)
        return await collect(follower), follower

    items, follower = run(work())
    assert text(items) == b"last words"
    assert follower.result is not None
    assert follower.result.state == "lost"
    assert follower.result.reason == "the machine restarted while it ran"


def test_a_scheduler_and_a_store_that_do_not_answer_end_nothing(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        journal = desk.journal(run_id)
        journal.log(b"before ")
        await journal.flush()
        desk.said.answer = JobState(UNKNOWN, "no answer")
        get = desk.store.get
        task = asyncio.create_task(collect(Follower(desk.ledger, run_id, pause=QUICK)))
        await asyncio.sleep(0.1)

        async def fail(key: str, start: int = 0) -> bytes:
            raise StoreError("the store cannot be reached")

        desk.store.get = fail  # type: ignore[method-assign]
        await asyncio.sleep(1.5)
        assert not task.done()
        desk.store.get = get  # type: ignore[method-assign]
        journal.log(b"after")
        await journal.flush()
        await desk.ended(run_id, journal_records=2)
        return await task

    items = run(work())
    assert text(items) == b"before after"
    assert "unknown" in states(items)
    assert states(items)[-1] == "succeeded"


def test_a_resumed_run_is_followed_into_its_next_attempt(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        for attempt, state in ((1, "failed"), (2, "succeeded")):
            await desk.started(run_id, attempt)
            journal = desk.journal(run_id, attempt)
            journal.log(b"attempt %d\n" % attempt)
            await journal.flush()
            await desk.ended(run_id, state, attempt, journal_records=1, exit_code=1)
        await desk.submitted(run_id, 2, attempts_before=1)
        both = await collect(Follower(desk.ledger, run_id, pause=QUICK))
        second = await collect(Follower(desk.ledger, run_id, Position(2), pause=QUICK))
        assert text(second) == b"attempt 2\n"
        return both

    items = run(work())
    assert text(items) == b"attempt 1\nattempt 2\n"
    assert states(items)[-1] == "succeeded"


def test_an_attempt_whose_node_died_is_left_for_the_next_one(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        desk.said.answer = JobState(RUNNING)
        await desk.started(run_id, 1)
        first = desk.journal(run_id, 1)
        first.event(event="stage", stage="running", state="started")
        first.log(b"one\n")
        await first.flush()
        task = asyncio.create_task(collect(Follower(desk.ledger, run_id, pause=QUICK)))
        await asyncio.sleep(0.2)
        # No outcome, and the scheduler says of the job that it runs: on another node.
        await desk.started(run_id, 2)
        first.log(b"the last that arrived\n")
        await first.flush()
        second = desk.journal(run_id, 2)
        second.log(b"two\n")
        await second.flush()
        await asyncio.sleep(0.2)
        second.log(b"end\n")
        await second.seal()
        await desk.ended(run_id, attempt=2, journal_records=second.number)
        return await asyncio.wait_for(task, 30)

    items = run(work())
    assert text(items) == b"one\nthe last that arrived\ntwo\nend\n"
    assert states(items)[-1] == "succeeded"


def test_ranks_are_merged_and_the_end_is_the_end_of_all(desk: Desk) -> None:
    async def work() -> list[Followed]:
        run_id = await desk.make_run(nodes=2)
        await desk.submitted(run_id)
        for rank in (0, 1):
            await desk.started(run_id, 1, rank)
            journal = desk.journal(run_id, 1, rank)
            journal.log(b"rank %d\n" % rank)
            await journal.flush()
        await desk.ended(run_id, rank=0, journal_records=1)
        task = asyncio.create_task(collect(Follower(desk.ledger, run_id, pause=QUICK)))
        await asyncio.sleep(0.3)
        assert not task.done()
        await desk.ended(run_id, "failed", rank=1, journal_records=1, exit_code=3)
        return await task

    items = run(work())
    assert {(item.rank, item.record.payload) for item in items if item.record} == {
        (0, b"rank 0\n"),
        (1, b"rank 1\n"),
    }
    assert states(items)[-1] == "failed"


@settings(max_examples=30, deadline=None)
@given(
    chunks=st.lists(st.binary(max_size=40), min_size=1, max_size=12),
    cuts=st.sets(st.integers(0, 12)),
    after=st.integers(0, 12),
)
def test_from_any_point_exactly_what_follows_is_read(
    tmp_path_factory: object, chunks: list[bytes], cuts: set[int], after: int
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"), {})  # type: ignore[attr-defined]

    async def work() -> list[JournalRecord]:
        run_id = await desk.make_run()
        journal = desk.journal(run_id)
        for number, chunk in enumerate(chunks):
            journal.log(chunk)
            await (journal.seal() if number in cuts else journal.flush())
        reader = JournalReader(desk.store, desk.user, run_id, 1, after=after)
        found = []
        while records := await reader.poll():
            found += records
        return found

    found = run(work())
    assert [record.payload for record in found] == chunks[after:]
    assert [record.number for record in found] == list(range(after + 1, len(chunks) + 1))


def test_the_end_of_a_long_log_is_read_without_its_beginning(desk: Desk) -> None:
    async def work() -> None:
        run_id = await desk.make_run()
        journal = desk.journal(run_id)
        for segment in range(20):
            journal.log(b"".join(b"%d %d\n" % (segment, line) for line in range(100)))
            await journal.seal()
        read = []
        get = desk.store.get

        async def counted(key: str, start: int = 0) -> bytes:
            read.append(key)
            return await get(key, start)

        desk.store.get = counted  # type: ignore[method-assign]
        records = await read_tail(desk.store, desk.user, run_id, 1, 0, 150)
        assert len(read) == 2
        assert sum(record.payload.count(b"\n") for record in records) == 200

    run(work())


def test_a_line_is_seen_within_half_a_second_after_a_long_silence(desk: Desk) -> None:
    async def work() -> float:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        follower = Follower(desk.ledger, run_id)
        seen: list[float] = []

        async def read() -> None:
            async for item in follower:
                if item.record:
                    seen.append(time.monotonic())

        task = asyncio.create_task(read())
        await asyncio.sleep(2.5)
        journal = desk.journal(run_id)
        journal.log(b"a line\n")
        written = time.monotonic()
        await journal.flush()
        while not seen:
            await asyncio.sleep(0.005)
        await desk.ended(run_id, journal_records=1)
        await task
        return seen[0] - written

    # By construction the pause is 0.35 s at most; the bound here is for a busy machine.
    assert run(work()) < 5


class FarAway(LocalStore):
    """A store without a directory here, which notes what it is asked."""

    asked: ClassVar[list[str]] = []

    def local_path(self, key: str) -> Path | None:
        return None

    async def get(self, key: str, start: int = 0) -> bytes:
        self.asked.append(key)
        return await super().get(key, start)

    async def stat(self, keys: Iterable[str]) -> dict[str, ObjectInfo]:
        self.asked.append("stat")
        return await super().stat(keys)

    async def list_names(self, prefix: str) -> list[str]:
        self.asked.append("list")
        return await super().list_names(prefix)


def test_a_silent_run_on_a_far_store_costs_one_request_a_look(desk: Desk) -> None:
    desk.store = desk.ledger.store = FarAway(desk.store.directory)

    async def work() -> list[Followed]:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        await desk.started(run_id)
        journal = desk.journal(run_id)
        journal.log(b"first\n")
        await journal.flush()
        task = asyncio.create_task(collect(Follower(desk.ledger, run_id, pause=QUICK)))
        await asyncio.sleep(0.3)
        FarAway.asked.clear()
        await asyncio.sleep(2.5)
        looks = [key for key in FarAway.asked if "/journal/" in key]
        others = [key for key in FarAway.asked if key not in looks]
        # Every fifth look asks for the next segment too; the scheduler was asked meanwhile.
        assert len(looks) > 20
        assert len(others) <= len(looks) / 5 + 12
        journal.log(b"the last")
        await journal.seal()
        await desk.ended(run_id, journal_records=journal.number)
        return await task

    items = run(work())
    assert text(items) == b"first\nthe last"
    assert states(items)[-1] == "succeeded"


def test_on_a_far_store_looks_become_rarer_in_silence(desk: Desk) -> None:
    near = Follower(desk.ledger, "x")
    desk.ledger.store = FarAway(desk.store.directory)
    far = Follower(desk.ledger, "x")
    assert near._pauses == (0.05, 0.35)
    assert far._pauses == (0.25, 3.0)
