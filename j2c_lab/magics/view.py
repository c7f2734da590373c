"""What the events of one command add up to, for drawing: see docs/events.md.

Knows nothing of IPython or of HTML. Memory is bounded whatever the run writes.
"""

from __future__ import annotations

import base64
import dataclasses
from collections import deque
from typing import Any

from j2c_lab.magics.metric_lines import MetricLineFilter
from j2c_lab.magics.terminal import TerminalText

#: Last values of a metric that are kept for its curve.
_CURVE = 40
_MOST_METRICS = 100
#: States of a run in which nothing more happens.
ENDED = frozenset({"succeeded", "failed", "cancelled", "lost"})


@dataclasses.dataclass
class Stage:
    """One step of the way; `seconds` is set when it is over."""

    name: str
    started: float
    seconds: float | None = None
    #: When it began by the clock of the machine that runs it; None for what happens here.
    told: float | None = None
    bytes: int = 0
    total_bytes: int | None = None
    files: int = 0
    total_files: int | None = None
    what: str = ""


@dataclasses.dataclass
class Metric:
    """A number that the run reports again and again."""

    values: deque[float] = dataclasses.field(default_factory=lambda: deque(maxlen=_CURVE))
    step: float | None = None
    lowest: float = float("inf")
    highest: float = float("-inf")


class RunView:
    """Folds events into what is shown.

    Parameters
    ----------
    verb : str
        The command's verb, such as `submit`.
    started : float
        When it was started, seconds since the epoch.
    """

    def __init__(self, verb: str, started: float) -> None:
        self.verb = verb
        self.started = started
        self.run = ""
        self.name = ""
        #: State of the run, as the last event said; empty when there is no run.
        self.state = ""
        self.reason = ""
        self.stages: list[Stage] = []
        self.log = TerminalText()
        self._filter = MetricLineFilter()
        #: What the last event added to the log, without the lines of metrics.
        self.new_output = b""
        self.lost_bytes = 0
        #: Digest of the bundle, once it is packed.
        self.bundle = ""
        self.metrics: dict[str, Metric] = {}
        self.warnings: list[str] = []
        #: Short facts such as what was sent and what was found in the store.
        self.facts: list[str] = []
        self.result: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self.detached: str | None = None
        #: Set at the end by whoever ran the command.
        self.exit_code: int | None = None
        self.finished: float | None = None

    def feed(self, event: dict[str, Any], now: float) -> None:
        """Take one event; unknown ones, and unknown fields, are ignored."""
        if isinstance(run := event.get("run"), str):
            self.run = run
        handler = getattr(self, "_on_" + str(event.get("event")), None)
        if handler is not None:
            handler(event, now)

    def end(self, exit_code: int, now: float) -> None:
        """The command ended."""
        self.exit_code, self.finished = exit_code, now
        self.new_output = self._filter.end()
        self.log.feed(self.new_output)
        self._close_stage(now)

    @property
    def duration(self) -> float:
        """Seconds the run took, or else the command."""
        if self.result and isinstance(self.result.get("duration"), (int, float)):
            return float(self.result["duration"])
        return (self.finished or self.started) - self.started

    def _on_run(self, event: dict[str, Any], now: float) -> None:
        self.name = str(event.get("name") or "")
        if event.get("adopted"):
            self.facts.append("goes on where it was interrupted")

    def _on_stage(self, event: dict[str, Any], now: float) -> None:
        name = str(event.get("stage", ""))
        if self.stages and self.stages[-1].name == name:
            return
        told = event.get("time") if isinstance(event.get("time"), (int, float)) else None
        self._close_stage(now, told)
        if name != "finished":
            self.stages.append(Stage(name, now, told=told))
            del self.stages[:-20]

    def _on_progress(self, event: dict[str, Any], now: float) -> None:
        name = str(event.get("stage", ""))
        stage = next((s for s in reversed(self.stages) if s.name == name), None)
        if stage is None:
            self._on_stage(event, now)
            stage = self.stages[-1]
        for field in ("bytes", "total_bytes", "files", "total_files"):
            if isinstance(event.get(field), (int, float)):
                setattr(stage, field, int(event[field]))
        stage.what = str(event.get("what") or "")

    def _on_packed(self, event: dict[str, Any], now: float) -> None:
        self.bundle = str(event.get("bundle") or "")
        if self.verb == "pack":
            self.facts.append(f"bundle {self.bundle}")
        for key, words in (("sent", "sent"), ("reused", "already there")):
            amount = event.get(key) or {}
            if amount.get("layers"):
                self.facts.append(f"{format_bytes(amount.get('bytes', 0))} {words}")
        if event.get("left_out"):
            self.facts.append(f"{event['left_out']} left out")

    def _on_warning(self, event: dict[str, Any], now: float) -> None:
        if len(self.warnings) < 20:
            remedy = event.get("remedy")
            text = str(event.get("message", ""))
            self.warnings.append(f"{text}; {remedy}" if remedy else text)

    def _on_submitted(self, event: dict[str, Any], now: float) -> None:
        self._close_stage(now)
        self.state = "queued"

    def _on_state(self, event: dict[str, Any], now: float) -> None:
        self.state = str(event.get("state", ""))
        self.reason = str(event.get("reason") or "")
        if self.state == "queued":
            self._on_stage({"stage": "queued"}, now)

    def _on_log(self, event: dict[str, Any], now: float) -> None:
        self.new_output = self._filter.feed(_log_bytes(event))
        self.log.feed(self.new_output)

    def _on_gap(self, event: dict[str, Any], now: float) -> None:
        self.lost_bytes += int(event.get("bytes") or 0)

    def _on_metrics(self, event: dict[str, Any], now: float) -> None:
        values = event.get("values")
        for name, value in values.items() if isinstance(values, dict) else ():
            if not isinstance(value, (int, float)):
                continue
            if name not in self.metrics and len(self.metrics) >= _MOST_METRICS:
                continue
            metric = self.metrics.setdefault(str(name), Metric())
            metric.values.append(float(value))
            metric.step = event.get("step")
            if value == value:  # not NaN
                metric.lowest = min(metric.lowest, value)
                metric.highest = max(metric.highest, value)

    def _on_result(self, event: dict[str, Any], now: float) -> None:
        self.result = event
        self.state = str(event.get("state", ""))
        self.reason = str(event.get("reason") or "")
        self._close_stage(now)

    def _on_error(self, event: dict[str, Any], now: float) -> None:
        self.error = event

    def _on_detached(self, event: dict[str, Any], now: float) -> None:
        self.detached = str(event.get("remedy") or "")

    def _on_fetched(self, event: dict[str, Any], now: float) -> None:
        files = int(event.get("files") or 0)
        text = f"{count(files, 'file')} in {event.get('directory')}"
        brought = format_bytes(event.get("bytes") or 0)
        skipped = event.get("skipped")
        text += f" ({brought}, {skipped} there already)" if skipped else f" ({brought})"
        self.facts.append(text)

    def _on_cancelling(self, event: dict[str, Any], now: float) -> None:
        self.facts.append("cancel was asked for")

    def _close_stage(self, now: float, told: float | None = None) -> None:
        if not self.stages or self.stages[-1].seconds is not None:
            return
        stage = self.stages[-1]
        if told is not None and stage.told is not None:
            # As it was there: what is read later comes all at once.
            stage.seconds = max(0.0, told - stage.told)
        else:
            stage.seconds = now - stage.started


def _log_bytes(event: dict[str, Any]) -> bytes:
    if isinstance(text := event.get("text"), str):
        return text.encode("utf-8", "surrogatepass")
    return base64.b64decode(str(event.get("data") or ""))


def outcome_line(view: RunView) -> str:
    """Return, in one line, how it ended; empty while it goes on."""
    if view.exit_code is None:
        return ""
    if view.error:
        message, remedy = str(view.error.get("message", "")), view.error.get("remedy")
        return f"{message}; {remedy}" if remedy else message
    if view.result:
        reason = f": {view.reason}" if view.reason else ""
        took = f"after {format_seconds(view.duration)}" if view.result.get("duration") else ""
        return f"{view.state} {took}".strip() + reason
    if view.detached is not None:
        return f"detached, the run goes on; {view.detached}" if view.run else "interrupted"
    if view.exit_code == 0:
        if view.run and view.verb in ("submit", "resume"):
            return f"submitted; follow it with %j2c logs {view.run} -f"
        if view.verb == "logs" and view.state:
            return view.state + (f": {view.reason}" if view.reason else "")
        return f"done in {format_seconds(view.duration)}"
    return f"j2c {view.verb} ended with exit code {view.exit_code}"


def stage_mark(view: RunView, stage: Stage) -> str:
    """Return `busy`, `ok` or `bad`.

    What failed is the stage in which the run, or the command, ended; outputs are saved even then.
    """
    if stage.seconds is None and view.exit_code is None:
        return "busy"
    if view.exit_code in (None, 0) or view.detached is not None:
        return "ok"
    culprits = [s for s in view.stages if s.name != "saving"] or view.stages
    return "bad" if stage is culprits[-1] else "ok"


def progress_text(stage: Stage) -> str:
    """Return what a stage has done so far: bytes and files, with totals where they are known."""
    parts = []
    if stage.bytes or stage.total_bytes:
        text = format_bytes(stage.bytes)
        if stage.total_bytes and stage.total_bytes != stage.bytes:
            text += f" of {format_bytes(stage.total_bytes)}"
        parts.append(text)
    if stage.files or stage.total_files:
        text = f"{stage.files:,}"
        if stage.total_files and stage.total_files != stage.files:
            text += f" of {stage.total_files:,}"
        parts.append(text + (" file" if stage.files == 1 else " files"))
    return ", ".join(parts)


def fraction(stage: Stage) -> float | None:
    """Return how much of a stage is done, 0 to 1, or None if nobody knows."""
    if stage.total_bytes:
        return min(stage.bytes / stage.total_bytes, 1.0)
    if stage.total_files:
        return min(stage.files / stage.total_files, 1.0)
    return None


def sparkline(values: deque[float]) -> str:
    """Return the values as a row of blocks, lowest to highest."""
    blocks = "▁▂▃▄▅▆▇█"
    real = [v for v in values if v == v and abs(v) != float("inf")]
    if len(real) < 2:
        return ""
    low, span = min(real), max(real) - min(real)
    return "".join(blocks[int((v - low) / span * 7) if span else 3] for v in real)


def format_bytes(size: float) -> str:
    """`512 B`, `3.4 MB`: powers of 1000, as disks and networks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def format_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def count(number: int, word: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
