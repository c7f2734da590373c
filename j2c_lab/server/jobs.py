"""The `j2c` command in processes of its own, its events read as they come.

A process writes into an unlinked file, not into a pipe: when the server ends in the middle of an
upload, the process goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from j2c_lab.errors import J2CError

Event = dict[str, Any]

#: Seconds between looks at what a process has written.
_PAUSE = 0.05
#: What a process must not inherit: it needs no way into the server or the hub.
_SECRETS = ("JPY_API_TOKEN", "JUPYTERHUB_API_TOKEN", "JUPYTER_TOKEN", "JUPYTERHUB_CLIENT_ID")


# Not `python -m`: that would put the user's directory first, where a file `queue.py` may lie.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; "
    "from j2c_lab.cli import main; sys.exit(main())"
)


def j2c_command() -> list[str]:
    """Return how to call the lab's own `j2c`, from any directory."""
    return [sys.executable, "-c", _START]


class JobError(J2CError):
    """What the command said went wrong, under its own code."""

    def __init__(self, event: Event) -> None:
        super().__init__(
            str(event.get("message") or "j2c failed"),
            str(event.get("remedy") or ""),
            list(event.get("details") or []),
        )
        self.code = str(event.get("code") or "error")
        self.exit_code = int(event.get("exit_code") or 125)


class Jobs:
    """All commands in flight; their number is limited, and more wait for their turn."""

    def __init__(self, most: int, on_activity: Callable[[], None]) -> None:
        self._turn = asyncio.Semaphore(most)
        self._on_activity = on_activity
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, arguments: list[str], **options: Any) -> asyncio.Task[None]:
        """Run a command in the background; options as in `run`."""
        task = asyncio.get_running_loop().create_task(self.run(arguments, **options))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(
        self,
        arguments: list[str],
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        directory: str | None = None,
        environ: dict[str, str] | None = None,
        survive: bool = False,
    ) -> None:
        """Run `j2c ARGUMENTS` to its end.

        Parameters
        ----------
        on_event : callable
            Takes each event and document as it is written.
        survive : bool
            Whether the process goes on when this call is cancelled, or the server ends.

        Raises
        ------
        JobError
            The command could not do it.
        """
        async with self._turn:
            descriptor, name = tempfile.mkstemp(prefix="j2c-events-")
            os.unlink(name)
            try:
                process = await asyncio.create_subprocess_exec(
                    *j2c_command(),
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=descriptor,
                    stderr=asyncio.subprocess.DEVNULL,
                    cwd=directory,
                    env=_environment(environ or {}),
                    start_new_session=True,
                )
                try:
                    await self._watch(process, descriptor, on_event)
                except asyncio.CancelledError:
                    if not survive:
                        await _end(process)
                    raise
            finally:
                os.close(descriptor)

    async def _watch(
        self,
        process: asyncio.subprocess.Process,
        descriptor: int,
        on_event: Callable[[Event], None],
    ) -> None:
        reader = _Lines(descriptor)
        waiting = asyncio.ensure_future(process.wait())
        failure: Event | None = None
        ended = False
        while not ended:
            await asyncio.wait([waiting], timeout=_PAUSE)
            ended = waiting.done()
            self._on_activity()
            for event in reader.read():
                if event.get("event") == "error":
                    failure = event
                on_event(event)
        if failure is not None:
            raise JobError(failure)
        if process.returncode:
            raise JobError({"message": f"j2c ended with exit code {process.returncode}"})


class _Lines:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0
        self._rest = b""

    def read(self) -> list[Event]:
        found: list[Event] = []
        while data := os.pread(self._descriptor, 1 << 20, self._offset):
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            found += [json.loads(line) for line in lines if line.strip()]
        return found


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def _environment(more: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    return {**kept, **more}
