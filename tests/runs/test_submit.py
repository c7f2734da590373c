"""The stages of a submit, each step of which dies once before and once after it was done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_tools import Desk, run

from j2c_lab.errors import NotFoundError, UsageError
from j2c_lab.formats.run import EntryPoint, Job
from j2c_lab.runs.cancel import cancel
from j2c_lab.runs.request import Request, host_name
from j2c_lab.runs.submit import CancelledError, Submitted, dry_run, resume, submit
from j2c_lab.runs.view import view
from j2c_lab.schedulers.base import ENDED, RUNNING, JobState
from j2c_lab.store import layout


class DiedError(BaseException):
    """In place of kill -9, between two steps."""


class Jobs:
    """A scheduler that keeps its promise of one job, and counts."""

    name = "jobs"

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.states: dict[str, JobState] = {}
        self.cancelled: list[str] = []

    def check(self, job: Job) -> None:
        if job.resources.gpus > 8:
            raise UsageError("too many GPUs")

    def render(self, job: Job) -> dict[str, Any]:
        return {"command": job.command}

    async def submit(self, job: Job) -> str:
        handle = f"{job.run_id}.{job.submission}"
        self.jobs.setdefault(handle, job)
        return handle

    async def find(self, run_id: str, submission: int = 1) -> str | None:
        handle = f"{run_id}.{submission}"
        return handle if handle in self.jobs else None

    async def state(self, handle: str) -> JobState:
        return self.states.get(handle, JobState(RUNNING))

    async def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)

    async def log(self, handle: str) -> bytes:
        return b""


class Dying:
    """Passes calls on, and dies before or after the one whose turn it is."""

    def __init__(self, inner: Any, steps: Callable[[], bool], after: bool) -> None:
        self._inner = inner
        self._steps = steps
        self._after = after

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(value) or name == "close":
            return value

        async def step(*args: Any, **kwargs: Any) -> Any:
            dies = self._steps()
            if dies and not self._after:
                raise DiedError
            try:
                return await value(*args, **kwargs)
            finally:
                if dies:
                    raise DiedError

        return step


@pytest.fixture
def jobs(desk: Desk) -> Jobs:
    jobs = Jobs()
    desk.ledger._schedulers["jobs"] = jobs
    return jobs


@pytest.fixture
def request_(desk: Desk, venv: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Request]:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(desk.directory / "home"))
    project = desk.directory / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)")

    def make(run_id: str = "20260101-000000-00000a", **rest: Any) -> Request:
        return Request(
            id=run_id,
            user=desk.user,
            name="train",
            created=1.0,
            entry=EntryPoint(kind="script", target="train.py"),
            project=str(project),
            prefix=str(venv),
            host=host_name(),
            scheduler="jobs",
            **rest,
        )

    return make


def ignore(event: dict[str, Any]) -> None:
    pass


def dies_at(turn: int) -> Callable[[], bool]:
    left = [turn]

    def step() -> bool:
        left[0] -= 1
        return left[0] == -1

    return step


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("how", ["same command", "resume"])
def test_dying_at_any_step_costs_nothing_and_doubles_nothing(
    desk: Desk, jobs: Jobs, request_: Callable[..., Request], after: bool, how: str
) -> None:
    store = desk.ledger.store
    turn = 0
    while True:
        first = f"20260101-{turn:06d}-00000a"
        before = len(jobs.jobs)
        dies = dies_at(turn)
        desk.ledger.store = Dying(store, dies, after)  # type: ignore[assignment]
        desk.ledger._schedulers["jobs"] = Dying(jobs, dies, after)
        told = False
        try:
            request = request_(first, args=[str(turn)])
            run(submit(desk.ledger, request, ignore))
            told = True
        except DiedError:
            pass
        desk.ledger.store = store
        desk.ledger._schedulers["jobs"] = jobs
        if told:
            break
        done = again(desk, request_, first, turn, how)
        assert len(jobs.jobs) == before + 1
        assert done.run.id == first
        assert done.submission.handle == f"{first}.1"
        assert run(view(desk.ledger, first)).state == "starting"
        desk.ledger.pending.release(first)
        turn += 1
    assert turn > 7, "the sweep saw every step"


def again(
    desk: Desk, request_: Callable[..., Request], first: str, turn: int, how: str
) -> Submitted:
    if how == "resume":
        try:
            return run(resume(desk.ledger, first, ignore))
        except NotFoundError:
            pass  # it died before anything was written: only the same command can go on
    return run(submit(desk.ledger, request_("20260101-999999-00000b", args=[str(turn)]), ignore))


def test_the_same_command_twice_at_once_is_two_runs(
    desk: Desk, jobs: Jobs, request_: Callable[..., Request]
) -> None:
    run(submit(desk.ledger, request_("20260101-000000-00000a"), ignore))
    desk.ledger.pending.release("20260101-000000-00000a")
    run(submit(desk.ledger, request_("20260101-000000-00000b"), ignore))
    assert len(jobs.jobs) == 2


def test_a_job_that_can_never_run_is_refused_before_anything_is_packed(
    desk: Desk, jobs: Jobs, request_: Callable[..., Request]
) -> None:
    from j2c_lab.formats.run import Resources

    with pytest.raises(UsageError, match="GPUs"):
        run(submit(desk.ledger, request_(resources=Resources(gpus=9)), ignore))
    assert not desk.store.directory.exists()


def test_a_dry_run_touches_neither_store_nor_scheduler(
    desk: Desk, jobs: Jobs, request_: Callable[..., Request]
) -> None:
    shown = run(dry_run(desk.ledger, request_(), ignore))
    assert shown["job"]["command"][:2] == ["j2c", "unpack"]
    assert shown["send"]["layers"] >= 1
    assert not desk.store.directory.exists()
    assert not jobs.jobs


def test_a_run_that_was_cancelled_before_its_submission_is_not_submitted(
    desk: Desk, jobs: Jobs, request_: Callable[..., Request]
) -> None:
    request = request_()
    key = layout.request(desk.user, request.id)
    run(desk.store.put(key, request.to_json()))
    run(cancel(desk.ledger, request.id, by="ada"))
    assert run(view(desk.ledger, request.id)).reason == "cancelled by ada"
    desk.ledger.pending.take_over(request.id, request.fingerprint())
    with pytest.raises(CancelledError):
        run(submit(desk.ledger, request_("20260101-000000-00000b"), ignore))
    assert not jobs.jobs
    run(resume(desk.ledger, request.id, ignore))
    assert len(jobs.jobs) == 1


def test_two_labs_that_resume_a_failed_run_at_once_start_one_job(
    desk: Desk, jobs: Jobs, request_: Callable[..., Request]
) -> None:
    done = run(submit(desk.ledger, request_(), ignore))
    jobs.states[done.submission.handle] = JobState(ENDED, "exit", 1)

    async def both() -> list[Submitted]:
        return await asyncio.gather(*(resume(desk.ledger, done.run.id, ignore) for _ in range(2)))

    first, second = run(both())
    assert first.submission == second.submission
    assert first.submission.number == 2
    assert len(jobs.jobs) == 2
