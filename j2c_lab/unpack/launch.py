"""The user's process: started, listened to, signalled, and seen to its end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from j2c_lab.errors import UnpackError
from j2c_lab.formats.journal import OUTPUT, STDERR, STDOUT
from j2c_lab.unpack import reaper
from j2c_lab.unpack.control import ENDING, Control
from j2c_lab.unpack.journal import Journal

_PIECE = 1 << 18
#: Seconds in which processes that the run left behind may still write, and then react to TERM.
_DRAIN = 1.0
_LEFTOVER_GRACE = 3.0
_F_SETPIPE_SZ = 1031


class Command(NamedTuple):
    """What to execute; everything as bytes, because that is what arrives."""

    arguments: Sequence[bytes]
    environment: dict[bytes, bytes]
    directory: bytes


class Ended(NamedTuple):
    """How the process ended. `killed` is set when it was j2c that killed it."""

    exit_code: int | None
    signal: int | None
    killed: bool
    #: Whether processes of the run were still there and had to be ended.
    leftovers: bool


def run_process(
    command: Command, control: Control, journal: Journal, *, grace: float, split_streams: bool
) -> Ended:
    """Run the command until it and all that it started have ended.

    Parameters
    ----------
    control : Control
        Its signals are passed on to the process group. One that asks for the end starts the grace
        time; a second one kills at once.
    grace : float
        Seconds between the wish to end and KILL.
    split_streams : bool
        Whether stdout and stderr are told apart; else their order is exact.

    Raises
    ------
    UnpackError
        The process could not be started.
    """
    running = _Running(control, journal, grace)
    try:
        running.start(command, (STDOUT, STDERR) if split_streams else (OUTPUT,))
        return running.until_the_end()
    finally:
        running.close()


class _Running:
    def __init__(self, control: Control, journal: Journal, grace: float) -> None:
        self.control = control
        self.journal = journal
        self.grace = grace
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)
        self.pipes: dict[int, str] = {}
        self.group = 0
        self.status: int | None = None
        self.kill_at: float | None = None
        self.killed = False

    def start(self, command: Command, streams: Sequence[str]) -> None:
        reaper.become_subreaper()
        writers = [self._open_pipe(stream) for stream in streams]
        try:
            process = subprocess.Popen(
                command.arguments,
                stdin=subprocess.DEVNULL,
                stdout=writers[0],
                stderr=writers[-1],
                cwd=command.directory,
                env=command.environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise UnpackError(f"the run's process could not be started: {error}") from error
        finally:
            for writer in writers:
                os.close(writer)
        self.group = process.pid
        # Whoever ended is learnt from `reaper.reap`, orphans included; not from `Popen.wait`.
        process.returncode = 0

    def until_the_end(self) -> Ended:
        drain_until: float | None = None
        while True:
            if self.status is not None:
                if drain_until is None:
                    drain_until = time.monotonic() + _DRAIN
                if not self.pipes or time.monotonic() >= drain_until:
                    break
            self._step(drain_until)
        leftovers = reaper.end_group(self.group, min(self.grace, _LEFTOVER_GRACE))
        self._drain()
        if os.WIFSIGNALED(self.status):
            return Ended(None, os.WTERMSIG(self.status), self.killed, leftovers)
        return Ended(os.WEXITSTATUS(self.status), None, self.killed, leftovers)

    def close(self) -> None:
        self.selector.close()
        for pipe in self.pipes:
            os.close(pipe)
        self.pipes.clear()

    def _step(self, until: float | None) -> None:
        """Wait for something to happen and deal with it."""
        waits = [moment for moment in (self.kill_at, until) if moment is not None]
        timeout = max(min(waits) - time.monotonic(), 0) if waits else None
        for key, _ in self.selector.select(timeout):
            if key.fd in self.pipes:
                self._read(key.fd)
            else:
                self._obey()
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self._kill()

    def _obey(self) -> None:
        for number in self.control.take():
            if number == signal.SIGCHLD:
                self._reap()
            elif number in ENDING and self.kill_at is not None:
                self._kill()
            elif number in ENDING:
                self._ask(number)
            else:
                reaper.signal_group(self.group, number)
        if self.control.cancelled_by and self.kill_at is None and not self.killed:
            self._ask(signal.SIGTERM)

    def _ask(self, number: int) -> None:
        reaper.signal_group(self.group, number)
        self.kill_at = time.monotonic() + self.grace

    def _kill(self) -> None:
        self.kill_at = None
        self.killed = True
        reaper.signal_group(self.group, signal.SIGKILL)

    def _reap(self) -> None:
        status = reaper.reap().get(self.group)
        if status is not None:
            self.status = status
            self.kill_at = None

    def _read(self, pipe: int) -> bool:
        """Pass on what is in the pipe; False when there is nothing now, or never again."""
        try:
            data = os.read(pipe, _PIECE)
        except BlockingIOError:
            return False
        if data:
            self.journal.log(self.pipes[pipe], data)
            return True
        self.selector.unregister(pipe)
        del self.pipes[pipe]
        os.close(pipe)
        return False

    def _drain(self) -> None:
        until = time.monotonic() + _DRAIN
        for pipe in list(self.pipes):
            while time.monotonic() < until and self._read(pipe):
                pass

    def _open_pipe(self, stream: str) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        if sys.platform.startswith("linux"):
            import fcntl

            # Fewer switches between a fast writer and us.
            with contextlib.suppress(OSError):
                fcntl.fcntl(writer, _F_SETPIPE_SZ, 1 << 20)
        self.pipes[reader] = stream
        self.selector.register(reader, selectors.EVENT_READ)
        return writer
