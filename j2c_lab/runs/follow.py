"""A run as it goes: journal records and changes of state, from any point, until it has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from j2c_lab.errors import StoreError
from j2c_lab.formats.journal import EVENT, JournalRecord
from j2c_lab.formats.run import Outcome, Submission
from j2c_lab.runs.journal_reader import JournalReader
from j2c_lab.runs.ledger import Ledger
from j2c_lab.runs.view import STAGES, RunView, final_view, job_state, view
from j2c_lab.schedulers.base import ENDED, UNKNOWN

#: Seconds between looks at the store while the run writes, and when it has long been silent.
SHORTEST_PAUSE = 0.05
LONGEST_PAUSE = 0.35
#: The same for a store behind a network, where each look is a request that somebody pays for:
#: a run that writes is looked at four times a second, a silent one every few seconds.
FAR_PAUSES = (0.25, 3.0)
_FAR_GROWTH = 1.15
#: Seconds between two looks for what hardly ever comes unannounced: the outcome of an attempt
#: whose journal is open, the state of a run that waits.
_FAR_LOOK = 30.0
_FAR_ASK_EVERY = 5.0
#: Seconds between questions to the scheduler while the journal is silent.
_ASK_EVERY = 1.0
#: Seconds to wait for the rest of a journal whose attempt has told its end: a store may show the
#: outcome before the last segment of a slow upload.
_REST_WITHIN = 30.0


class Followed(NamedTuple):
    """Something new: a record of the journal, or a state."""

    attempt: int
    rank: int = 0
    record: JournalRecord | None = None
    state: str = ""
    reason: str = ""


class Position(NamedTuple):
    """A place in a run: after this record of this attempt; record 0 is the attempt's beginning."""

    attempt: int = 1
    record: int = 0


BEGINNING = Position()


async def records_so_far(
    ledger: Ledger, run_id: str, attempt: int, after: int = 0
) -> AsyncIterator[tuple[int, JournalRecord]]:
    """Yield the rank and record of all that an attempt has said up to now, rank by rank."""
    for rank in await ledger.ranks(run_id, attempt):
        where = (ledger.store, ledger.user, run_id, attempt, rank)
        reader = JournalReader(*where, after=after)
        while records := await reader.poll():
            for record in records:
                yield rank, record


class Follower:
    """Follows one run. Iterate it once; then `result` is how the run ended.

    The iteration ends only when the run has: when every record that its outcome counts has been
    yielded, or when the scheduler says that the job is over and nothing comes any more. An attempt
    that fell silent without an outcome is left when the next one has come up. A store
    or a scheduler that does not answer is waited for.

    Parameters
    ----------
    start : Position
        Records up to it are passed over.
    pause : (float, float)
        Shortest and longest time between two looks at the store, in seconds; by default as
        the store is near or far.
    """

    def __init__(
        self,
        ledger: Ledger,
        run_id: str,
        start: Position = BEGINNING,
        pause: tuple[float, float] | None = None,
    ) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._start = start
        self._far = ledger.store.local_path("") is None
        near = (SHORTEST_PAUSE, LONGEST_PAUSE)
        self._pauses = pause or (FAR_PAUSES if self._far else near)
        self._pause = self._pauses[0]
        self._submission: Submission | None = None
        self._told = ("", "")
        self._before = ""
        self._asked = 0.0
        #: When the next attempt was last looked for.
        self._looked_on = 0.0
        self.result: RunView | None = None

    async def __aiter__(self) -> AsyncIterator[Followed]:
        wanted, after = self._start
        while True:
            number = await self._attempt_from(wanted)
            if number is None:
                # Waiting for an attempt to come up, or for the end of a run that has none.
                seen = await self._look()
                if seen is not None:
                    for change in self._change(seen.state, seen.reason, seen.attempt):
                        yield change
                    if seen.ended and await self._attempt_from(wanted) is None:
                        self.result = seen
                        return
                await self._sleep()
                continue
            async for followed in self._attempt(number, after if number == wanted else 0):
                yield followed
            wanted = number + 1
            if not await self._goes_on(number):
                self.result = await self._end()
                for change in self._change(self.result.state, self.result.reason, number):
                    yield change
                return

    async def _attempt(self, number: int, after: int) -> AsyncIterator[Followed]:
        """Yield what one attempt says, all its ranks in turn, until it has ended."""
        readers: dict[int, JournalReader] = {}
        outcomes: dict[int, Outcome] = {}
        nodes = 0
        looked = 0.0
        self._submission = None
        quiet_since = time.monotonic()
        job_ended = False
        while True:
            news = False
            try:
                nodes = nodes or (await self._ledger.documents(self._run_id)).resources_nodes()
                await self._join_ranks(number, after, readers, nodes)
                for rank, reader in readers.items():
                    while records := await reader.poll():
                        news = True
                        for record in records:
                            yield Followed(number, rank, record)
                            for change in self._stage(record, number):
                                yield change
                # The writer seals its last segment before it writes the outcome.
                due = not self._far or time.monotonic() - looked > _FAR_LOOK
                if not news and (due or job_ended or any(r.between for r in readers.values())):
                    looked = time.monotonic()
                    await self._read_outcomes(number, outcomes, readers)
                    rest = [r for r, o in outcomes.items() if readers[r].last < o.journal_records]
                    if len(outcomes) >= nodes and not rest:
                        return
            except StoreError as error:
                # Lost is the connection, not the run.
                for change in self._change(UNKNOWN, error.message, number):
                    yield change
            else:
                for change in self._recovered(number):
                    yield change
            now = time.monotonic()
            if news:
                quiet_since, self._pause, job_ended = now, self._pauses[0], False
                continue
            if job_ended or (len(outcomes) >= nodes and now - quiet_since > _REST_WITHIN):
                return
            if len(outcomes) < nodes and now - max(self._asked, quiet_since) > _ASK_EVERY:
                # Once more round after that was found: the last records come first.
                job_ended = await self._is_over(number)
                continue
            await self._sleep()

    async def _join_ranks(
        self, number: int, after: int, readers: dict[int, JournalReader], nodes: int
    ) -> None:
        if len(readers) < max(nodes, 1):
            for rank in await self._ledger.ranks(self._run_id, number):
                if rank not in readers:
                    readers[rank] = JournalReader(
                        self._ledger.store,
                        self._ledger.user,
                        self._run_id,
                        number,
                        rank,
                        after=after,
                    )

    async def _read_outcomes(
        self, number: int, outcomes: dict[int, Outcome], readers: dict[int, JournalReader]
    ) -> None:
        for rank in readers:
            if rank not in outcomes:
                outcome = await self._ledger.outcome(self._run_id, number, rank)
                if outcome is not None:
                    outcomes[rank] = outcome

    async def _attempt_from(self, first: int) -> int | None:
        """The next attempt that came up, from this number on."""
        try:
            numbers = await self._ledger.attempts(self._run_id)
        except StoreError:
            return None
        return min((number for number in numbers if number >= first), default=None)

    async def _look(self) -> RunView | None:
        """The run's state, not asked for too often."""
        if time.monotonic() - self._asked < (_FAR_ASK_EVERY if self._far else _ASK_EVERY):
            return None
        self._asked = time.monotonic()
        try:
            return await view(self._ledger, self._run_id)
        except StoreError as error:
            self._told = (UNKNOWN, error.message)
            return None

    async def _is_over(self, number: int) -> bool:
        """Whether an attempt that is silent and has told no end will not go on."""
        self._asked = time.monotonic()
        if self._asked - self._looked_on > (_FAR_LOOK if self._far else 0):
            self._looked_on = self._asked
            # Its node was lost and the scheduler started the job again: it is running, elsewhere.
            if await self._attempt_from(number + 1) is not None:
                return True
        return await self._job_ended()

    async def _job_ended(self) -> bool:
        try:
            if self._submission is None:
                # An attempt stays with its job: read once for all the questions about it.
                self._submission = (await self._ledger.documents(self._run_id)).submission
        except StoreError:
            return False
        if self._submission is None:
            return False
        return (await job_state(self._ledger, self._submission)).phase == ENDED

    async def _goes_on(self, number: int) -> bool:
        """Whether there is, or will be, an attempt after this one."""
        if await self._attempt_from(number + 1) is not None:
            return True
        try:
            documents = await self._ledger.documents(self._run_id)
            submission = documents.submission
            if submission is None:
                return False
            if submission.attempts_before >= number:
                return True  # resumed: the attempt belongs to an earlier submission
            # Requeued; or ended by the scheduler, which may yet make another attempt.
            return not (await view(self._ledger, self._run_id)).ended
        except StoreError:
            return True

    async def _end(self) -> RunView:
        while True:
            try:
                return await final_view(self._ledger, self._run_id)
            except StoreError:
                await self._sleep()

    def _stage(self, record: JournalRecord, attempt: int) -> list[Followed]:
        if record.kind == EVENT:
            event = record.event()
            begins = event.get("event") == "stage" and event.get("state") != "done"
            if begins and event.get("stage") in STAGES:
                return self._change(event["stage"], "", attempt)
        return []

    def _recovered(self, attempt: int) -> list[Followed]:
        """After the store has answered again: the state that held before."""
        if self._told[0] != UNKNOWN or not self._before:
            return []
        return self._change(self._before, "", attempt)

    def _change(self, state: str, reason: str, attempt: int) -> list[Followed]:
        if (state, reason) == self._told:
            return []
        if state != UNKNOWN:
            self._before = state
        self._told = (state, reason)
        return [Followed(attempt, state=state, reason=reason)]

    async def _sleep(self) -> None:
        await asyncio.sleep(self._pause)
        growth = _FAR_GROWTH if self._far else 1.5
        self._pause = min(self._pause * growth, self._pauses[1])
