"""Shows a `RunView` while it changes: one output of a notebook cell, or lines on a terminal."""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Any, Protocol

from j2c_lab.magics import html, text
from j2c_lab.magics.view import RunView


class Display(Protocol):
    """Where a view is shown."""

    def event(self, event: dict[str, Any]) -> None:
        """An event was fed to the view."""

    def tick(self) -> None:
        """Some time went by."""

    def end(self) -> None:
        """The view is complete."""


def open_display(view: RunView, shell: Any) -> Display:
    """Return the display that fits: a live one in a kernel, text in a terminal.

    `J2C_DISPLAY=text` asks for text in a kernel too, for front ends that show no HTML.
    """
    in_kernel = getattr(shell, "kernel", None) is not None
    if in_kernel and os.environ.get("J2C_DISPLAY") != "text":
        return NotebookDisplay(view)
    return TextDisplay(view)


class NotebookDisplay:
    """One output, updated in place; never more often than a reader can follow."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._id = f"j2c-{uuid.uuid4().hex}"
        self._shown = 0.0
        self._changed = True
        self._show(first=True)

    def event(self, event: dict[str, Any]) -> None:
        """Remember that something changed."""
        self._changed = True

    def tick(self) -> None:
        """Draw if something changed, or if a clock that is shown went on."""
        changed, idle = _intervals(time.time() - self._view.started)
        if time.monotonic() - self._shown >= (changed if self._changed else idle):
            self._show()

    def end(self) -> None:
        """Draw the state that the notebook keeps."""
        self._show()

    def _show(self, *, first: bool = False) -> None:
        bundle = {
            "text/html": html.render(self._view, time.time()),
            "text/plain": text.render(self._view),
        }
        _display(bundle, raw=True, display_id=self._id, update=not first)
        self._shown, self._changed = time.monotonic(), False


def _intervals(elapsed: float) -> tuple[float, float]:
    """Return seconds between two drawings, with and without a change.

    The longer a run lasts, the less a second matters; a night's run must not send gigabytes.
    """
    if elapsed < 60:
        return 0.2, 1.0
    if elapsed < 600:
        return 0.5, 5.0
    return 2.0, 30.0


def _display(bundle: dict[str, str], **options: Any) -> None:
    from IPython import display

    publish: Any = display.display
    publish(bundle, **options)


class TextDisplay:
    """Lines and the log itself, as they come."""

    def __init__(self, view: RunView) -> None:
        self._stream = text.TextStream(view, sys.stdout)

    def event(self, event: dict[str, Any]) -> None:
        """Write what is new."""
        self._stream.event(event)

    def tick(self) -> None:
        """Nothing: text has no clock."""

    def end(self) -> None:
        """Write how it ended."""
        self._stream.end()
