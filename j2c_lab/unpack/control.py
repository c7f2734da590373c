"""What may end a run from outside: signals to this process, and `cancel.json` in the store."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import FrameType

#: Ask for the end. USR2 is passed on to the user's process and means nothing to j2c.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_TAKEN = (*ENDING, signal.SIGUSR2, signal.SIGCHLD)
_WOKEN = 0


class Stopped(Exception):
    """The run was asked to end before the user's process was started."""


class Control:
    """Collects signals as bytes of a pipe, so that one `select` waits for them and for the rest.

    `signal` is the first signal that asked for the end, `cancelled_by` who wrote `cancel.json`.

    Parameters
    ----------
    echo : float
        Seconds after that signal in which further ones mean the same: a batch system may signal
        j2c, and the script that started it, which passes the signal on.
    """

    def __init__(self, echo: float = 0.0) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._kept: dict[int, object] = {}
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in _TAKEN:
            # A signal that was ignored when we were started (nohup) stays ignored.
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                self._kept[number] = signal.signal(number, _nothing)
        self.signal: int | None = None
        self.cancelled_by = ""
        self._asked_at: float | None = None
        self._echo = echo

    def fileno(self) -> int:
        """Return the pipe to select on; readable when `take` has something."""
        return self._reader

    def take(self) -> list[int]:
        """Return the signals that came since the last call, in order; never waits."""
        numbers: list[int] = []
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, 4096):
                numbers += [number for number in data if number != _WOKEN]
        numbers = self._without_echoes(numbers)
        for number in numbers:
            if number in ENDING and self.signal is None:
                self.signal = number
        if self.ending and self._asked_at is None:
            self._asked_at = time.monotonic()
        return numbers

    def cancel(self, by: str) -> None:
        """Say that somebody cancelled the run; may be called from any thread."""
        self.cancelled_by = by
        with contextlib.suppress(OSError):
            os.write(self._writer, bytes([_WOKEN]))

    def grace_left(self, grace: float) -> float:
        """Return the seconds that are left of `grace` since the end was asked for."""
        if self._asked_at is None:
            return grace
        return max(self._asked_at + grace - time.monotonic(), 0)

    @property
    def ending(self) -> bool:
        """Whether the end was asked for."""
        return self.signal is not None or bool(self.cancelled_by)

    def check(self) -> None:
        """Raise `Stopped` when the end was asked for."""
        self.take()
        if self.ending:
            raise Stopped

    def why(self) -> str:
        """Return who or what asked for the end, in one line."""
        if self.cancelled_by:
            return f"cancelled by {self.cancelled_by}"
        name = signal.Signals(self.signal or signal.SIGTERM).name
        return f"ended by {name} to j2c unpack: a time limit, a preemption or a cancelled job"

    def _without_echoes(self, numbers: list[int]) -> list[int]:
        if not self._echo:
            return numbers
        kept = []
        asked = self._asked_at is not None
        for number in numbers:
            if number in ENDING and asked:
                at = self._asked_at
                if at is None or time.monotonic() < at + self._echo:
                    continue
            asked = asked or number in ENDING
            kept.append(number)
        return kept

    def close(self) -> None:
        """Give the signals back."""
        for number, handler in self._kept.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._reader)
        os.close(self._writer)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Stand for a handler: the interpreter writes the number into the pipe only if one is set."""
