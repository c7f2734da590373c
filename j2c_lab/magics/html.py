"""Draws a `RunView` as HTML for a notebook: static, without scripts, for light and dark themes.

Styles stand in `style` attributes because untrusted notebooks lose `<style>`; colours are mid-tones
or the text's own, so that the saved cell reads well on any background. Everything that comes from
a run is escaped. The size is bounded, so a cell never blows up the notebook.
"""

from __future__ import annotations

import time
from html import escape

from j2c_lab.magics import view as views
from j2c_lab.magics.terminal import Span, Style
from j2c_lab.magics.view import RunView, Stage

#: Lines of the log that are shown, and characters of a line.
LINES = 24
_WIDTH = 240
_GREEN, _RED, _BLUE, _AMBER, _GREY = "#2a9d5c", "#d9534f", "#3b8fd6", "#c08a1e", "#8a8f98"
_BORDER = "rgba(128,128,128,0.35)"
_MARKS = {"ok": ("✓", _GREEN), "bad": ("✗", _RED), "busy": ("●", _BLUE), "left": ("◐", _AMBER)}
#: The 16 colours of a terminal as mid-tones that read on white and on black.
_COLOURS = (
    *("#7a7a7a", "#d04a46", "#2f9e5b", "#b5861b", "#3f86d8", "#b355b8", "#1f9ba3", "#9a9a9a"),
    *("#8d8d8d", "#e0605c", "#3fb36d", "#c9992a", "#5b9be6", "#c46fca", "#2fb0b8", "#b0b0b0"),
)


def render(view: RunView, now: float) -> str:
    """Return the HTML of what is known now; the last one is what the notebook keeps."""
    parts = [
        _head(view, now),
        _stages(view, now),
        _bar(view),
        _notes(view),
        _log(view),
        _metrics(view),
    ]
    body = "".join(part for part in parts if part)
    return (
        f'<div style="border:1px solid {_BORDER};border-left:3px solid {_tone(view)[1]};'
        f'border-radius:4px;padding:6px 10px;font-size:13px;line-height:1.5">{body}</div>'
    )


def _tone(view: RunView) -> tuple[str, str]:
    if view.exit_code is None:
        return _MARKS["busy"]
    if view.detached is not None:
        return _MARKS["left"]
    return _MARKS["ok" if view.exit_code == 0 else "bad"]


def _head(view: RunView, now: float) -> str:
    mark, colour = _tone(view)
    title = view.name or f"j2c {view.verb}"
    state = views.outcome_line(view) or view.state or "starting"
    if view.exit_code is None and view.reason:
        state += f": {view.reason}"
    if view.exit_code is None:
        # A notebook saved now, or cut off from its kernel, must not look as if it were live.
        state += time.strftime(" (as of %H:%M:%S)", time.localtime(now))
    run = f' <code style="opacity:0.75">{escape(view.run)}</code>' if view.run else ""
    return (
        f'<div><span style="color:{colour};font-weight:bold">{mark}</span> '
        f"<b>{escape(_cut(title, 80))}</b>{run} "
        f'<span style="color:{colour}">{escape(_cut(state, 400))}</span></div>'
    )


def _stages(view: RunView, now: float) -> str:
    if not view.stages:
        return ""
    chips = [_chip(view, stage, now) for stage in view.stages]
    return f'<div style="opacity:0.9">{" &nbsp; ".join(chips)}</div>'


def _chip(view: RunView, stage: Stage, now: float) -> str:
    mark, colour = _MARKS[views.stage_mark(view, stage)]
    seconds = stage.seconds if stage.seconds is not None else now - stage.started
    detail = views.progress_text(stage)
    time = views.format_seconds(seconds) if seconds >= 0.05 else ""
    note = " · ".join(part for part in (detail, time) if part)
    return (
        f'<span style="white-space:nowrap"><span style="color:{colour}">{mark}</span> '
        f'{escape(stage.name)} <span style="opacity:0.65">{escape(note)}</span></span>'
    )


def _bar(view: RunView) -> str:
    stage = view.stages[-1] if view.stages else None
    if stage is None or stage.seconds is not None:
        return ""
    done = views.fraction(stage)
    if done is None:
        return ""
    what = f'<div style="opacity:0.65">{escape(_cut(stage.what, 100))}</div>' if stage.what else ""
    return (
        f'<div style="background:rgba(128,128,128,0.25);border-radius:3px;height:6px;'
        f'margin:4px 0"><div style="background:{_BLUE};border-radius:3px;height:6px;'
        f'width:{done * 100:.1f}%"></div></div>{what}'
    )


def _notes(view: RunView) -> str:
    lines = []
    if view.facts:
        facts = " · ".join(_cut(fact, 300) for fact in view.facts[-8:])
        lines.append(f'<div style="opacity:0.75">{escape(facts)}</div>')
    lines += [
        f'<div style="color:{_AMBER}">⚠ {escape(_cut(warning, 400))}</div>'
        for warning in view.warnings[:6]
    ]
    if len(view.warnings) > 6:
        lines.append(f'<div style="color:{_AMBER}">⚠ and {len(view.warnings) - 6} more</div>')
    details = (view.error or {}).get("details") or []
    lines += [f"<div>{escape(_cut(str(detail), 300))}</div>" for detail in details[:10]]
    if len(details) > 10:
        lines.append(f"<div>and {len(details) - 10:,} more</div>")
    return "".join(lines)


def _log(view: RunView) -> str:
    lines = view.log.spans()
    if not lines:
        return ""
    shown = lines[-LINES:]
    earlier = view.log.line_count - len(shown)
    more = ""
    if earlier > 0 and view.run:
        more = (
            f'<div style="opacity:0.65">… {views.count(earlier, "earlier line")}: '
            f"<code>%j2c logs {escape(view.run)}</code></div>"
        )
    if view.lost_bytes:
        lost = views.format_bytes(view.lost_bytes)
        more += f'<div style="color:{_AMBER}">⚠ {lost} of the log were lost</div>'
    text = "\n".join(_line(line) for line in shown)
    return (
        f'{more}<pre style="margin:4px 0 0 0;padding:4px 0 0 0;border-top:1px solid {_BORDER};'
        f"background:transparent;color:inherit;overflow-x:auto;font-size:12px;"
        f'line-height:1.35">{text}</pre>'
    )


def _line(line: list[Span]) -> str:
    room = _WIDTH
    parts = []
    for span in line[:60]:
        text = _cut(span.text, room)
        room -= len(text)
        css = _css(span.style)
        parts.append(f'<span style="{css}">{escape(text)}</span>' if css else escape(text))
        if room <= 0:
            break
    return "".join(parts)


def _css(style: Style) -> str:
    rules = []
    for name, colour in (("color", style.foreground), ("background", style.background)):
        if colour is not None:
            rules.append(f"{name}:{_COLOURS[colour] if isinstance(colour, int) else colour}")
    if style.bold:
        rules.append("font-weight:bold")
    if style.faint:
        rules.append("opacity:0.65")
    if style.italic:
        rules.append("font-style:italic")
    if style.underline:
        rules.append("text-decoration:underline")
    return ";".join(rules)


def _metrics(view: RunView) -> str:
    if not view.metrics:
        return ""
    rows = []
    for name, metric in list(view.metrics.items())[:12]:
        step = f"step {metric.step:g}" if isinstance(metric.step, (int, float)) else ""
        cells = (
            f"<b>{escape(_cut(name, 60))}</b>",
            f"<code>{metric.values[-1]:.6g}</code>",
            f'<span style="color:{_BLUE}">{views.sparkline(metric.values)}</span>',
            f'<span style="opacity:0.65">{metric.lowest:.4g} to {metric.highest:.4g}</span>',
            f'<span style="opacity:0.65">{step}</span>',
        )
        style = "text-align:left;padding:2px 12px 2px 0;border:none;background:transparent"
        rows.append("<tr>" + "".join(f'<td style="{style}">{c}</td>' for c in cells) + "</tr>")
    return (
        f'<table style="margin:6px 0 0 0;border:none;border-collapse:collapse;font-size:12px">'
        f"{''.join(rows)}</table>"
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
