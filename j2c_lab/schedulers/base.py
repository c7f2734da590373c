"""The contract of every scheduler. Code above knows schedulers by this file alone."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from j2c_lab.formats.run import Job

PENDING = "pending"
RUNNING = "running"
ENDED = "ended"
#: The scheduler does not answer, or does not know the job.
UNKNOWN = "unknown"


class JobState(NamedTuple):
    """What the scheduler says of a job."""

    #: `PENDING`, `RUNNING`, `ENDED` or `UNKNOWN`.
    phase: str
    #: In plain words, for a person: why it waits, how it ended.
    reason: str = ""
    #: Exit code of `j2c unpack` where the scheduler knows it; 128 + signal after a signal.
    exit_code: int | None = None
    #: Expected start, seconds since the epoch, where the scheduler foretells it.
    expected_start: float | None = None


class Scheduler(Protocol):
    """Starts `j2c unpack` somewhere and says what became of it. Raises `SchedulerError`."""

    #: Its name in `--scheduler` and in the entry point group.
    name: str

    def check(self, job: Job) -> None:
        """Raise `UsageError` when this scheduler can never run the job (more GPUs than exist)."""
        ...

    def render(self, job: Job) -> dict[str, Any]:
        """Return what `submit` would hand over, as JSON values; pure, for `--dry-run`."""
        ...

    async def submit(self, job: Job) -> str:
        """Hand the job over and return its handle; for the same job again, the same handle.

        However often it is called, by however many processes, at most one job exists for a run id
        and submission number. Called for a job that was found, it completes what a submit began
        that was killed halfway.
        """
        ...

    async def find(self, run_id: str, submission: int = 1) -> str | None:
        """Return the handle of the run's job, waiting, running or ended; None if there is none."""
        ...

    async def state(self, handle: str) -> JobState:
        """Return the job's state."""
        ...

    async def cancel(self, handle: str) -> None:
        """End the job, whatever it is doing; an ended job is no error."""
        ...

    async def log(self, handle: str) -> bytes:
        """Return the scheduler's own log of the job, for when `j2c unpack` never came up."""
        ...
