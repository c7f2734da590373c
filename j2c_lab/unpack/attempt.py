"""One attempt of a run, from its claim to its outcome."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from j2c_lab.errors import J2CError, StoreError
from j2c_lab.formats.events import RecordEvents
from j2c_lab.formats.journal import JournalRecord
from j2c_lab.formats.run import AttemptStart, Outcome, Run
from j2c_lab.store import layout
from j2c_lab.unpack import records
from j2c_lab.unpack.control import Control, Stopped
from j2c_lab.unpack.deliver import deliver_leftovers, deliver_outcome, deliver_outputs
from j2c_lab.unpack.fetch import disk_error
from j2c_lab.unpack.journal import Journal
from j2c_lab.unpack.link import StoreLink
from j2c_lab.unpack.settings import Settings
from j2c_lab.unpack.spool import Spool
from j2c_lab.unpack.stages import Stages, learn_who
from j2c_lab.unpack.workdir import RunDirectory, clean, take_run_directory

#: Seconds to wait for the store at the start, and at the end at the least.
_FIRST_ANSWER = 120.0
_LAST_WORDS = 3.0
_MOST_DETAILS = 1000

#: Is given one event of docs/events.md.
Tell = Callable[[dict[str, Any]], None]


class Status(NamedTuple):
    """How `j2c unpack` ends itself."""

    exit_code: int
    signal: int | None = None
    reason: str = ""
    #: What the store did not take, and how it gets there; empty when it has everything.
    kept: str = ""


def execute_run(settings: Settings, tell: Tell | None = None) -> Status:
    """Execute the run; returns what the user's process ended with.

    Parameters
    ----------
    tell : callable, optional
        Is given every event of the attempt, those of its journal and the result.

    Raises
    ------
    J2CError
        The run could not even be read; nothing was written.
    """
    control = Control(settings.echo)
    link = StoreLink(settings.store_url)
    try:
        run = link.call(lambda store: records.read_run(store, settings), _FIRST_ANSWER)
        start = link.call(lambda store: records.claim_attempt(store, settings), _FIRST_ANSWER)
        attempt = _Attempt(settings, control, link, run, start)
        return attempt.execute() if tell is None else attempt.execute_and_tell(tell)
    finally:
        link.close()
        control.close()


def deliver_run(settings: Settings) -> int:
    """Send what earlier attempts of the run left on this node; returns 0.

    Raises
    ------
    J2CError
        The store does not take it; everything is kept.
    """
    link = StoreLink(settings.store_url)
    try:
        run = link.call(lambda store: records.read_run(store, settings), _FIRST_ANSWER)
        if not deliver_leftovers(settings, run, link):
            raise StoreError(
                "the store did not take all that is left of this run",
                "everything is kept: repeat the command when the store can be written to",
            )
        return 0
    finally:
        link.close()


class _Attempt:
    def __init__(
        self,
        settings: Settings,
        control: Control,
        link: StoreLink,
        run: Run,
        start: AttemptStart,
    ) -> None:
        self.settings = settings
        self.control = control
        self.link = link
        self.run = run
        self.start = start
        #: Is given every record of the journal.
        self.tell: Callable[[JournalRecord], None] | None = None
        self.outcome: Outcome | None = None
        #: Why the store has not got everything.
        self.refused = "it does not answer"

    def execute_and_tell(self, tell: Tell) -> Status:
        """Do as `execute`; `tell` is given all events, from whatever thread they come."""
        events = RecordEvents()
        where = self.start.attempt, self.start.rank

        def told(record: JournalRecord) -> None:
            event = events.event(*where, record)
            if event is not None:
                tell(event)

        self.tell = told
        status = self.execute()
        for event in events.rest():
            tell(event)
        if self.outcome is not None:
            tell(self._result(self.outcome))
        return status

    def execute(self) -> Status:
        """Execute the run and deliver what it left."""
        try:
            directory = take_run_directory(self.settings.workdir, self.run.id)
        except J2CError as error:
            outcome = self.outcome = self._outcome("failed", reason=str(error))
            deliver_outcome(self.settings, self.link, outcome, self.settings.delivery)
            return Status(125, None, str(error))
        try:
            return self._execute_in(directory)
        finally:
            os.close(directory.lock)

    def _execute_in(self, directory: RunDirectory) -> Status:
        spool = Spool(directory.spool / f"{self.start.attempt}-{self.start.rank}")
        wake = self.link.upload_journal(spool, self._segment_key)
        journal = Journal(spool, self.settings.spool_limit, wake, tell=self.tell)
        cancel = layout.cancellation(self.run.user, self.run.id)
        self.link.watch(cancel, lambda data: self.control.cancel(records.canceller(data)))
        outcome = self.outcome = self._outcome_of(directory, journal)
        delivered = self._finish(journal, outcome)
        if delivered:
            spool.remove()
            delivered = deliver_leftovers(self.settings, self.run, self.link, directory)
        if delivered and self.settings.temporary:
            self._remove(directory)
        status = self._status(outcome)
        return status if delivered else status._replace(kept=self._kept(directory))

    def _outcome_of(self, directory: RunDirectory, journal: Journal) -> Outcome:
        stages = Stages(
            self.settings, self.run, self.start, directory, self.control, self.link, journal
        )
        try:
            return stages.go()
        except Stopped:
            learn_who(self.control, self.link, self.run)
            reason = f"{self.control.why()}, before it was started"
            journal.stage(stages.current, "failed", reason=reason)
            return self._outcome("cancelled", reason=reason)
        except (J2CError, OSError) as error:
            failure = error if isinstance(error, J2CError) else disk_error(error)
            journal.stage(stages.current, "failed", reason=str(failure))
            journal.event(failure.event(_MOST_DETAILS))
            return self._outcome("failed", reason=str(failure))
        except Exception as error:
            # A fault of ours: the run must still be told to have failed, and why.
            traceback = _traceback_of(error)
            sys.stderr.write(traceback)
            reason = f"j2c itself failed: {type(error).__name__}: {error}".partition("\n")[0]
            journal.stage(stages.current, "failed", reason=reason)
            journal.event(J2CError(reason, details=traceback.splitlines()).event(_MOST_DETAILS))
            return self._outcome("failed", reason=reason)

    def _finish(self, journal: Journal, outcome: Outcome) -> bool:
        """Send what is left of the journal and then the outcome; False if that did not succeed."""
        import dataclasses

        journal.stage("finished", "done", outcome=outcome.state)
        outcome = dataclasses.replace(outcome, journal_records=journal.finish())
        # Kept until it has been delivered, so that a later attempt can.
        with contextlib.suppress(OSError):
            (journal.spool.directory / "outcome.json").write_bytes(outcome.to_json())
        timeout = self.settings.delivery
        if self.control.ending:
            timeout = min(timeout, max(self.control.grace_left(self.run.grace), _LAST_WORDS))
        until = time.monotonic() + timeout
        if not self.link.finish_journal(timeout):
            return False
        try:
            deliver_outputs(self.run, self.link, journal.spool.directory)
        except J2CError as error:
            self.refused = str(error)
            return False
        left = max(until - time.monotonic(), 1.0)
        if not deliver_outcome(self.settings, self.link, outcome, left):
            return False
        with contextlib.suppress(OSError):
            (journal.spool.directory / "outcome.json").unlink()
        return True

    def _remove(self, directory: RunDirectory) -> None:
        import shutil

        with contextlib.suppress(OSError):
            clean(directory.path)
        shutil.rmtree(directory.path, ignore_errors=True)

    def _kept(self, directory: RunDirectory) -> str:
        import shlex

        command = ["j2c", "unpack", "--deliver", self.settings.run_url]
        if not self.settings.temporary:
            command += ["--workdir", self.settings.workdir]
        return (
            f"the store did not take all of this run ({self.refused}); what is left is kept in "
            f"{directory.path}: {shlex.join(command)} sends it from this machine"
        )

    def _status(self, outcome: Outcome) -> Status:
        if outcome.exit_code is None and outcome.signal is None:
            return Status(125, self.control.signal, outcome.reason)
        return Status(outcome.process_exit_code(), outcome.signal, outcome.reason)

    def _outcome(self, state: str, reason: str) -> Outcome:
        return Outcome(
            attempt=self.start.attempt,
            rank=self.start.rank,
            state=state,
            reason=reason,
            started=self.start.started,
            finished=time.time(),
        )

    def _result(self, outcome: Outcome) -> dict[str, Any]:
        return {
            "event": "result",
            "run": self.run.id,
            "state": outcome.state,
            "exit_code": outcome.exit_code,
            "signal": outcome.signal,
            "reason": outcome.reason,
            "duration": outcome.finished - outcome.started,
            "outputs": len(outcome.outputs),
        }

    def _segment_key(self, segment: int) -> str:
        start = self.start
        return layout.journal_segment(
            self.run.user, self.run.id, start.attempt, start.rank, segment
        )


def _traceback_of(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
