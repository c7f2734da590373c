"""How the command shows things: JSON lines, plain lines, or live progress on a terminal.

Standard output carries results only: the run's log byte for byte, documents, or JSON. All else
goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from j2c_lab.cli.text import count, duration, size, visible
from j2c_lab.errors import J2CError
from j2c_lab.formats.events import RecordEvents, json_line

if TYPE_CHECKING:
    from j2c_lab.formats.journal import JournalRecord


def open_output(json_wanted: bool) -> Output:
    """Return the output for this call: JSON if wanted, live on a terminal, else plain."""
    if json_wanted:
        return JsonOutput()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from j2c_lab.cli.live import LiveOutput

        return LiveOutput()
    return Output()


class Output:
    """Plain lines."""

    #: Whether documents are wanted as JSON.
    json = False
    #: Of which rank's journal records are shown; None for all.
    rank: int | None = None

    def event(self, event: dict[str, Any]) -> None:
        """Show one event of docs/events.md; those that say nothing to a reader are passed over."""
        show = getattr(self, f"_on_{event['event']}", None)
        if show is not None:
            show(event)

    def record(self, attempt: int, rank: int, record: JournalRecord) -> None:
        """Show a journal record if its rank is wanted."""
        if self.rank in (None, rank):
            self.log(attempt, rank, record)

    def log(self, attempt: int, rank: int, record: JournalRecord) -> None:
        """Show a journal record; log bytes go out exactly as they are."""
        from j2c_lab.formats.journal import EVENT, GAP, LOG, STDERR

        if record.kind == LOG:
            stream = sys.stderr if record.stream == STDERR else sys.stdout
            stream.flush()
            stream.buffer.write(record.payload)
            stream.buffer.flush()
        elif record.kind == GAP:
            self.say(f"[{size(record.event().get('bytes', 0))} of the log were lost here]")
        elif record.kind == EVENT and record.event().get("event") == "warning":
            self.event(record.event())

    def document(self, document: dict[str, Any]) -> None:
        """Print a document; plain output is made by the verb itself."""
        self.print(json.dumps(document, ensure_ascii=False))

    def print(self, text: str) -> None:
        """Print a result."""
        print(text, flush=True)

    def say(self, text: str) -> None:
        """Tell what is going on."""
        print(f"j2c: {visible(text)}", file=sys.stderr, flush=True)

    def error(self, error: J2CError) -> None:
        """Show an error as one line, and its details below."""
        self.say(str(error))
        for detail in error.details:
            print(f"  {visible(detail)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""

    def _on_run(self, event: dict[str, Any]) -> None:
        again = " (goes on from where it was interrupted)" if event["adopted"] else ""
        self.say(f"run {event['run']} {event['name']}{again}")

    def _on_packed(self, event: dict[str, Any]) -> None:
        sent, reused = event["sent"], event["reused"]
        parts = [f"sent {count(sent['layers'], 'layer')} ({size(sent['bytes'])})"]
        if reused["layers"]:
            parts.append(f"reused {reused['layers']} ({size(reused['bytes'])})")
        if event["left_out"]:
            parts.append(f"left out {event['left_out']} (j2c pack lists them)")
        self.say(f"packed in {duration(event['seconds'])}: {', '.join(parts)}")

    def _on_left_out(self, event: dict[str, Any]) -> None:
        self.say(f"left out {event['path']} ({event['rule']})")

    def _on_warning(self, event: dict[str, Any]) -> None:
        remedy = event.get("remedy")
        self.say(f"warning: {event['message']}" + (f"; {remedy}" if remedy else ""))

    def _on_submitted(self, event: dict[str, Any]) -> None:
        self.say(f"submitted to {event['scheduler']}")

    def _on_state(self, event: dict[str, Any]) -> None:
        if event["state"] in ("queued", "unknown") and event["reason"]:
            self.say(f"{event['state']}: {event['reason']}")

    def _on_result(self, event: dict[str, Any]) -> None:
        took = "" if event["duration"] is None else f" after {duration(event['duration'])}"
        why = f": {event['reason']}" if event["reason"] else ""
        outputs = event["outputs"]
        where = f"; j2c fetch {event['run']} brings {count(outputs, 'output')}" if outputs else ""
        self.say(f"{event['state']}{took}{why}{where}")

    def _on_detached(self, event: dict[str, Any]) -> None:
        self.say(f"detached from run {event['run']}, which goes on; {event['remedy']}")

    def _on_cancelling(self, event: dict[str, Any]) -> None:
        self.say(f"cancelling run {event['run']}")

    def _on_archive(self, event: dict[str, Any]) -> None:
        self.say(f"wrote {event['file']} ({size(event['bytes'])})")

    def _on_fetched(self, event: dict[str, Any]) -> None:
        if not event["files"]:
            self.say(
                f"run {event['run']} saved no outputs: what it writes to the directory in"
                " J2C_OUTPUT_DIR is kept"
            )
            return
        new = event["files"] - event["skipped"]
        there = f"; {event['skipped']} had been fetched before" if event["skipped"] else ""
        self.say(
            f"fetched {count(new, 'file')} ({size(event['bytes'])})"
            f" into {event['directory']}{there}"
        )


class JsonOutput(Output):
    """One JSON object a line."""

    json = True

    def __init__(self) -> None:
        self._records = RecordEvents()

    def event(self, event: dict[str, Any]) -> None:
        self.document(event)

    def log(self, attempt: int, rank: int, record: JournalRecord) -> None:
        event = self._records.event(attempt, rank, record)
        if event is not None:
            self.document(event)

    def prime(self, attempt: int, rank: int, record: JournalRecord) -> None:
        """Take a record that was shown before, for the half of a character at its end."""
        self._records.prime(attempt, rank, record)

    def document(self, document: dict[str, Any]) -> None:
        sys.stdout.write(json_line(document))
        sys.stdout.flush()

    def say(self, text: str) -> None:
        pass

    def error(self, error: J2CError) -> None:
        self.document(error.event())

    def close(self) -> None:
        for event in self._records.rest():
            self.document(event)
