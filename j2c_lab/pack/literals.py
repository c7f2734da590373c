"""Finds left-out files that the code names, to warn before a run fails for want of them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable

from j2c_lab.formats.manifest import LeftOut
from j2c_lab.formats.paths import from_text
from j2c_lab.pack.file_hashes import TreeCache, is_settled
from j2c_lab.pack.plan import PlannedFile

_CODE = (b".py", b".ipynb", b".yaml", b".yml", b".json", b".toml")
_LARGEST = 1 << 20
_LONGEST = 300
# Looks ahead, so that each quote may begin a text: which ones do is known to a parser only.
_QUOTED = re.compile(rb"""(?=(["'])([^"'\n\\]{1,%d})\1)""" % _LONGEST)
#: What follows a colon, a dash or an equals sign up to the line's end, in YAML.
_PLAIN = re.compile(rb"(?m)(?:^|[:\-=])[ \t]+([^\s\"'#][^\n#\"']{0,%d}?)[ \t]*(?:#.*)?$" % _LONGEST)


def named_but_left_out(
    root: bytes,
    files: Iterable[PlannedFile],
    left_out: list[LeftOut],
    worth: set[str],
    cache_directory: str | None = None,
) -> list[str]:
    """Return a sentence for each left-out path that a code file names.

    Parameters
    ----------
    root : bytes
        The project's directory.
    files : iterable of PlannedFile
        What is packed of it.
    left_out : list of LeftOut
        What is not, and why.
    worth : set of str
        The paths among those that a program may want to read.
    cache_directory : str, optional
        Where it is remembered what each file names, so that it is read once.
    """
    rules = {from_text(entry.path).rstrip(b"/"): entry for entry in left_out if entry.path in worth}
    if not rules:
        return []
    cache = TreeCache(root, cache_directory)
    found: dict[bytes, tuple[bytes, LeftOut]] = {}
    for file in files:
        if file.key is None or not file.path.endswith(_CODE) or file.key.size > _LARGEST:
            continue
        here = os.path.dirname(file.path)[len(b"project/") :]
        for literal in _literals(file, cache):
            for base in (here, b""):
                path = os.path.normpath(os.path.join(base, literal))
                if path.startswith(root + b"/"):
                    path = path[len(root) + 1 :]
                entry = _entry_of(path, rules)
                if entry is not None and os.path.lexists(os.path.join(root, path)):
                    found.setdefault(path, (file.path[len(b"project/") :], entry))
    cache.save()
    return [
        f"{_text(code)} names {_text(path)}, which is left out by the rule {entry.rule!r}"
        for path, (code, entry) in sorted(found.items())
    ]


def literals(content: bytes, name: bytes) -> list[bytes]:
    """Return the texts in a code file that may be paths, each once."""
    if name.endswith(b".ipynb"):
        content = content.replace(b'\\"', b'"').replace(b"\\n", b"\n")
    found = {match[1] for match in _QUOTED.findall(content)}
    if name.endswith((b".yaml", b".yml")):
        found.update(_PLAIN.findall(content))
    return sorted(text for text in found if b"\0" not in text)


def _literals(file: PlannedFile, cache: TreeCache) -> list[bytes]:
    known: list[bytes] | None = cache.literals.get(file.key)
    if known is not None:
        return known
    assert file.source is not None and file.key is not None
    started = time.time_ns()
    try:
        with open(file.source, "rb") as opened:
            found = literals(opened.read(_LARGEST), file.path)
    except OSError:
        return []
    if is_settled(file.key, started):
        cache.literals.put(file.key, found)
    return found


def _entry_of(path: bytes, rules: dict[bytes, LeftOut]) -> LeftOut | None:
    """Return the left-out entry that is `path` or a directory above it."""
    while path:
        if path in rules:
            return rules[path]
        path = path.rpartition(b"/")[0]
    return None


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
