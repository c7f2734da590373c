"""The end of all that is kept of a run."""

from __future__ import annotations

from j2c_lab.errors import NotFoundError
from j2c_lab.runs.ledger import Ledger
from j2c_lab.store import layout


async def delete(ledger: Ledger, run_id: str) -> None:
    """Delete a run with its journal and saved outputs; the caller has seen that it is over.

    What makes it a run goes last: interrupted half-way, it is still listed and can be deleted.

    Raises
    ------
    NotFoundError
        There is no such run.
    """
    # By its name, not by its documents: a run whose documents are damaged can be deleted too.
    if run_id not in await ledger.ids():
        raise NotFoundError(f"there is no run {run_id!r} here", "j2c list shows the runs")
    last = [layout.run(ledger.user, run_id), layout.request(ledger.user, run_id)]
    prefix = layout.run_prefix(ledger.user, run_id)
    keys = [info.key async for info in ledger.store.scan(prefix) if info.key not in last]
    await ledger.store.delete(keys)
    await ledger.store.delete(last)
