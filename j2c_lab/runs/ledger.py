"""All runs of a user in a store: found, listed, and read whole."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from j2c_lab.errors import FormatError, NotFoundError, UsageError
from j2c_lab.formats.record import Record
from j2c_lab.formats.run import (
    RUN_ID,
    AttemptStart,
    Cancellation,
    Outcome,
    Run,
    Submission,
)
from j2c_lab.runs.pending import Pending
from j2c_lab.runs.request import Request
from j2c_lab.schedulers.base import Scheduler
from j2c_lab.schedulers.registry import open_scheduler
from j2c_lab.store import layout
from j2c_lab.store.base import Store

R = TypeVar("R", bound=Record)

_SUBMISSION = re.compile(r"submission(?:-(\d+))?\.json")


@dataclasses.dataclass(frozen=True)
class RunDocuments:
    """What the store holds of a run, but for journals and outputs."""

    id: str
    request: Request | None
    run: Run | None
    #: The newest.
    submission: Submission | None
    cancellation: Cancellation | None
    #: Number of the last attempt, 0 if there was none.
    attempt: int
    #: Those of the last attempt, by rank.
    starts: dict[int, AttemptStart]
    outcomes: dict[int, Outcome]

    def resources_nodes(self) -> int:
        """Return how many ranks an attempt has."""
        return self.run.resources.nodes if self.run is not None else 1


class Ledger:
    """The runs of one user in one store, and the schedulers that have their jobs.

    Parameters
    ----------
    store : Store
    user : str
    environ : mapping, optional
        The environment that schedulers and the state directory are found in.
    """

    def __init__(
        self,
        store: Store,
        user: str,
        environ: Mapping[str, str] | None = None,
        opener: Callable[[str, Mapping[str, str] | None], Scheduler] = open_scheduler,
    ) -> None:
        self.store = store
        self.user = user
        self.environ = dict(os.environ if environ is None else environ)
        self.pending = Pending(self.environ, store.url)
        self._opener = opener
        self._schedulers: dict[str, Scheduler] = {}

    def scheduler(self, name: str) -> Scheduler:
        """Return the scheduler of that name."""
        if name not in self._schedulers:
            self._schedulers[name] = self._opener(name, self.environ)
        return self._schedulers[name]

    def url(self, run_id: str) -> str:
        """Return the run URL that `j2c unpack` is given."""
        return layout.run_url(self.store.url, self.user, run_id)

    async def ids(self) -> list[str]:
        """Return all run ids, newest first."""
        names = await self.store.list_names(layout.user_runs(self.user))
        return [name for name in reversed(names) if RUN_ID.fullmatch(name)]

    async def resolve(self, reference: str) -> str:
        """Return the id that a person means: an id, its beginning, a run's name, or `last`.

        Raises
        ------
        NotFoundError
            No run is meant.
        UsageError
            Several are.
        """
        ids = await self.ids()
        if reference in ids:
            return reference
        if reference == "last" and ids:
            return ids[0]
        found = [run_id for run_id in ids if run_id.startswith(reference)] if reference else []
        # The end of an id is what people remember: its six random digits.
        found = found or [i for i in ids if len(reference) >= 4 and i.endswith(reference)]
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} runs begin with {reference!r}", "give more of the id", found[:10]
            )
        if found:
            return found[0]
        async for run_id, name in self._names(ids):
            if name == reference:
                return run_id
        raise NotFoundError(f"there is no run {reference!r} here", "j2c list shows the runs")

    async def newest(self, limit: int) -> AsyncIterator[tuple[str, str]]:
        """Yield id and name of the newest runs."""
        async for found in self._names((await self.ids())[:limit]):
            yield found

    async def documents(self, run_id: str) -> RunDocuments:
        """Return all documents of a run.

        Raises
        ------
        NotFoundError
            There is no such run.
        """
        user = self.user
        names = set(await self.store.list_names(layout.run_prefix(user, run_id)))
        if not names & {"request.json", "run.json"}:
            raise NotFoundError(f"there is no run {run_id!r} here", "j2c list shows the runs")
        run = request = submission = cancellation = None
        if "run.json" in names:
            run = await self.read(Run, layout.run(user, run_id))
        if run is None:
            request = await self.read(Request, layout.request(user, run_id))
        numbers = [int(m[1] or 1) for m in map(_SUBMISSION.fullmatch, names) if m]
        if numbers:
            key = layout.submission(user, run_id, max(numbers))
            submission = await self.read(Submission, key)
        if "cancel.json" in names:
            cancellation = await self.read(Cancellation, layout.cancellation(user, run_id))
        attempt, starts, outcomes = 0, {}, {}
        if "attempts" in names or "attempts/" in names:
            attempt = max(await self.attempts(run_id), default=0)
        for rank in await self.ranks(run_id, attempt) if attempt else []:
            start = await self.read(AttemptStart, layout.attempt_start(user, run_id, attempt, rank))
            outcome = await self.outcome(run_id, attempt, rank)
            if start is not None:
                starts[rank] = start
            if outcome is not None:
                outcomes[rank] = outcome
        return RunDocuments(
            run_id, request, run, submission, cancellation, attempt, starts, outcomes
        )

    async def attempts(self, run_id: str) -> list[int]:
        """Return the numbers of all attempts, in order."""
        names = await self.store.list_names(layout.attempts(self.user, run_id))
        return sorted(int(name.rstrip("/")) for name in names if name.rstrip("/").isdigit())

    async def ranks(self, run_id: str, attempt: int) -> list[int]:
        """Return the ranks of an attempt that came up, in order."""
        names = await self.store.list_names(f"{layout.attempts(self.user, run_id)}{attempt}/")
        return sorted(int(name.rstrip("/")) for name in names if name.rstrip("/").isdigit())

    async def outcome(self, run_id: str, attempt: int, rank: int) -> Outcome | None:
        """Return how a rank of an attempt ended, or None."""
        return await self.read(Outcome, layout.outcome(self.user, run_id, attempt, rank))

    async def read(self, kind: type[R], key: str) -> R | None:
        """Return a document, or None when it is not there; `FormatError` when it is damaged."""
        try:
            return kind.from_json(await self.store.get(key))
        except NotFoundError:
            return None
        except FormatError as error:
            raise FormatError(f"{key} in the store is damaged: {error.message}") from error

    async def _names(self, ids: list[str]) -> AsyncIterator[tuple[str, str]]:
        for run_id in ids:
            try:
                document = await self.read(Run, layout.run(self.user, run_id)) or await self.read(
                    Request, layout.request(self.user, run_id)
                )
            except FormatError:
                # One damaged run must not hide the others.
                continue
            if document is not None:
                yield run_id, document.name
