"""The rules of gitignore, judged one path at a time from the top down, as git itself does.

`pathspec` was tried first: it also judges a file by what its directories match, so the usual
white list (`*`, `!*/`, `!*.py`) leaves every file out when it is asked while walking, and its
import alone takes longer than the walk of a small project. What is here follows `wildmatch.c` and
`dir.c` of git, and is tested against `git ls-files` with generated rules.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SPECIAL = frozenset(b"*?[\\")
_CLASSES: dict[bytes, str] = {
    b"alnum": r"[0-9A-Za-z]",
    b"alpha": r"[A-Za-z]",
    b"blank": r"[ \t]",
    b"cntrl": r"[\x00-\x1f\x7f]",
    b"digit": r"[0-9]",
    b"graph": r"[\x21-\x7e]",
    b"lower": r"[a-z]",
    b"print": r"[\x20-\x7e]",
    b"punct": r"[!-/:-@\[-`{-~]",
    b"space": r"[ \t\n\r\x0b\x0c]",
    b"upper": r"[A-Z]",
    b"xdigit": r"[0-9A-Fa-f]",
}
_NEVER = rb"(?!)"


class Rule(NamedTuple):
    """One line of an ignore file."""

    #: The line as written, and its number from 1.
    text: bytes
    line: int
    #: What a person is told: `.gitignore:3: *.ckpt`.
    label: str
    negated: bool
    directories_only: bool
    #: Whether it is matched with the whole path below the ignore file, or with the name alone.
    anchored: bool
    #: The pattern without `!`, its leading and its trailing slash.
    pattern: bytes


class RuleSet:
    """The rules of one ignore file. The last one that matches decides.

    Most lines of real files are plain names, paths and `*.suffix`; those are looked up, only the
    others are compiled.
    """

    def __init__(self, content: bytes, label: str) -> None:
        self._rules = parse_rules(content, label)
        self._names: dict[bytes, list[int]] = {}
        self._paths: dict[bytes, list[int]] = {}
        self._suffixes: list[tuple[bytes, int]] = []
        self._globs: list[tuple[re.Pattern[bytes], bool, int]] = []
        for index, rule in enumerate(self._rules):
            pattern = rule.pattern
            if _is_plain(pattern):
                known = self._paths if rule.anchored else self._names
                known.setdefault(pattern, []).append(index)
            elif not rule.anchored and pattern[:1] == b"*" and _is_plain(pattern[1:]):
                self._suffixes.append((pattern[1:], index))
            else:
                regex = re.compile(to_regex(pattern, rule.anchored), re.DOTALL)
                self._globs.append((regex, rule.anchored, index))
        self._any_suffix = tuple(suffix for suffix, _ in self._suffixes)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find(self, path: bytes, name: bytes, is_directory: bool) -> Rule | None:
        """Return the rule that decides on `path` (relative to the ignore file's directory)."""
        found: list[int] = []
        if name in self._names:
            found += self._names[name]
        if path in self._paths:
            found += self._paths[path]
        if self._any_suffix and name.endswith(self._any_suffix):
            found += [index for suffix, index in self._suffixes if name.endswith(suffix)]
        for regex, anchored, index in self._globs:
            if regex.fullmatch(path if anchored else name):
                found.append(index)
        if not is_directory and found:
            found = [index for index in found if not self._rules[index].directories_only]
        return self._rules[max(found)] if found else None


def parse_rules(content: bytes, label: str) -> list[Rule]:
    """Return the rules of an ignore file's content; `label` names the file for people."""
    rules = []
    if content.startswith(b"\xef\xbb\xbf"):
        content = content[3:]
    for number, line in enumerate(content.split(b"\n"), 1):
        line = line[:-1] if line.endswith(b"\r") else line
        if line.startswith(b"#"):
            continue
        text = _without_trailing_spaces(line)
        pattern = text[1:] if text.startswith(b"!") else text
        directories_only = pattern.endswith(b"/")
        if directories_only:
            pattern = pattern[:-1]
        if not pattern:
            continue
        anchored = b"/" in pattern
        if pattern.startswith(b"/"):
            pattern = pattern[1:]
        where = f"{label}:{number}: {text.decode('utf-8', 'replace')}"
        rules.append(
            Rule(text, number, where, text[:1] == b"!", directories_only, anchored, pattern)
        )
    return rules


def to_regex(pattern: bytes, anchored: bool) -> bytes:
    """Return the regular expression, for `fullmatch`, of a pattern.

    Parameters
    ----------
    pattern : bytes
        As in `Rule.pattern`.
    anchored : bool
        Whether `/` is special, as for whole paths.
    """
    out = b""
    place = 0
    # git compares the literal start first and then takes what is left for a pattern of its own.
    start = 0
    while start < len(pattern) and pattern[start] not in _SPECIAL:
        start += 1
    one = rb"[^/]" if anchored else rb"."
    while place < len(pattern):
        char = pattern[place : place + 1]
        if char == b"\\":
            if place + 1 == len(pattern):
                return _NEVER
            out += re.escape(pattern[place + 1 : place + 2])
            place += 2
        elif char == b"?":
            out += one
            place += 1
        elif char == b"[":
            members, place = _bracket(pattern, place + 1)
            if members is None:
                return _NEVER
            out += _one_of(members - {0x2F} if anchored else members)
        elif char == b"*":
            begin = place
            while pattern[place : place + 1] == b"*":
                place += 1
            rest = pattern[place:]
            free = begin in (0, start) or pattern[begin - 1 : begin] == b"/"
            if not anchored or place - begin < 2 or not free:
                out += one + b"*"
            elif rest.startswith(b"/"):
                out += rb"(?:.*/)?"
                place += 1
            elif not rest or rest.startswith(b"\\/"):
                out += rb".*"
            else:
                out += one + b"*"
        else:
            out += re.escape(char)
            place += 1
    return out


def _bracket(pattern: bytes, place: int) -> tuple[set[int] | None, int]:
    """Return the bytes that a bracket expression matches and the place after it, or None."""
    negated = pattern[place : place + 1] in (b"!", b"^")
    place += negated
    members: set[int] = set()
    previous = -1
    first = True
    while True:
        char = pattern[place : place + 1]
        if not char:
            return None, place
        if char == b"]" and not first:
            break
        first = False
        if char == b"\\":
            place += 1
            if place >= len(pattern):
                return None, place
            previous = pattern[place]
            members.add(previous)
        elif char == b"-" and previous >= 0 and pattern[place + 1 : place + 2] not in (b"", b"]"):
            place += 1
            if pattern[place : place + 1] == b"\\":
                place += 1
                if place >= len(pattern):
                    return None, place
            members.update(range(previous, pattern[place] + 1))
            previous = -1
        elif char == b"[" and pattern[place + 1 : place + 2] == b":":
            end = pattern.find(b"]", place + 2)
            if end < 0:
                return None, place
            if end - place < 3 or pattern[end - 1 : end] != b":":
                previous = 0x5B
                members.add(previous)
            else:
                known = _CLASSES.get(pattern[place + 2 : end - 1])
                if known is None:
                    return None, place
                members.update(b for b in range(256) if re.match(known.encode(), bytes([b])))
                place = end
                previous = -1
        else:
            previous = char[0]
            members.add(previous)
        place += 1
    return (set(range(256)) - members if negated else members), place + 1


def _one_of(members: set[int]) -> bytes:
    if not members:
        return _NEVER
    return b"[" + b"".join(b"\\x%02x" % member for member in sorted(members)) + b"]"


def _is_plain(pattern: bytes) -> bool:
    return not _SPECIAL.intersection(pattern)


def _without_trailing_spaces(line: bytes) -> bytes:
    end = place = 0
    while place < len(line):
        step = 2 if line[place] == 0x5C else 1
        if step == 2 or line[place] != 0x20:
            end = min(place + step, len(line))
        place += step
    return line[:end]
