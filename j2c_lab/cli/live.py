"""Progress on a terminal; rich is imported when there is something to show."""

from __future__ import annotations

import time
from typing import Any

from j2c_lab.cli.output import Output
from j2c_lab.errors import J2CError
from j2c_lab.formats.journal import EVENT, JournalRecord

#: A step that takes less shows nothing.
_SHOWN_AFTER = 0.5


class LiveOutput(Output):
    """Plain lines, and a bar with bytes, counts and rate for a step that takes its time."""

    def __init__(self) -> None:
        self._stage = ""
        self._since = 0.0
        self._progress: Any = None
        self._task: Any = None

    def log(self, attempt: int, rank: int, record: JournalRecord) -> None:
        if record.kind == EVENT and record.event().get("event") == "progress":
            self.event(record.event())
        else:
            if record.kind != EVENT:
                self.close()
            super().log(attempt, rank, record)

    def say(self, text: str) -> None:
        self.close()
        super().say(text)

    def print(self, text: str) -> None:
        self.close()
        super().print(text)

    def error(self, error: J2CError) -> None:
        self.close()
        super().error(error)

    def close(self) -> None:
        self._stage = ""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _on_state(self, event: dict[str, Any]) -> None:
        self.close()
        super()._on_state(event)
        if not event["reason"] and event["state"] in ("starting", "fetching", "unpacking"):
            self._show({"stage": event["state"]})

    def _on_progress(self, event: dict[str, Any]) -> None:
        stage = f"{event['stage']} {event.get('what', '')}".strip()
        now = time.monotonic()
        if stage != self._stage:
            self.close()
            self._stage, self._since = stage, now
        if self._progress is not None or now - self._since > _SHOWN_AFTER:
            self._show(event)

    def _show(self, event: dict[str, Any]) -> None:
        if self._progress is None:
            self._progress = _bar()
            # What was done before the bar is shown is no part of its rate.
            done = event.get("bytes", 0)
            name = event.get("what") or event["stage"]
            self._task = self._progress.add_task(name, total=None, completed=done, counts="")
            self._progress.start()
        files, total = event.get("files"), event.get("total_files")
        counts = f"{files}/{total} files" if files is not None and total else ""
        self._progress.update(
            self._task,
            description=event.get("what") or event["stage"],
            completed=event.get("bytes", 0),
            total=event.get("total_bytes"),
            counts=counts,
        )


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        SpinnerColumn,
        Task,
        TextColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    # Nothing is shown of what is not known: no "0/? bytes", no speed "?".
    class Bytes(DownloadColumn):
        def render(self, task: Task) -> Text:
            return super().render(task) if task.total is not None or task.completed else Text()

    class Speed(TransferSpeedColumn):
        def render(self, task: Task) -> Text:
            return super().render(task) if task.speed and task.completed else Text()

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Bytes(),
        Speed(),
        TextColumn("{task.fields[counts]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
