"""From the text after `%j2c` to the arguments of the command.

Words are split as a POSIX shell splits them. `{expr}` and `$name` are replaced by values of the
user's namespace, and only where every name in them exists there; all else, such as JSON, dict
literals, regular expressions, `${HOME}`, `{}` and `{{ x }}`, arrives as it was typed. IPython's
own expansion would turn `{"a": 1}` into `('a', 1)` or drop it, so the magic opts out of it.

- JSON and dict literals need no quotes: `--config {"lr": 0.1}` hands over `{"lr": 0.1}`.
- A value is never split again: a path with spaces stays one argument.
- A list or tuple that is a whole word gives one argument for each item.
- `{expr}` is replaced inside quotes too, as IPython does; `$name` not inside single quotes.
- A backslash before `{` or `$` keeps it as it is.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_NAME = re.compile(r"[^\W\d]\w*")
_SPACE = " \t\r\n"
_JSON = json.JSONDecoder()


class ExpansionError(ValueError):
    """The line cannot be read: a quotation has no end, or an expression in it failed."""


def split_line(line: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the arguments that `line` stands for.

    Parameters
    ----------
    line : str
        What was typed after the magic's name.
    namespace : Mapping
        The user's names; only these make `{expr}` and `$name` an expansion.

    Raises
    ------
    ExpansionError
        A quotation has no end, or an expression whose names all exist raised an exception.
    """
    scanner = _Scanner(line, namespace)
    words: list[str] = []
    while (found := scanner.word()) is not None:
        words.extend(found)
    return words


class _Found(NamedTuple):
    """An expansion: its value and the place after it."""

    value: Any
    end: int


class _Scanner:
    def __init__(self, line: str, namespace: Mapping[str, Any]) -> None:
        self._line = line
        self._namespace = namespace
        self._place = 0

    def word(self) -> list[str] | None:
        """Return the next word, as several if a list stands for it; None at the end."""
        line = self._line
        while self._place < len(line) and line[self._place] in _SPACE:
            self._place += 1
        if self._place == len(line):
            return None
        if (whole := self._whole_list()) is not None:
            return whole
        return ["".join(self._pieces())]

    def _whole_list(self) -> list[str] | None:
        """Return the items if the word is nothing but the expansion of a list or tuple."""
        found = self._expansion(self._place)
        if found is None or not isinstance(found.value, (list, tuple)):
            return None
        if found.end < len(self._line) and self._line[found.end] not in _SPACE:
            return None
        self._place = found.end
        return [str(item) for item in found.value]

    def _pieces(self) -> Iterator[str]:
        line = self._line
        if home := re.compile(r"~(?=/|\s|$)").match(line, self._place):
            self._place = home.end()
            yield os.path.expanduser("~")
        while self._place < len(line):
            character = line[self._place]
            if character in _SPACE:
                return
            if character == "\\":
                # A backslash at the very end stands for itself: there is nothing to escape.
                escaped = line[self._place + 1 : self._place + 2]
                self._place += 1 + len(escaped)
                yield "" if escaped == "\n" else escaped or "\\"
            elif character in "'\"":
                yield from self._quoted(character)
            elif (end := _literal_end(line, self._place)) is not None:
                while self._place < end:
                    yield self._literal_or_value(dollar=False)
            else:
                yield self._literal_or_value(dollar=True)

    def _quoted(self, quote: str) -> Iterator[str]:
        line, start = self._line, self._place
        self._place += 1
        while self._place < len(line):
            character = line[self._place]
            if character == quote:
                self._place += 1
                return
            if character == "\\":
                following = line[self._place + 1 : self._place + 2]
                if quote == '"' and following and following in '$`"\\\n':
                    self._place += 2
                    yield "" if following == "\n" else following
                elif following == "{":
                    self._place += 2
                    yield "\\{"
                else:
                    self._place += 1
                    yield "\\"
            else:
                yield self._literal_or_value(dollar=quote == '"')
        raise ExpansionError(f"no closing quotation mark for {line[start : start + 20]}")

    def _literal_or_value(self, *, dollar: bool) -> str:
        """Return what stands for the text at this place, and go past it."""
        line, place = self._line, self._place
        if line[place] == "{" or (dollar and line[place] == "$"):
            if (found := self._expansion(place)) is not None:
                self._place = found.end
                return str(found.value)
            # `{{`, `${` and `$$` are taken together, so that their second half is no start.
            for pair in ("{{", "${", "$$"):
                if line.startswith(pair, place):
                    self._place += 2
                    return pair
        self._place += 1
        return line[place]

    def _expansion(self, place: int) -> _Found | None:
        line = self._line
        if line.startswith("$", place):
            name = _NAME.match(line, place + 1)
            if name and name[0] in self._namespace:
                return _Found(self._namespace[name[0]], name.end())
            return None
        if not line.startswith("{", place) or line.startswith("{{", place):
            return None
        end = line.find("}", place)
        while end > 0:
            text = line[place + 1 : end]
            if (tree := _parse(text)) is not None:
                if not _all_known(tree, self._namespace):
                    return None
                return _Found(_evaluate(text, tree, self._namespace), end + 1)
            end = line.find("}", end + 1)
        return None


def _parse(text: str) -> ast.Expression | None:
    """Return the expression that `text` is; a bare tuple (`{a,b}`) and `{*a}` are none."""
    if not text.strip() or "\x00" in text:
        return None
    try:
        with warnings.catch_warnings():
            # A regular expression in the line is no Python code to be warned about.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if isinstance(tree.body, ast.Tuple) and not text.strip().startswith("("):
        return None
    return tree


def _literal_end(line: str, place: int) -> int | None:
    """Return where the dict literal or the JSON that starts here ends, or None if none does."""
    closing = {"{": "}", "[": "]"}.get(line[place])
    if closing is None or line.startswith("{{", place):
        return None
    with contextlib.suppress(ValueError, RecursionError):
        return _JSON.raw_decode(line, place)[1]
    end = line.find(closing, place)
    while end > 0:
        if _is_literal(line[place : end + 1]):
            return end + 1
        end = line.find(closing, end + 1)
    return None


def _is_literal(text: str) -> bool:
    tree = _parse(text)
    if tree is not None and isinstance(tree.body, ast.List):
        # `[a-z]` is a pattern, not a list of names.
        return not any(isinstance(node, ast.Name) for node in ast.walk(tree))
    return tree is not None and isinstance(tree.body, ast.Dict)


def _all_known(tree: ast.Expression, namespace: Mapping[str, Any]) -> bool:
    """Whether every name exists, one of them at least in the user's own namespace."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    loaded = {node.id for node in names} - bound
    own = {name for name in loaded if name in namespace}
    return bool(own) and all(hasattr(builtins, name) for name in loaded - own)


def _evaluate(text: str, tree: ast.Expression, namespace: Mapping[str, Any]) -> Any:
    try:
        # The user's own expression, typed into the user's own kernel.
        return eval(compile(tree, "<%j2c>", "eval"), dict(namespace))  # noqa: S307
    except Exception as error:
        raise ExpansionError(f"{{{text}}} failed: {type(error).__name__}: {error}") from error
