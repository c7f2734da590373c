"""Follows a run in the foreground: the log to standard output, signals as a user expects."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import Any

from j2c_lab.cli.output import JsonOutput, Output
from j2c_lab.errors import J2CError
from j2c_lab.runs.cancel import cancel
from j2c_lab.runs.follow import BEGINNING, Follower, Position
from j2c_lab.runs.ledger import Ledger
from j2c_lab.runs.view import RunView

#: Seconds after Ctrl-C in which a second one cancels the run.
_SECOND_WITHIN = 1.5
#: Records before the place asked for that are read again: one of them may end in half a character.
PRIMED = 3


async def follow_to_end(
    ledger: Ledger, run_id: str, output: Output, start: Position = BEGINNING
) -> int:
    """Show a run until it has ended; return its exit code, or 130, 143, 141 when detached.

    Ctrl-C and SIGTERM detach: the run goes on. A second Ctrl-C soon after cancels the run and
    shows how it ends; a third leaves at once.
    """
    watch = _Signals()
    follower = Follower(ledger, run_id, Position(start.attempt, max(0, start.record - PRIMED)))
    with watch:
        task = asyncio.ensure_future(_show(follower, run_id, output, start))
        number = await watch.first(task)
        if number == signal.SIGINT:
            tell_detached(run_id, output)
            if await watch.within(_SECOND_WITHIN):
                await cancel(ledger, run_id, by=f"{ledger.user} (Ctrl-C)")
                output.event({"event": "cancelling", "run": run_id})
                number = await watch.first(task)
        elif number is not None:
            tell_detached(run_id, output)
        if number is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            output.close()
            return 128 + number
        await task
    assert follower.result is not None
    await show_result(ledger, follower.result, output)
    return follower.result.process_exit_code()


async def show_result(ledger: Ledger, result: RunView, output: Output) -> None:
    """Tell how a run ended; of one that could not say it itself, what its scheduler saw."""
    output.close()
    silent = result.state == "lost" or (result.state == "failed" and result.started is None)
    if silent and result.handle:
        with contextlib.suppress(J2CError):
            log = await ledger.scheduler(result.scheduler).log(result.handle)
            for line in log.decode("utf-8", "replace").splitlines()[-20:]:
                output.say(f"{result.scheduler}: {line}")
    output.event(
        {
            "event": "result",
            "run": result.id,
            "state": result.state,
            "exit_code": result.exit_code,
            "signal": result.signal,
            "reason": result.reason,
            "duration": result.duration,
            "outputs": len(result.outputs),
        }
    )


async def _show(follower: Follower, run_id: str, output: Output, start: Position) -> None:
    async for item in follower:
        record = item.record
        if record is None:
            output.event(
                {
                    "event": "state",
                    "run": run_id,
                    "state": item.state,
                    "reason": item.reason,
                    "attempt": item.attempt,
                }
            )
        elif item.attempt == start.attempt and record.number <= start.record:
            if isinstance(output, JsonOutput):
                output.prime(item.attempt, item.rank, record)
        else:
            output.record(item.attempt, item.rank, record)


def tell_detached(run_id: str, output: Output, again: bool = True) -> None:
    """Say that the run goes on; `again` when a second Ctrl-C is waited for."""
    output.close()
    remedy = f"j2c logs -f {run_id} comes back, j2c cancel {run_id} ends it"
    if again and sys.stderr.isatty():
        remedy += " (as does a second Ctrl-C now)"
    output.event({"event": "detached", "run": run_id, "remedy": remedy})


class _Signals:
    """SIGINT and SIGTERM as events of the loop, while it is entered."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[int] = asyncio.Queue()

    def __enter__(self) -> _Signals:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._came.put_nowait, number)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    async def first(self, task: asyncio.Future[None]) -> int | None:
        """Wait for a signal or for the end of `task`; None for the latter."""
        waiting = asyncio.ensure_future(self._came.get())
        try:
            both: set[asyncio.Future[Any]] = {task, waiting}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()

    async def within(self, seconds: float) -> bool:
        """Whether another signal comes in that time."""
        try:
            await asyncio.wait_for(self._came.get(), seconds)
            return True
        except asyncio.TimeoutError:
            return False
