"""A Slurm cluster, from one of its login nodes.

`slurm_render` makes the batch job, `slurm_script` is its text, `slurm_cli` talks, `slurm_states`
explains. A handle is Slurm's job id and what the job's name ends with: ids begin anew on another
cluster, or when one has lost its memory, and a job of that number may be anybody's.

Exactly one job for a run: a job is queued held, then all jobs that carry the run's id are looked
at; every submitter comes to the same one (the lowest id), which is released, and the others are
cancelled before they could start. A submitter that is killed in between leaves a held job, which
the next one finds and releases.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from j2c_lab.errors import NotFoundError, SchedulerError
from j2c_lab.formats.run import Job, Resources
from j2c_lab.schedulers.base import ENDED, PENDING, UNKNOWN, JobState
from j2c_lab.schedulers.slurm_cli import SlurmCommands
from j2c_lab.schedulers.slurm_render import Batch, key_of, render
from j2c_lab.schedulers.slurm_states import SlurmJob, explain, parse_job

_LOG_SHOWN = 1 << 20


class SlurmScheduler:
    """See `schedulers.base.Scheduler`.

    Parameters
    ----------
    environ : mapping, optional
        The submitter's environment. `J2C_SLURM_DIR` is a directory that login and compute nodes
        share, for logs (by default in the home directory); `J2C_SLURM_KILL_AFTER` the seconds
        from the wish to end until everything is killed.
    """

    name = "slurm"

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = dict(os.environ if environ is None else environ)
        base = environ.get("XDG_STATE_HOME") or os.path.join(
            environ.get("HOME") or os.path.expanduser("~"), ".local", "state"
        )
        self._directory = Path(environ.get("J2C_SLURM_DIR") or os.path.join(base, "j2c", "slurm"))
        kill_after = environ.get("J2C_SLURM_KILL_AFTER")
        self._kill_after = int(kill_after) if kill_after else None
        self._slurm = SlurmCommands(environ)

    def check(self, job: Job) -> None:
        self._slurm.test(self._batch(job), _asked(job.resources))

    def render(self, job: Job) -> dict[str, Any]:
        batch = self._batch(job)
        return {"command": ["sbatch", *batch.arguments], "script": batch.script}

    async def submit(self, job: Job) -> str:
        key = key_of(job.run_id, job.submission)
        found = await self._jobs_of(key)
        if not found:
            marked = await self._remembered(job.run_id, key)
            if marked is not None:
                return marked
            found = await self._submit_held(job, key)
        ours = _chosen(found)
        for other in found:
            if other.held and other.id != ours.id:
                await self._slurm.cancel(str(other.id))
        if ours.held:
            await self._release(ours)
        return _Handle(str(ours.id), key).text

    async def find(self, run_id: str, submission: int = 1) -> str | None:
        key = key_of(run_id, submission)
        found = await self._jobs_of(key)
        if found:
            return _Handle(str(_chosen(found).id), key).text
        return await self._remembered(run_id, key)

    async def state(self, handle: str) -> JobState:
        known = _parse(handle)
        if known is None:
            return JobState(UNKNOWN, "Slurm does not know it")
        job = await self._job(known)
        if job is None:
            return await self._forgotten(known)
        who = ""
        if job.state.startswith("CANCELLED"):
            accounted = await self._slurm.accounted_end(known.id, known.key)
            who = _canceller(accounted[0]) if accounted else ""
        return explain(job, who)

    async def cancel(self, handle: str) -> None:
        known = _parse(handle)
        if known is None:
            return
        job = await self._job(known)
        if job is not None and explain(job).phase == PENDING:
            # Only if it waits still: one that runs is not to be torn down, but to end as it likes.
            job = await self._cancel_if_alive(known, "--state=PENDING")
        if job is not None and job.state in ("RUNNING", "COMPLETING"):
            try:
                await self._slurm.cancel("--batch", "--signal=INT", known.id)
                return
            except SchedulerError:
                # It has just ended, or has not come up on its node yet.
                job = await self._job(known)
        if job is not None and explain(job).phase != ENDED:
            await self._cancel_if_alive(known)

    async def log(self, handle: str) -> bytes:
        known = _parse(handle)
        path = self._directory / f"{known.key if known else handle}.log"
        try:
            with open(path, "rb") as file:  # noqa: ASYNC230 - a small file, read once
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_SHOWN))
                return file.read()
        except FileNotFoundError:
            raise NotFoundError(
                f"job {handle} has no log in {self._directory}",
                "it never started, or its node does not share that directory: see J2C_SLURM_DIR",
            ) from None

    def _batch(self, job: Job) -> Batch:
        return render(job, str(self._directory), self._kill_after)

    async def _job(self, handle: _Handle) -> SlurmJob | None:
        """Return the job of that number, if it is the run's."""
        job = await self._slurm.job(handle.id)
        return job if job is not None and job.name.endswith(f"-{handle.key}") else None

    async def _cancel_if_alive(self, handle: _Handle, *arguments: str) -> SlurmJob | None:
        """Cancel the job and return it as it is then; that it has ended meanwhile is no error."""
        try:
            await self._slurm.cancel(*arguments, handle.id)
        except SchedulerError:
            job = await self._job(handle)
            if job is not None and explain(job).phase != ENDED:
                raise
            return job
        return await self._job(handle)

    async def _submit_held(self, job: Job, key: str) -> list[SlurmJob]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        failure = None
        try:
            await self._slurm.submit_held(self._batch(job))
        except SchedulerError as error:
            # It may have been only the answer that was lost.
            failure = error
        found = await self._jobs_of(key)
        if not found:
            raise failure or SchedulerError(
                "Slurm took the job and does not show it", "see squeue --me -t all"
            )
        return found

    async def _release(self, job: SlurmJob) -> None:
        try:
            await self._slurm.release(job.id)
        except SchedulerError:
            # Somebody else may have released it, and it may be over already.
            now = await self._slurm.job(str(job.id))
            if now is not None and now.held:
                raise

    async def _jobs_of(self, key: str) -> list[SlurmJob]:
        return [job for job in await self._slurm.jobs() if job.name.endswith(f"-{key}")]

    async def _remembered(self, run_id: str, key: str) -> str | None:
        """Find a job that Slurm has forgotten: by the mark that it left, or in accounting."""
        text = _read(self._directory / f"{key}.job")
        if text.isdigit():
            return _Handle(text, key).text
        found = await self._slurm.accounted(f"-{key}", run_id)
        return None if found is None else _Handle(str(found), key).text

    async def _forgotten(self, handle: _Handle) -> JobState:
        """Tell the state of a job that Slurm has answered it does not know: it is over."""
        accounted = await self._slurm.accounted_end(handle.id, handle.key)
        if accounted is not None:
            state, code = accounted
            line = "|".join([handle.id, state, code, "0", "", "?", "", ""])
            return explain(parse_job(line), _canceller(state))
        code = _read(self._directory / f"{handle.key}.exit")
        if code.isdigit():
            return JobState(ENDED, "", int(code))
        return JobState(ENDED, f"Slurm does not remember job {handle.id} any more: it is over")


class _Handle(NamedTuple):
    id: str
    key: str

    @property
    def text(self) -> str:
        return f"{self.id}:{self.key}"


def _parse(handle: str) -> _Handle | None:
    ident, colon, key = handle.partition(":")
    return _Handle(ident, key) if colon and ident.isdigit() and key else None


def _chosen(found: list[SlurmJob]) -> SlurmJob:
    """Return the one job of a run on which all submitters agree."""
    return min(found, key=lambda job: (job.never_ran, job.held, job.id))


def _asked(resources: Resources) -> str:
    wants = [
        (resources.nodes, "node"),
        (resources.gpus, "GPU"),
        (resources.cpus or 0, "CPU"),
    ]
    words = [f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in wants if number]
    if resources.memory:
        words.append(f"{resources.memory / (1 << 30):.3g}G of memory")
    if resources.time:
        words.append(f"{resources.time} s")
    each = " on each" if resources.nodes > 1 else ""
    return ", ".join(words) + each


def _canceller(state: str) -> str:
    """Return who, of accounting's `CANCELLED by 1000`."""
    ident = state.partition(" by ")[2]
    if not ident.isdigit():
        return ident
    import pwd

    try:
        return pwd.getpwuid(int(ident)).pw_name
    except KeyError:
        return f"user {ident}"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
