"""The stages of a submit, each of which finds what an earlier, killed one has finished."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from j2c_lab.errors import J2CError, UsageError
from j2c_lab.formats.run import Run, Submission
from j2c_lab.runs.ledger import Ledger, RunDocuments
from j2c_lab.runs.packing import pack, preview
from j2c_lab.runs.request import Request, job_of
from j2c_lab.runs.view import SUCCEEDED, view
from j2c_lab.store import layout

Report = Callable[[dict[str, Any]], None]


class CancelledError(J2CError):
    """The run was cancelled before its job was submitted."""

    code = "cancelled"


class Submitted(NamedTuple):
    """A run that the scheduler has."""

    run: Run
    submission: Submission


async def submit(ledger: Ledger, request: Request, report: Report) -> Submitted:
    """Pack, upload and submit a request; the run is not followed.

    The id of `request` is a proposal: when the same request was interrupted before, it is gone on
    with under its own id. Call `ledger.pending.release(run id)` once the user has been told.

    Raises
    ------
    UsageError
        The scheduler can never run it, or the project or environment is not there.
    J2CError
        A stage failed; repeating the request goes on from there.
    """
    ledger.scheduler(request.scheduler).check(
        job_of(request.run(""), ledger.url(request.id), 1, ledger.environ)
    )
    proposed = request.id
    request = request.with_id(ledger.pending.claim(request.fingerprint(), proposed))
    adopted = request.id != proposed
    report({"event": "run", "run": request.id, "name": request.name, "adopted": adopted})
    key = layout.request(ledger.user, request.id)
    await ledger.store.put(key, request.to_json(), if_absent=True)
    packed = await pack(request, ledger.store, report)
    run = request.run(packed.result.digest, packed.python)
    new = await _write_run(ledger, run)
    if not new:
        stored = await ledger.read(Run, layout.run(ledger.user, run.id))
        if stored is None or stored.bundle != run.bundle:
            # Something was edited since the interrupted request: that is another run.
            ledger.pending.release(run.id)
            await _warn_of_submitted(ledger, run.id, report)
            return await submit(ledger, request.with_id(proposed), report)
        run = stored
    # Nobody can have submitted it before it was written: no need to ask the store.
    return await _give_to_scheduler(ledger, run, 1, report, new=new)


async def resume(ledger: Ledger, run_id: str, report: Report) -> Submitted:
    """Go on with a run: an unfinished request from its last finished stage, an ended run anew.

    A run that failed, was cancelled or lost is submitted again with the same bundle; the outputs
    of its earlier attempts stay. A run that waits or runs is left as it is.

    Raises
    ------
    UsageError
        The run has succeeded.
    """
    documents = await ledger.documents(run_id)
    begun = {"event": "run", "run": run_id, "name": _name(documents)}
    if documents.submission is None:
        report({**begun, "adopted": True})
        if documents.cancellation is not None:
            await ledger.store.delete([layout.cancellation(ledger.user, run_id)])
        run = documents.run or await _pack_again(ledger, documents, report)
        return await _give_to_scheduler(ledger, run, 1, report)
    assert documents.run is not None  # written before any submission
    seen = await view(ledger, run_id)
    if seen.state == SUCCEEDED:
        raise UsageError(
            f"run {run_id} has succeeded: there is nothing to resume",
            f"j2c fetch {run_id} brings its outputs; j2c submit makes a new run",
        )
    report({**begun, "adopted": False})
    if not seen.ended:
        return Submitted(documents.run, documents.submission)
    await ledger.store.delete([layout.cancellation(ledger.user, run_id)])
    return await _give_to_scheduler(
        ledger, documents.run, documents.submission.number + 1, report, documents.attempt
    )


async def dry_run(ledger: Ledger, request: Request, report: Report) -> dict[str, Any]:
    """Return the event `dry_run`: what `submit` would send and hand over. Writes nothing."""
    scheduler = ledger.scheduler(request.scheduler)
    job = job_of(request.run(""), ledger.url(request.id), 1, ledger.environ)
    scheduler.check(job)
    shown = await preview(request, ledger.store, report)
    return {"event": "dry_run", "run": request.id, "job": scheduler.render(job), **shown}


async def _pack_again(ledger: Ledger, documents: RunDocuments, report: Report) -> Run:
    request = documents.request
    assert request is not None  # a run without run.json has it
    ledger.pending.take_over(request.id, request.fingerprint())
    packed = await pack(request, ledger.store, report)
    run = request.run(packed.result.digest, packed.python)
    if await _write_run(ledger, run):
        return run
    stored = await ledger.read(Run, layout.run(ledger.user, run.id))
    assert stored is not None
    return stored


async def _write_run(ledger: Ledger, run: Run) -> bool:
    return await ledger.store.put(layout.run(ledger.user, run.id), run.to_json(), if_absent=True)


async def _give_to_scheduler(
    ledger: Ledger,
    run: Run,
    number: int,
    report: Report,
    attempts_before: int = 0,
    new: bool = False,
) -> Submitted:
    """Submit the job unless that was done, and write down its handle once."""
    report({"event": "stage", "stage": "submit", "at": time.time()})
    key = layout.submission(ledger.user, run.id, number)
    submission = None if new else await ledger.read(Submission, key)
    if submission is None:
        scheduler = ledger.scheduler(run.scheduler)
        handle = await scheduler.find(run.id, number)
        if handle is None:
            await _refuse_cancelled(ledger, run.id)
        # Even if it was found: a submit that was killed halfway is completed by the next.
        job = job_of(run, ledger.url(run.id), number, ledger.environ, attempts_before)
        handle = await scheduler.submit(job)
        submission = Submission(
            scheduler=run.scheduler,
            handle=handle,
            submitted=time.time(),
            number=number,
            attempts_before=attempts_before,
        )
        if not await ledger.store.put(key, submission.to_json(), if_absent=True):
            submission = await ledger.read(Submission, key) or submission
        if await ledger.store.stat([layout.cancellation(ledger.user, run.id)]):
            # Asked for between the two looks: whoever asked did not find a job to cancel.
            await scheduler.cancel(handle)
    report(
        {
            "event": "submitted",
            "run": run.id,
            "scheduler": submission.scheduler,
            "handle": submission.handle,
            "url": ledger.url(run.id),
        }
    )
    return Submitted(run, submission)


async def _refuse_cancelled(ledger: Ledger, run_id: str) -> None:
    if await ledger.store.stat([layout.cancellation(ledger.user, run_id)]):
        raise CancelledError(
            f"run {run_id} was cancelled before it was submitted",
            f"j2c resume {run_id} submits it nevertheless",
        )


async def _warn_of_submitted(ledger: Ledger, run_id: str, report: Report) -> None:
    documents = await ledger.documents(run_id)
    run = documents.run
    found = run and await ledger.scheduler(run.scheduler).find(run_id)
    if documents.submission is not None or found:
        report(
            {
                "event": "warning",
                "message": f"run {run_id} of the same command, with other content, was submitted "
                "before this one",
                "remedy": f"j2c cancel {run_id} ends it",
            }
        )


def _name(documents: RunDocuments) -> str:
    asked = documents.run or documents.request
    return asked.name if asked is not None else documents.id
