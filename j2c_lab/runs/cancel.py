"""The end of a run by somebody's wish, at whatever stage it is."""

from __future__ import annotations

import time

from j2c_lab.formats.run import Cancellation
from j2c_lab.runs.ledger import Ledger
from j2c_lab.runs.view import RunView, view
from j2c_lab.store import layout


async def cancel(ledger: Ledger, run_id: str, by: str) -> RunView:
    """Ask for the end of a run and return its state from just before; an ended run stays as it is.

    The wish is written into the store first, so that it holds even when the scheduler does not
    answer, or when the run is not submitted yet.

    Raises
    ------
    NotFoundError
        There is no such run.
    SchedulerError
        The scheduler does not answer; the wish stands, and asking again is safe.
    """
    seen = await view(ledger, run_id)
    if seen.ended:
        return seen
    wish = Cancellation(by=by, at=time.time())
    key = layout.cancellation(ledger.user, run_id)
    await ledger.store.put(key, wish.to_json(), if_absent=True)
    documents = await ledger.documents(run_id)
    asked = documents.run or documents.request
    if documents.submission is not None:
        scheduler = ledger.scheduler(documents.submission.scheduler)
        await scheduler.cancel(documents.submission.handle)
    elif asked is not None:
        # Submitted perhaps, but not written down yet.
        scheduler = ledger.scheduler(asked.scheduler)
        handle = await scheduler.find(run_id)
        if handle is not None:
            await scheduler.cancel(handle)
    return seen
