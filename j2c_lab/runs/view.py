"""The true state of a run, from what the store holds and what the scheduler says."""

from __future__ import annotations

import asyncio
import calendar
import dataclasses
import time
from typing import Any

from j2c_lab.errors import FormatError, J2CError, NotFoundError
from j2c_lab.formats.journal import EVENT, SegmentParser
from j2c_lab.formats.run import Outcome, OutputFile, Resources, Submission
from j2c_lab.runs.ledger import Ledger, RunDocuments
from j2c_lab.runs.request import host_name
from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, UNKNOWN, JobState
from j2c_lab.store import layout

PACKING = "packing"
SUBMITTING = "submitting"
INTERRUPTED = "interrupted"
QUEUED = "queued"
STARTING = "starting"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELLED = "cancelled"
LOST = "lost"

_NO_ANSWER = "the scheduler does not answer"

#: A run in one of these will not change by itself.
ENDS = frozenset({SUCCEEDED, FAILED, CANCELLED, LOST})
#: Stages of an attempt, as its journal tells them; each is a state as well.
STAGES = ("fetching", "unpacking", "running", "saving")
#: All that `RunView.state` can be, from the first to the last.
STATES = (
    *(PACKING, SUBMITTING, INTERRUPTED, QUEUED, STARTING),
    *STAGES,
    *(SUCCEEDED, FAILED, CANCELLED, LOST, UNKNOWN),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunView:
    """A run as it is shown; the fields are those of docs/events.md."""

    id: str
    name: str
    user: str
    project: str
    host: str
    state: str
    #: One line that explains the state, or empty.
    reason: str = ""
    #: Seconds since the epoch.
    created: float
    started: float | None = None
    finished: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    attempt: int = 0
    scheduler: str = ""
    handle: str | None = None
    bundle: str | None = None
    entry: str = ""
    args: list[str] = dataclasses.field(default_factory=list)
    resources: Resources = dataclasses.field(default_factory=Resources)
    outputs: list[OutputFile] = dataclasses.field(default_factory=list)
    url: str = ""
    expected_start: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it is over, as far as can be known."""
        return self.state in ENDS

    @property
    def duration(self) -> float | None:
        """Seconds from the start of the last attempt to its end."""
        if self.started is None or self.finished is None:
            return None
        return max(0.0, self.finished - self.started)

    def process_exit_code(self) -> int:
        """Return the code that a command which followed the run ends with."""
        if self.signal is not None:
            return 128 + self.signal
        if self.exit_code is not None:
            return self.exit_code
        return 0 if self.state == SUCCEEDED else 125

    def to_dict(self, files: bool = False) -> dict[str, Any]:
        """Return the document; with `files` the outputs' names too."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["resources"] = self.resources.to_dict()
        values["outputs"] = len(self.outputs)
        values["duration"] = self.duration
        values["attempts"] = self.attempt
        if files:
            values["output_files"] = [
                {"path": f.path, "size": f.size, "sha256": f.sha256} for f in self.outputs
            ]
        return values


async def view(ledger: Ledger, run_id: str) -> RunView:
    """Return the state of a run.

    Raises
    ------
    NotFoundError
        There is no such run.
    """
    documents = await ledger.documents(run_id)
    job = None
    if documents.submission is not None and (
        not attempt_ended(documents) or _ended_by_scheduler(documents)
    ):
        job = await job_state(ledger, documents.submission)
        if job.phase == ENDED:
            # The outcome is written before the job ends: what was not there before may be now.
            documents = await ledger.documents(run_id)
    stage = ""
    if _attempt_began(documents) and not attempt_ended(documents):
        stage = await _stage(ledger, documents)
    return judge(ledger, documents, job, stage)


async def listed_view(ledger: Ledger, run_id: str) -> RunView | None:
    """Return the state of a run for a list, which no single run may spoil.

    None when it was removed meanwhile; of a run whose documents are damaged, just that.
    """
    try:
        return await view(ledger, run_id)
    except NotFoundError:
        return None
    except FormatError as error:
        return RunView(
            id=run_id,
            name="",
            user=ledger.user,
            project="",
            host="",
            state=UNKNOWN,
            reason=str(error).partition("\n")[0],
            created=_created(run_id),
            url=ledger.url(run_id),
        )


async def final_view(ledger: Ledger, run_id: str, patience: float = 3.0) -> RunView:
    """Return the state of a run whose last attempt has told its end.

    A run that its scheduler ended (a time limit, a preemption) knows only that: the reason is the
    scheduler's, which may need a moment, in seconds at most `patience`, to see the end itself.
    """
    deadline = time.monotonic() + patience
    while True:
        documents = await ledger.documents(run_id)
        submission = documents.submission
        known = submission is None or not _ended_by_scheduler(documents)
        if known or time.monotonic() > deadline:
            return await view(ledger, run_id)
        assert submission is not None
        if (await job_state(ledger, submission)).phase == ENDED:
            return await view(ledger, run_id)
        await asyncio.sleep(0.1)


async def job_state(ledger: Ledger, submission: Submission) -> JobState:
    """Ask the scheduler; one that does not answer makes the state unknown, never an error."""
    try:
        return await ledger.scheduler(submission.scheduler).state(submission.handle)
    except J2CError as error:
        return JobState(UNKNOWN, f"{_NO_ANSWER}: {error.message}")


def judge(ledger: Ledger, documents: RunDocuments, job: JobState | None, stage: str) -> RunView:
    """Decide what state a run is in.

    Parameters
    ----------
    ledger : Ledger
    documents : RunDocuments
    job : JobState, optional
        What the scheduler says; not needed when the last attempt has its outcome.
    stage : str
        The last stage that the attempt told.
    """
    known = _known(ledger, documents)
    if documents.submission is None:
        return RunView(**known, **_unsubmitted(ledger, documents))
    if documents.starts and _attempt_began(documents):
        known["started"] = min(start.started for start in documents.starts.values())
    if attempt_ended(documents):
        outcome = _decisive(documents.outcomes)
        stopped = _ended_by_scheduler(documents) and job is not None and job.reason
        if _ended_by_scheduler(documents) and job is not None and _may_start_again(job):
            return RunView(**known, **_between_attempts(outcome, job))
        return RunView(
            **{**known, "started": outcome.started or known.get("started")},
            state=_state_of_end(stopped) if stopped else outcome.state,
            reason=stopped or outcome.reason,
            finished=outcome.finished,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            outputs=[file for _, o in sorted(documents.outcomes.items()) for file in o.outputs],
        )
    return RunView(**known, **_from_scheduler(documents, job or JobState(UNKNOWN), stage))


def _known(ledger: Ledger, documents: RunDocuments) -> dict[str, Any]:
    asked = documents.run or documents.request
    assert asked is not None  # the ledger raises when there is neither
    submission = documents.submission
    return {
        "id": documents.id,
        "name": asked.name,
        "user": ledger.user,
        "project": asked.project,
        "host": asked.host,
        "created": asked.created,
        "attempt": documents.attempt,
        "scheduler": submission.scheduler if submission else asked.scheduler,
        "handle": submission.handle if submission else None,
        "bundle": documents.run.bundle if documents.run else None,
        "entry": f"-m {asked.entry.target}" if asked.entry.kind == "module" else asked.entry.target,
        "args": asked.args,
        "resources": asked.resources,
        "url": ledger.url(documents.id),
    }


def _unsubmitted(ledger: Ledger, documents: RunDocuments) -> dict[str, Any]:
    if documents.cancellation is not None:
        return {"state": CANCELLED, "reason": f"cancelled by {documents.cancellation.by}"}
    working = SUBMITTING if documents.run is not None else PACKING
    asked = documents.run or documents.request
    if ledger.pending.is_worked_on(documents.id):
        return {"state": working}
    if asked is not None and asked.host != host_name():
        return {"state": working, "reason": f"on {asked.host}, if j2c is still at work there"}
    return {
        "state": INTERRUPTED,
        "reason": f"j2c was ended before it was submitted; j2c resume {documents.id} goes on",
    }


def _from_scheduler(documents: RunDocuments, job: JobState, stage: str) -> dict[str, Any]:
    began = _attempt_began(documents)
    if job.phase == PENDING:
        return {"state": QUEUED, "reason": job.reason, "expected_start": job.expected_start}
    if job.phase == RUNNING:
        return {"state": stage if began and stage else STARTING, "reason": job.reason}
    if job.phase == UNKNOWN:
        last = f"last seen {stage}; " if stage else ""
        return {"state": UNKNOWN, "reason": f"{last}{job.reason}".rstrip("; ")}
    cancelled = documents.cancellation
    if cancelled is not None:
        return {"state": CANCELLED, "reason": f"cancelled by {cancelled.by}"}
    while_at = f" while {stage}" if stage else ""
    if job.exit_code not in (None, 0):
        reason = job.reason or (
            f"j2c unpack ended with exit code {job.exit_code}{while_at} and left no outcome"
        )
        return {"state": FAILED if not began else LOST, "reason": reason}
    return {"state": LOST, "reason": job.reason or f"the job ended{while_at} and left no outcome"}


def _may_start_again(job: JobState) -> bool:
    """Whether the scheduler, which ended an attempt, may yet make another of the same job."""
    silent = job.phase == UNKNOWN and job.reason.startswith(_NO_ANSWER)
    return job.phase in (PENDING, RUNNING) or silent


def _between_attempts(outcome: Outcome, job: JobState) -> dict[str, Any]:
    if job.phase == PENDING:
        return {"state": QUEUED, "reason": job.reason, "expected_start": job.expected_start}
    reason = f"attempt {outcome.attempt} was {outcome.reason}"
    if job.phase == UNKNOWN:
        return {"state": UNKNOWN, "reason": f"{reason}; {job.reason}"}
    return {"state": STARTING, "reason": f"{reason}; its scheduler has not ended the job yet"}


def _state_of_end(reason: str) -> str:
    """Whether somebody cancelled the job at the scheduler itself, by its reason."""
    return CANCELLED if reason.startswith("cancelled") else FAILED


def _attempt_began(documents: RunDocuments) -> bool:
    """Whether the last attempt belongs to the newest submission."""
    submission = documents.submission
    return submission is not None and documents.attempt > submission.attempts_before


def attempt_ended(documents: RunDocuments) -> bool:
    """Whether the newest submission's last attempt has told its outcome: nobody has to be asked."""
    nodes = documents.resources_nodes()
    return _attempt_began(documents) and len(documents.outcomes) >= nodes


def _ended_by_scheduler(documents: RunDocuments) -> bool:
    """Whether the attempt was told to end, and not because somebody cancelled the run."""
    return (
        attempt_ended(documents)
        and documents.cancellation is None
        and _decisive(documents.outcomes).state == CANCELLED
    )


def _decisive(outcomes: dict[int, Outcome]) -> Outcome:
    """The first failure wins."""
    failed = [outcome for outcome in outcomes.values() if outcome.state != SUCCEEDED]
    return min(failed, key=lambda o: o.finished) if failed else outcomes[min(outcomes)]


async def _stage(ledger: Ledger, documents: RunDocuments) -> str:
    """The last stage that rank 0 told: looked for in its first and its last journal segment."""
    rank = min(documents.starts, default=0)
    prefix = layout.journal_prefix(ledger.user, documents.id, documents.attempt, rank)
    names = await ledger.store.list_names(prefix)
    stage = ""
    for name in dict.fromkeys([*names[:1], *names[-1:]]):
        parser = SegmentParser()
        async for piece in ledger.store.read(prefix + name):
            for record in parser.feed(piece):
                if record.kind == EVENT and b'"stage"' in record.payload:
                    event = record.event()
                    if event.get("event") == "stage" and event.get("state") != "done":
                        stage = event.get("stage", stage)
    return stage if stage in STAGES else ""


def _created(run_id: str) -> float:
    """Return when a run was made, in seconds since the epoch, as its id tells it."""
    try:
        return calendar.timegm(time.strptime(run_id[:15], "%Y%m%d-%H%M%S"))
    except ValueError:
        return 0.0
