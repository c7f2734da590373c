"""The list of runs, kept in memory and true: what has ended is read once, what goes on again.

Lives in the engine's loop; nothing here may be called from another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from j2c_lab.errors import J2CError, NotFoundError
from j2c_lab.runs.ledger import Ledger
from j2c_lab.server.documents import Document, document, is_final, matches

#: Seconds between looks at runs that go on, while somebody listens.
_PAUSE = 0.7
#: Runs read at once.
_TOGETHER = 16
#: The newest ended runs are looked at again now and then: another lab may have resumed them.
_RECENT = 20
_RECENT_EVERY = 15.0

Listener = Callable[[dict[str, Any]], None]


class RunIndex:
    """All runs of the ledger's user. Messages to listeners are those of `/j2c/stream`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._runs: dict[str, Document] = {}
        self._ids: list[str] = []
        self._progress: dict[str, dict[str, Any]] = {}
        self._failures: dict[str, str] = {}
        self._listeners: set[Listener] = set()
        #: One at a time: who asks for the same finds it read.
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._filler: asyncio.Task[None] | None = None

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` of every change; call what is returned to end that."""
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        return lambda: self._listeners.discard(listener)

    async def page(
        self, limit: int, cursor: str | None, text: str, group: str
    ) -> tuple[list[Document], str | None]:
        """Return the newest runs that match, older than `cursor`, and where the next page begins.

        Parameters
        ----------
        limit : int
            Most runs to return.
        cursor : str, optional
            Id of the last run of the page before.
        text, group : str
            As `documents.matches` takes them.
        """
        await self._list()
        left = [run_id for run_id in self._ids if cursor is None or run_id < cursor]
        found: list[Document] = []
        for start in range(0, len(left), _TOGETHER):
            for shown in await self._load(left[start : start + _TOGETHER]):
                if matches(shown, text, group):
                    found.append(shown)
                if len(found) > limit:
                    self._fill()
                    return found[:limit], found[limit - 1]["id"]
        return found, None

    def counts(self) -> dict[str, int]:
        """Return the number of runs in each state; of those read so far."""
        return dict(Counter(shown["state"] for shown in self._runs.values()))

    async def get(self, run_id: str) -> Document:
        """Return a run as it is now, and tell listeners when it changed.

        Raises
        ------
        NotFoundError
            There is no such run.
        """
        shown = await document(self._ledger, run_id)
        self._take(shown)
        return self._runs[run_id]

    def known(self, run_id: str) -> Document | None:
        """Return a run as it was last seen."""
        return self._runs.get(run_id)

    def progress(self, run_id: str, progress: dict[str, Any] | None) -> None:
        """Take what a process here tells of its work on a run."""
        if progress is None:
            self._progress.pop(run_id, None)
        else:
            self._progress[run_id] = progress
        shown = self._runs.get(run_id)
        if shown is not None:
            self._take({**shown, "progress": None})

    def fail(self, run_id: str, reason: str) -> None:
        """Take why a process here gave a run up."""
        self._failures[run_id] = reason

    def forget(self, run_id: str) -> None:
        """A run was deleted."""
        self._progress.pop(run_id, None)
        if self._runs.pop(run_id, None) is not None:
            self._tell({"type": "deleted", "id": run_id})

    async def _watch(self) -> None:
        recent = time.monotonic()
        while self._listeners:
            with contextlib.suppress(J2CError, OSError):
                await self._list()
                going = [i for i in self._ids if self._is_going(i)]
                if time.monotonic() - recent > _RECENT_EVERY:
                    recent = time.monotonic()
                    going += [i for i in self._ids[:_RECENT] if i not in going]
                for start in range(0, len(going), _TOGETHER):
                    await self._load(going[start : start + _TOGETHER], again=True)
            await asyncio.sleep(_PAUSE)

    def _is_going(self, run_id: str) -> bool:
        shown = self._runs.get(run_id)
        # Runs that nobody has read yet are the filler's; new ones are among the first.
        if shown is None:
            return run_id in self._ids[:_TOGETHER]
        return not is_final(shown["state"])

    async def _list(self) -> None:
        self._ids = await self._ledger.ids()
        present = set(self._ids)
        for run_id in [i for i in self._runs if i not in present]:
            self.forget(run_id)

    async def _load(self, ids: list[str], again: bool = False) -> list[Document]:
        async with self._reading:
            wanted = [i for i in ids if again or i not in self._runs]
            for shown in await asyncio.gather(*(self._read(i) for i in wanted)):
                if shown is not None:
                    self._take(shown)
        return [self._runs[i] for i in ids if i in self._runs]

    async def _read(self, run_id: str) -> Document | None:
        try:
            return await document(self._ledger, run_id)
        except NotFoundError:
            return None

    def _take(self, shown: Document) -> None:
        run_id = shown["id"]
        if is_final(shown["state"]):
            self._progress.pop(run_id, None)
        elif shown["state"] == "interrupted":
            shown["reason"] = self._failures.get(run_id, shown["reason"])
        elif shown["state"] in ("packing", "submitting"):
            shown["progress"] = self._progress.get(run_id)
        if self._runs.get(run_id) != shown:
            self._runs[run_id] = shown
            self._tell({"type": "run", "run": shown})

    def _fill(self) -> None:
        """Read the older runs in the background, for the counts."""
        if self._filler is None:
            self._filler = asyncio.get_running_loop().create_task(self._read_rest())

    async def _read_rest(self) -> None:
        for start in range(0, len(self._ids), _TOGETHER):
            part = self._ids[start : start + _TOGETHER]
            async with self._reading:
                wanted = [i for i in part if i not in self._runs]
                for shown in await asyncio.gather(*(self._read(i) for i in wanted)):
                    if shown is not None:
                        # Nobody is told: nothing happened, they were only not known yet.
                        self._runs.setdefault(shown["id"], shown)
            await asyncio.sleep(0)
        self._tell({"type": "counts", "counts": self.counts()})

    def _tell(self, message: dict[str, Any]) -> None:
        for listener in list(self._listeners):
            listener(message)
