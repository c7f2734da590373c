"""The last lines of a program's output, as a terminal would show them.

Knows what progress bars and coloured logs use: newline, carriage return, backspace, tab, moves of
the cursor (`ESC[A` to `ESC[G`), erasing (`ESC[K`, `ESC[J`) and colours (`ESC[m`). Other escape
sequences are dropped. Memory is bounded: only the last lines are kept, each up to a width.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f\x7f\x80-\x9f]+)"
    r"|\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"
    # Titles and links: up to BEL or ST; and the two-character sequences.
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\-~]"
    r"|(?P<control>[\x00-\x1f\x7f\x80-\x9f])",
    re.DOTALL,
)
_CURSOR_UP = re.compile(r"\x1b\[\d*[AF]")
#: Characters that wait unlooked at: of a fast writer's output most scrolls out unseen.
_MOST_WAITING = 1 << 20
#: A sequence that may go on in the next chunk; longer ones are given up.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,500}\x1b?|[ -/]*)?\Z")


class Style(NamedTuple):
    """How a piece of text looks. Colours are `#rrggbb`, or an index 0 to 15; None is default."""

    foreground: str | int | None = None
    background: str | int | None = None
    bold: bool = False
    faint: bool = False
    italic: bool = False
    underline: bool = False


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: Style


_PLAIN = Style()
_Cell = tuple[str, Style]


class TerminalText:
    """Takes output in chunks of any size and keeps its last lines.

    Parameters
    ----------
    lines : int
        How many lines are kept.
    width : int
        How many characters of a line are kept; the rest is dropped.
    """

    def __init__(self, lines: int = 60, width: int = 1000) -> None:
        self._keep = lines
        self._width = width
        self._lines: list[list[_Cell]] = [[]]
        self._row = 0
        self._column = 0
        self._style = _PLAIN
        self._pending = ""
        self._chunks: list[str] = []
        self._size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._dropped = 0

    def feed(self, data: bytes | str) -> None:
        """Take the next piece of output; it is looked at when it is shown, or much of it waits."""
        text = data if isinstance(data, str) else self._decoder.decode(data)
        self._chunks.append(text)
        self._size += len(text)
        if self._size > _MOST_WAITING:
            self._digest()

    def spans(self, last: int | None = None) -> list[list[Span]]:
        """Return the last lines, each as pieces of one style; an empty line at the end is none."""
        self._digest()
        lines = self._lines[:-1] if not self._lines[-1] else self._lines
        if last is not None:
            lines = lines[-last:] if last else []
        return [_join(line) for line in lines]

    def text(self, last: int | None = None) -> str:
        """Return the last lines as plain text."""
        return "\n".join("".join(span.text for span in line) for line in self.spans(last))

    @property
    def line_count(self) -> int:
        """How many lines there were in all."""
        self._digest()
        return self._dropped + len(self._lines) - (0 if self._lines[-1] else 1)

    def _digest(self) -> None:
        text = "".join(self._chunks)
        self._chunks.clear()
        self._size = 0
        text = self._skip(self._pending + text)
        unfinished = _UNFINISHED.search(text)
        self._pending = unfinished[0] if unfinished else ""
        end = len(text) - len(self._pending)
        for token in _TOKEN.finditer(text, 0, end):
            if token["text"]:
                self._write(token["text"])
            elif token["final"]:
                self._sequence(token["final"], token["parameters"])
            elif token["control"]:
                self._control(token["control"])
        self._trim()

    def _skip(self, text: str) -> str:
        """Drop, of a long chunk, what would scroll out anyway: a fast writer costs little."""
        if len(text) < 4 * self._width or _CURSOR_UP.search(text):
            return text
        newlines = text.count("\n")
        if newlines <= self._keep:
            # One endless line: only its start is kept, and what its last `\r` left.
            return text if newlines else _ends(text, self._width)
        place = len(text)
        for _ in range(self._keep):
            place = text.rindex("\n", 0, place)
        self._dropped += len(self._lines) - 1 + text.count("\n", 0, place + 1)
        self._lines, self._row, self._column = [[]], 0, 0
        return text[place + 1 :]

    def _write(self, text: str) -> None:
        line = self._lines[self._row]
        room = max(self._width - self._column, 0)
        if len(line) < self._column <= self._width:
            line.extend([(" ", _PLAIN)] * (self._column - len(line)))
        kept = text[:room]
        line[self._column : self._column + len(kept)] = [(c, self._style) for c in kept]
        self._column += len(text)

    def _control(self, character: str) -> None:
        if character == "\n":
            self._down(1)
            self._column = 0
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(self._column - 1, 0)
        elif character == "\t":
            self._write(" " * (8 - self._column % 8))

    def _down(self, count: int) -> None:
        self._row += min(count, self._keep)
        while self._row >= len(self._lines):
            self._lines.append([])
        if len(self._lines) > 2 * self._keep:
            self._trim()

    def _trim(self) -> None:
        surplus = min(len(self._lines) - self._keep, self._row)
        if surplus > 0:
            del self._lines[:surplus]
            self._row -= surplus
            self._dropped += surplus

    def _sequence(self, final: str, parameters: str) -> None:
        numbers = [int(p) if p.isdigit() else 0 for p in re.split("[;:]", parameters)[:32]]
        count = min(numbers[0] or 1, 10_000)
        if final == "m":
            self._style = _restyle(self._style, numbers)
        elif final == "K":
            self._erase(numbers[0])
        elif final == "J":
            self._erase(numbers[0])
            if numbers[0] == 0:
                del self._lines[self._row + 1 :]
        elif final in "AF":
            self._row = max(self._row - count, 0)
        elif final in "BE":
            self._down(count)
        elif final == "C":
            self._column += count
        elif final == "D":
            self._column = max(self._column - count, 0)
        elif final == "G":
            self._column = count - 1
        if final in "EF":
            self._column = 0

    def _erase(self, mode: int) -> None:
        line = self._lines[self._row]
        if mode == 0:
            del line[self._column :]
        elif mode == 1:
            line[: self._column + 1] = [(" ", _PLAIN)] * min(self._column + 1, len(line))
        else:
            line.clear()


def _ends(text: str, width: int) -> str:
    last = text.rfind("\r", 0, len(text) - 1)
    return text[:width] + text[last : last + width] if last >= 0 else text[:width] + text[-width:]


def _join(line: list[_Cell]) -> list[Span]:
    spans: list[Span] = []
    start = 0
    for place in range(1, len(line) + 1):
        if place == len(line) or line[place][1] != line[start][1]:
            spans.append(Span("".join(cell[0] for cell in line[start:place]), line[start][1]))
            start = place
    return spans


def _restyle(style: Style, numbers: list[int]) -> Style:
    codes = iter(numbers)
    for code in codes:
        if code == 0:
            style = _PLAIN
        elif code in _SWITCHES:
            style = style._replace(**_SWITCHES[code])
        elif code in (38, 48):
            colour = _extended_colour(codes)
            if code == 38:
                style = style._replace(foreground=colour)
            else:
                style = style._replace(background=colour)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = style._replace(foreground=code - 30 if code < 90 else code - 82)
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = style._replace(background=code - 40 if code < 100 else code - 92)
    return style


_SWITCHES: dict[int, dict[str, Any]] = {
    1: {"bold": True},
    2: {"faint": True},
    3: {"italic": True},
    4: {"underline": True},
    22: {"bold": False, "faint": False},
    23: {"italic": False},
    24: {"underline": False},
    39: {"foreground": None},
    49: {"background": None},
}


def _extended_colour(codes: Iterator[int]) -> str | int | None:
    """Read what follows 38 or 48: `5;n` of the 256 colours, or `2;r;g;b`."""
    kind = next(codes, 0)
    if kind == 2:
        rgb = [min(next(codes, 0), 255) for _ in range(3)]
        return "#{:02x}{:02x}{:02x}".format(*rgb)
    if kind != 5:
        return None
    index = min(next(codes, 0), 255)
    if index < 16:
        return index
    if index >= 232:
        grey = 8 + (index - 232) * 10
        return f"#{grey:02x}{grey:02x}{grey:02x}"
    steps = (0, 95, 135, 175, 215, 255)
    index -= 16
    return f"#{steps[index // 36]:02x}{steps[index // 6 % 6]:02x}{steps[index % 6]:02x}"
