"""What a run is shown to be, for every way it can go."""

from __future__ import annotations

import time

import pytest
from run_tools import Desk, run

from j2c_lab.errors import NotFoundError, UsageError
from j2c_lab.formats.run import Cancellation, EntryPoint, new_run_id
from j2c_lab.runs.request import Request, host_name
from j2c_lab.runs.view import RunView, view
from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, UNKNOWN, JobState
from j2c_lab.store import layout


async def with_attempt(desk: Desk, stage: str = "") -> str:
    run_id = await desk.make_run()
    await desk.submitted(run_id)
    await desk.started(run_id)
    if stage:
        journal = desk.journal(run_id)
        for name in ("fetching", "unpacking", "running", "saving"):
            journal.event(event="stage", stage=name, state="started")
            if name == stage:
                break
            journal.event(event="stage", stage=name, state="done")
        await journal.flush()
    return run_id


@pytest.mark.parametrize("stage", ["fetching", "unpacking", "running", "saving"])
def test_a_running_job_is_in_the_stage_it_told_last(desk: Desk, stage: str) -> None:
    run_id = run(with_attempt(desk, stage))
    seen = run(view(desk.ledger, run_id))
    assert (seen.state, seen.ended) == (stage, False)
    assert seen.started is not None


@pytest.mark.parametrize(
    ("job", "state", "reason"),
    [
        (JobState(PENDING, "waits for a GPU"), "queued", "waits for a GPU"),
        (JobState(RUNNING), "starting", ""),
        (JobState(UNKNOWN, "no answer"), "unknown", "no answer"),
        (JobState(ENDED, "image not found", 1), "failed", "image not found"),
        (
            JobState(ENDED, "", 127),
            "failed",
            "j2c unpack ended with exit code 127 and left no outcome",
        ),
        (JobState(ENDED), "lost", "the job ended and left no outcome"),
    ],
)
def test_before_the_cluster_side_came_up_the_scheduler_knows(
    desk: Desk, job: JobState, state: str, reason: str
) -> None:
    async def work() -> RunView:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        desk.said.answer = job
        return await view(desk.ledger, run_id)

    seen = run(work())
    assert (seen.state, seen.reason) == (state, reason)


def test_an_outcome_is_the_truth_whatever_the_scheduler_says(desk: Desk) -> None:
    async def work() -> RunView:
        run_id = await with_attempt(desk, "running")
        await desk.ended(run_id, "failed", signal=9, reason="killed by signal 9 (KILL)")
        desk.said.answer = JobState(UNKNOWN)
        return await view(desk.ledger, run_id)

    seen = run(work())
    assert (seen.state, seen.signal, seen.reason) == ("failed", 9, "killed by signal 9 (KILL)")
    assert seen.process_exit_code() == 137


def test_a_run_that_ended_while_waiting_because_it_was_cancelled_says_by_whom(desk: Desk) -> None:
    async def work() -> RunView:
        run_id = await desk.make_run()
        await desk.submitted(run_id)
        wish = Cancellation(by="bob", at=time.time())
        await desk.store.put(layout.cancellation(desk.user, run_id), wish.to_json())
        desk.said.answer = JobState(ENDED, "cancelled while it waited")
        return await view(desk.ledger, run_id)

    seen = run(work())
    assert (seen.state, seen.reason) == ("cancelled", "cancelled by bob")


def test_a_run_submitted_again_is_queued_and_not_failed_any_more(desk: Desk) -> None:
    async def work() -> RunView:
        run_id = await with_attempt(desk, "running")
        await desk.ended(run_id, "failed", exit_code=1)
        await desk.submitted(run_id, 2, attempts_before=1)
        desk.said.answer = JobState(PENDING)
        return await view(desk.ledger, run_id)

    assert run(work()).state == "queued"


def test_the_first_failure_of_several_ranks_decides(desk: Desk) -> None:
    async def work() -> RunView:
        run_id = await desk.make_run(nodes=2)
        await desk.submitted(run_id)
        for rank in (0, 1):
            await desk.started(run_id, rank=rank)
        await desk.ended(run_id, rank=0)
        await desk.ended(run_id, "failed", rank=1, exit_code=3, reason="exit code 3")
        return await view(desk.ledger, run_id)

    seen = run(work())
    assert (seen.state, seen.exit_code) == ("failed", 3)


def test_a_request_whose_process_died_is_interrupted(desk: Desk) -> None:
    request = Request(
        id=new_run_id(),
        user=desk.user,
        name="n",
        created=time.time(),
        entry=EntryPoint(kind="script", target="t.py"),
        project="/p",
        prefix="/v",
        host=host_name(),
    )
    run(desk.store.put(layout.request(desk.user, request.id), request.to_json()))
    seen = run(view(desk.ledger, request.id))
    assert seen.state == "interrupted"
    assert f"j2c resume {request.id}" in seen.reason


def test_runs_are_found_by_id_parts_names_and_last(desk: Desk) -> None:
    async def work() -> None:
        ids = ["20260101-000000-aaaaaa", "20260102-000000-bbbbbb", "20260102-000001-cccccc"]
        for run_id, name in zip(ids, ["old", "same", "same"], strict=True):
            await desk.make_run(name, run_id=run_id)
        resolve = desk.ledger.resolve
        assert await resolve(ids[0]) == ids[0]
        assert await resolve("20260101") == ids[0]
        assert await resolve("bbbbbb") == ids[1]
        assert await resolve("last") == ids[2]
        assert await resolve("same") == ids[2]
        assert await desk.ledger.ids() == ids[::-1]
        with pytest.raises(UsageError, match="2 runs"):
            await resolve("20260102")
        for nonsense in ("", "nothing", "../ada", "2027"):
            with pytest.raises(NotFoundError):
                await resolve(nonsense)

    run(work())


def test_listing_a_page_does_not_read_the_other_runs(desk: Desk) -> None:
    async def work() -> None:
        for number in range(100):
            run_id = await desk.make_run(run_id=f"20260101-{number:06d}-aaaaaa")
            await desk.submitted(run_id)
            await desk.started(run_id)
            await desk.ended(run_id)
        reads = []
        get = desk.store.get

        async def counted(key: str, start: int = 0) -> bytes:
            reads.append(key)
            return await get(key, start)

        desk.store.get = counted  # type: ignore[method-assign]
        for run_id in (await desk.ledger.ids())[:20]:
            await view(desk.ledger, run_id)
        assert len(reads) <= 20 * 4
        assert not any("journal" in key for key in reads)

    run(work())


def test_a_run_that_its_scheduler_ended_says_the_schedulers_reason(desk: Desk) -> None:
    async def work() -> RunView:
        run_id = await with_attempt(desk, "running")
        await desk.ended(run_id, "cancelled", signal=15, reason="ended by SIGTERM")
        desk.said.answer = JobState(ENDED, "the time limit of 2h was reached", 143)
        return await view(desk.ledger, run_id)

    seen = run(work())
    assert (seen.state, seen.reason) == ("failed", "the time limit of 2h was reached")
    assert seen.process_exit_code() == 143
