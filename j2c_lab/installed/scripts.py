"""Scripts of an environment: what `entry_points.txt` names, and shebangs that name a Python."""

from __future__ import annotations

import os
import re
import shlex
from typing import NamedTuple

#: The kernel reads so many bytes of a `#!` line on the strictest system still in use (Linux < 5.1).
_LONGEST_SHEBANG = 127

_SECTION = re.compile(rb"^\s*\[\s*(.+?)\s*\]\s*$")
_TARGET = re.compile(r"^\s*([\w.]+)\s*:\s*([\w.]+)\s*(?:\[[^\]]*\]\s*)?$")


class EntryScript(NamedTuple):
    """A line of `[console_scripts]` or `[gui_scripts]`; `target` is `module:attribute`."""

    name: str
    target: str


def parse_entry_scripts(data: bytes) -> list[EntryScript]:
    """Return the scripts that an `entry_points.txt` names; lines that name none are passed over."""
    found: list[EntryScript] = []
    section = b""
    for line in data.splitlines():
        if match := _SECTION.match(line):
            section = match[1]
        elif section in (b"console_scripts", b"gui_scripts") and b"=" in line:
            name, _, target = line.decode("utf-8", "replace").partition("=")
            name = name.strip()
            matched = _TARGET.match(target)
            if matched and name and not name.startswith(("#", ";")) and "/" not in name:
                found.append(EntryScript(name, f"{matched[1]}:{matched[2]}"))
    return found


def shebang(python: str, options: str = "") -> bytes:
    """Return the first lines of a script that make the kernel run it with `python`.

    A path with a space in it, or one that makes the line too long for the kernel, goes through
    `/bin/sh`, in lines that Python reads as a string.
    """
    tail = f" {options}" if options else ""
    line = os.fsencode(f"#!{python}{tail}")
    if len(line) <= _LONGEST_SHEBANG and not re.search(r"\s", python) and " " not in options:
        return line + b"\n"
    return os.fsencode(f"#!/bin/sh\n'''exec' {shlex.quote(python)}{tail} \"$0\" \"$@\"\n' '''\n")


def entry_script(python: str, target: str) -> bytes:
    """Return a script that runs `module:attribute` with the interpreter at `python`."""
    module, _, attribute = target.partition(":")
    first = attribute.partition(".")[0]
    text = (
        "import sys\n"
        f"from {module} import {first}\n"
        'if __name__ == "__main__":\n'
        f"    sys.exit({attribute}())\n"
    )
    return shebang(python) + b"# -*- coding: utf-8 -*-\n" + text.encode()


_DIRECT = re.compile(
    rb"^#![ \t]*(?P<python>[^\n]*?/(?:python|pypy)w?[\d.]*)(?P<options>[ \t][^\n]*)?\n"
)
_THROUGH_SH = re.compile(
    rb"^#!/bin/sh\n'''exec' (?P<python>[^\n]+?)(?P<options> -[^\n]*?)? \"\$0\" \"\$@\"\n' '''\n"
)
_PLACEHOLDER = re.compile(rb"^#!python(?P<options>[ \t][^\n]*)?\n")


def without_place(script: bytes, directories: list[bytes]) -> bytes | None:
    """Return `script` with `#!python` in place of a Python in `directories`; None if it names none.

    `#!python` is what wheels hold, so one wheel's script is the same wherever it is installed.
    """
    match = _DIRECT.match(script) or _THROUGH_SH.match(script)
    if not match:
        return None
    python = match["python"].strip(b"\"'").replace(b"\\ ", b" ")
    if os.path.dirname(python) not in directories:
        return None
    return b"#!python" + (match["options"] or b"").rstrip() + b"\n" + script[match.end() :]


def with_place(script: bytes, python: str) -> bytes | None:
    """Return `script` with `python` in place of `#!python`; None if it does not begin so."""
    match = _PLACEHOLDER.match(script)
    if not match:
        return None
    options = (match["options"] or b"").strip().decode("utf-8", "surrogateescape")
    return shebang(python, options) + script[match.end() :]
