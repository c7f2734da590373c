"""What a run made: found, hashed and sent to the store."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from j2c_lab.errors import J2CError
from j2c_lab.formats.paths import show, to_text
from j2c_lab.formats.run import OutputFile

_PIECE = 1 << 20


class Found(NamedTuple):
    """A file to save: its name among the outputs, and where it lies."""

    name: bytes
    path: bytes


class Saved(NamedTuple):
    """`failed` has one line for each file that could not be saved."""

    files: list[OutputFile]
    failed: list[str]


def find_outputs(
    output_directory: bytes, run_directory: bytes, globs: Sequence[bytes]
) -> tuple[list[Found], list[str]]:
    """Return the files to save, sorted by name, and a line for each thing that is left out.

    All of `output_directory` is saved; `globs` add files of `run_directory`, where `**` stands for
    any directories and a pattern that names a directory means all files in it. Links to files
    within these directories are saved as what they point to; links out are left out.
    """
    found: dict[bytes, Found] = {}
    left_out: list[str] = []
    match = matcher(globs)
    if globs:
        for name, path in _walk(run_directory):
            if match(name) and not path.startswith(output_directory + b"/"):
                found[name] = Found(name, path)
    for name, path in _walk(output_directory):
        found[name] = Found(name, path)
    insides = [os.path.realpath(d) + b"/" for d in (output_directory, run_directory)]
    for name, (_, path) in list(found.items()):
        real = os.path.realpath(path)
        if not any(real.startswith(inside) for inside in insides):
            left_out.append(f"{show(name)} is a link that leads out")
        elif not os.path.isfile(real):
            left_out.append(f"{show(name)} is no file")
        else:
            continue
        del found[name]
    return [found[name] for name in sorted(found)], left_out


def save_outputs(
    found: Iterable[Found],
    put: Callable[[str, Path], None],
    progress: Callable[[int, int], None] = lambda size, files: None,
) -> Saved:
    """Hash and send files; one that cannot be saved does not keep the others back.

    Parameters
    ----------
    put : callable
        Sends a file, given its SHA-256 and path; raises `J2CError`.
    progress : callable
        Given the bytes and files done so far.
    """
    files: list[OutputFile] = []
    failed: list[str] = []
    total = 0
    for name, path in found:
        try:
            size, executable, digest = _hash(path)
            put(digest, Path(os.fsdecode(path)))
        except J2CError as error:
            failed.append(f"{show(name)}: {error.message}")
            continue
        except OSError as error:
            failed.append(f"{show(name)}: {error.strerror}")
            continue
        files.append(
            OutputFile(path=to_text(name), size=size, sha256=digest, executable=executable)
        )
        total += size
        progress(total, len(files))
    return Saved(files, failed)


def matcher(globs: Sequence[bytes]) -> Callable[[bytes], bool]:
    """Return what tells whether a name, relative to the run's directory, is meant by a glob."""
    patterns = [_compile(os.path.normpath(glob)) for glob in globs]

    def match(name: bytes) -> bool:
        return any(pattern.match(name) for pattern in patterns)

    return match


def _hash(path: bytes) -> tuple[int, bool, str]:
    content = hashlib.sha256()
    size = 0
    with open(path, "rb", buffering=0) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(22, "not a file", path)
        while piece := file.read(_PIECE):
            content.update(piece)
            size += len(piece)
    return size, bool(mode & 0o100), content.hexdigest()


def _walk(root: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and path of all that is no directory; directories behind links are not entered."""
    for directory, names, files in os.walk(root):
        links = [name for name in names if os.path.islink(os.path.join(directory, name))]
        for file in (*files, *links):
            path = os.path.join(directory, file)
            yield path[len(root) + 1 :], path


def _compile(glob: bytes) -> re.Pattern[bytes]:
    try:
        return re.compile(_regex(glob), re.DOTALL)
    except re.error:
        # `[z-a]` is no class; then it is taken as it is written.
        return re.compile(re.escape(glob) + rb"(?:/.*)?\Z", re.DOTALL)


def _regex(glob: bytes) -> bytes:
    parts = glob.decode("latin-1").split("/")
    regex = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            regex += ".*" if last else "(?:[^/.][^/]*/)*"
        else:
            regex += _component(part) + ("" if last else "/")
    return (regex + r"(?:/.*)?\Z").encode("latin-1")


def _component(part: str) -> str:
    # As in a shell: a wildcard does not stand for the dot of a hidden file.
    regex = r"(?!\.)" if part[:1] in "*?[" else ""
    place = 0
    while place < len(part):
        char = part[place]
        end = part.find("]", place + 2) if char == "[" else -1
        if end > 0:
            inner = part[place + 1 : end]
            negated, inner = ("^", inner[1:]) if inner[0] in "!^" else ("", inner)
            # Only the range's hyphen means something in a shell's class.
            regex += f"[{negated}{'-'.join(map(re.escape, inner.split('-')))}]"
            place = end + 1
            continue
        regex += {"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char)
        place += 1
    return regex
