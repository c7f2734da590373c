"""Draws a `RunView` as text: the plain form of a notebook's display, and IPython in a terminal."""

from __future__ import annotations

import codecs
from typing import Any, TextIO

from j2c_lab.magics import view as views
from j2c_lab.magics.html import LINES
from j2c_lab.magics.view import RunView

#: Characters of a line that are shown.
_WIDTH = 400


def render(view: RunView) -> str:
    """Return what is known now, as the `text/plain` form of the notebook's display."""
    lines = [_head(view)]
    lines += [_stage_line(stage, view) for stage in view.stages]
    lines += [f"- {fact}" for fact in view.facts[-8:]]
    lines += [f"- warning: {warning}" for warning in view.warnings[:6]]
    lines += [f"- {detail}" for detail in ((view.error or {}).get("details") or [])[:10]]
    log = view.log.text().split("\n")
    if any(log):
        shown = log[-LINES:]
        earlier = view.log.line_count - len(shown)
        if earlier > 0 and view.run:
            lines.append(f"  … {views.count(earlier, 'earlier line')}: %j2c logs {view.run}")
        lines += [f"| {line}" for line in shown]
    for name, metric in list(view.metrics.items())[:12]:
        curve = views.sparkline(metric.values)
        lines.append(f"  {name[:60]} = {metric.values[-1]:.6g} {curve}".rstrip())
    return "\n".join(line[:_WIDTH] for line in lines)


class TextStream:
    """Writes events as they come, for a terminal: stages as lines, the log as it is."""

    def __init__(self, view: RunView, out: TextIO) -> None:
        self._view = view
        self._out = out
        self._announced = 0
        self._facts = 0
        self._warnings = 0
        self._fresh_line = True
        self._progress_shown = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def event(self, event: dict[str, Any]) -> None:
        """Write what an event, already fed to the view, adds."""
        if event.get("event") == "log":
            self._clear_progress()
            self._write(self._decoder.decode(self._view.new_output))
            return
        stages = self._view.stages
        if self._announced < len(stages) or event.get("event") not in ("progress", "stage"):
            self._clear_progress()
        while self._announced < len(stages):
            if self._announced:
                self._line(_stage_line(stages[self._announced - 1], self._view))
            self._announced += 1
        for fact in self._view.facts[self._facts :]:
            self._line(f"- {fact}")
        self._facts = len(self._view.facts)
        for warning in self._view.warnings[self._warnings :]:
            self._line(f"- warning: {warning}")
        self._warnings = len(self._view.warnings)
        if event.get("event") == "progress":
            self._progress(stages[-1])

    def end(self) -> None:
        """Write the last line."""
        self._clear_progress()
        self._write(self._decoder.decode(self._view.new_output, final=True))
        if self._announced and self._announced == len(self._view.stages):
            self._line(_stage_line(self._view.stages[-1], self._view))
        for detail in (self._view.error or {}).get("details") or []:
            self._line(f"- {detail}")
        self._line(_head(self._view))

    def _progress(self, stage: views.Stage) -> None:
        """Show, on a terminal, how far the stage is: a line that the next one replaces."""
        if self._out.isatty() and (self._fresh_line or self._progress_shown):
            self._out.write(f"\r{_stage_line(stage, self._view)[:78]}\x1b[K")
            self._out.flush()
            self._progress_shown, self._fresh_line = True, True

    def _clear_progress(self) -> None:
        if self._progress_shown:
            self._out.write("\r\x1b[K")
            self._progress_shown = False

    def _line(self, text: str) -> None:
        self._write(("" if self._fresh_line else "\n") + text + "\n")

    def _write(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()
            self._fresh_line = text.endswith("\n")


def _head(view: RunView) -> str:
    subject = f"run {view.run}" if view.run else f"j2c {view.verb}"
    state = views.outcome_line(view) or view.state or "starting"
    return f"{subject}: {state}"


def _stage_line(stage: views.Stage, view: RunView) -> str:
    mark = {"busy": "·", "ok": "✓", "bad": "✗"}[views.stage_mark(view, stage)]
    time = "" if stage.seconds is None else views.format_seconds(stage.seconds)
    detail = "  ".join(part for part in (views.progress_text(stage), time) if part)
    return f"{mark} {stage.name}  {detail}".rstrip()
