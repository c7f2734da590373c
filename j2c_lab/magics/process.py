"""Runs `j2c … --json` and hands over its events; an interrupt is passed on, never lost."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

#: Seconds between two calls of `tick`.
_TICK = 0.2
#: Seconds that the command has, after an interrupt, to detach by itself.
_PATIENCE = 15.0
#: Of standard error, this many bytes at the end are kept for the user.
_KEPT_ERRORS = 8_000


class CommandProcess:
    """One call of the command.

    It runs in a session of its own: an interrupt of the kernel, or its restart, reaches the
    command only through here, and a run goes on whatever becomes of the kernel.

    Parameters
    ----------
    argv : list of str
        The command with all its arguments.
    env, cwd
        Its environment and directory.
    stdin : bytes, optional
        What it reads from standard input; nothing if not given.
    """

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, stdin: bytes | None = None
    ) -> None:
        self._process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._stdin = stdin
        self._interrupts = 0
        self._interrupted_at: float | None = None
        self._errors = bytearray()

    @property
    def interrupted(self) -> bool:
        """Whether the user interrupted it."""
        return self._interrupts > 0

    @property
    def errors(self) -> str:
        """The end of what it wrote to standard error."""
        return bytes(self._errors).decode("utf-8", "replace").strip()

    def run(self, on_output: Callable[[bytes], None], tick: Callable[[], None]) -> int:
        """Feed each piece of standard output to `on_output`, call `tick` five times a second.

        Returns the exit code, 128 + signal after a signal. `KeyboardInterrupt` never comes out:
        the first interrupt is sent on to the command, which detaches; a second one as well.
        """
        with _interrupts_to(self._interrupt):
            writer = self._start_writer()
            try:
                self._pump(on_output, tick)
                code = self._wait()
            finally:
                self._close()
            if writer:
                writer.join()
        return code if code >= 0 else 128 - code

    def _start_writer(self) -> threading.Thread | None:
        if self._stdin is None:
            return None
        writer = threading.Thread(target=self._write_stdin, daemon=True)
        writer.start()
        return writer

    def _write_stdin(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        # The command may end without reading all: its exit code says why.
        with contextlib.suppress(BrokenPipeError), pipe:
            view = memoryview(self._stdin or b"")
            while view:
                view = view[pipe.write(view) or 0 :]

    def _pump(self, on_output: Callable[[bytes], None], tick: Callable[[], None]) -> None:
        assert self._process.stdout is not None and self._process.stderr is not None
        last = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for pipe in (self._process.stdout, self._process.stderr):
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select(_TICK):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._process.stdout:
                        on_output(data)
                    else:
                        self._errors += data
                        del self._errors[:-_KEPT_ERRORS]
                if time.monotonic() - last >= _TICK:
                    last = time.monotonic()
                    self._lose_patience()
                    tick()

    def _wait(self) -> int:
        while True:
            try:
                return self._process.wait(_TICK)
            except subprocess.TimeoutExpired:
                self._lose_patience()

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupted_at is None:
            self._interrupted_at = time.monotonic()
        self._send(signal.SIGINT)

    def _lose_patience(self) -> None:
        """End a command that does not detach; a run that was submitted is not touched by it."""
        if self._interrupted_at is None:
            return
        waited = time.monotonic() - self._interrupted_at
        if waited > 2 * _PATIENCE:
            self._send(signal.SIGKILL)
        elif waited > _PATIENCE:
            self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _close(self) -> None:
        if self._process.poll() is None:
            # Only after an exception of the caller's own: leave no reader behind.
            self._send(signal.SIGTERM)
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


class EventLines:
    """Cuts standard output into lines and parses those that are JSON objects."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take the next bytes; yield the objects of the lines that became complete."""
        self._rest += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest[:] = rest
        for line in lines:
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    yield value


@contextlib.contextmanager
def _interrupts_to(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` at SIGINT instead of raising KeyboardInterrupt in the middle of something."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread gets signals: in a kernel's subshell there is nothing to catch.
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
