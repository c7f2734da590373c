"""A directory of packages, divided into the distributions that own its files.

The walk is the truth: every file that is there belongs to one distribution or is loose. `RECORD`
only says who owns a file and which SHA-256 it had in the wheel. What differs between two installs
of one wheel stays out, so that the same wheel gives the same files whoever installed it, with
which tool, and where:

- `RECORD` is written anew from the files that are there, by name alone;
- the installer's notes (`INSTALLER`, `REQUESTED`, `direct_url.json`, uv's) are left out;
- console scripts are made anew where the environment is unpacked;
- other scripts begin with `#!python`, as in the wheel;
- `__pycache__` is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import posixpath
import re
from collections.abc import Iterator

from j2c_lab.formats.planned import PlannedFile
from j2c_lab.installed.records import Record, Records, parse_record
from j2c_lab.installed.scripts import EntryScript, parse_entry_scripts, without_place
from j2c_lab.installed.tree import planned_file, walk

#: Files of a `.dist-info` that say how it came there; `RECORD` is made anew.
INSTALLERS_NOTES = frozenset(
    {b"INSTALLER", b"REQUESTED", b"direct_url.json", b"uv_cache.json", b"uv_build.json"}
)

_SITE = b"site-packages/"


@dataclasses.dataclass(slots=True, eq=False)
class Installed:
    """One distribution as installed."""

    #: Normalised as in PEP 503.
    name: str
    version: str
    #: Name of its `.dist-info` or `.egg-info` directory (or `.egg-info` file).
    info: bytes
    #: Names that entries of the directory `info` have, without the directory.
    notes: frozenset[bytes] = frozenset()
    scripts: list[EntryScript] = dataclasses.field(default_factory=list)
    files: list[PlannedFile] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Site:
    """A directory of packages, divided."""

    path: bytes
    distributions: list[Installed]
    #: Files that no distribution owns.
    loose: list[PlannedFile]
    #: Paths relative to the prefix that distributions own outside this directory.
    outside: frozenset[bytes]
    #: Names in the directory itself, each with its owner.
    top_names: dict[bytes, Installed | None]

    def remove(self, distribution: Installed) -> None:
        """Forget a distribution and all of its files."""
        self.distributions.remove(distribution)
        for name in [n for n, owner in self.top_names.items() if owner is distribution]:
            del self.top_names[name]


class _Owners:
    """Who owns which path, filled from RECORD and what stands in for it."""

    def __init__(self) -> None:
        #: From a file's place in the bundle to its owner's files.
        self.claims: dict[bytes, list[PlannedFile]] = {}
        self.hashes: dict[bytes, bytes | None] = {}
        #: From a first component to the owner of all below that nobody else owns.
        self.tops: dict[bytes, Installed] = {}
        #: Paths relative to the prefix, of files outside the directory of packages.
        self.outside: list[tuple[Installed, bytes]] = []
        self.with_record: list[tuple[Installed, Record]] = []

    def settle(self) -> None:
        """Turn all records into claims; of two for one file the first by name counts."""
        others = self.claims
        self.claims = {}
        for owner, record in reversed(self.with_record):
            self.claims.update(dict.fromkeys(record.hashes, owner.files))
            self.hashes.update(record.hashes)
        self.claims.update(others)


def read_site(path: bytes, prefix: bytes, bin_directories: list[bytes] | None = None) -> Site:
    """Divide the directory of packages at `path`, in the environment `prefix`.

    Parameters
    ----------
    path, prefix : bytes
        Absolute paths; `path` is below `prefix`.
    bin_directories : list of bytes, optional
        Where a Python named in a script's first line is the environment's own; `prefix/bin` if
        not given.
    """
    owners = _Owners()
    with _no_garbage_collection():
        records = Records(path)
        distributions = [
            _read_info(path, prefix, name, owners, records) for name in info_names(path)
        ]
        records.save()
        owners.settle()
        loose = _divide(walk(path, _SITE[:-1], owners.claims, owners.hashes), owners)
    directories = [prefix + b"/bin"] if bin_directories is None else bin_directories
    _add_outside(owners, path, prefix, directories)
    by_files = {id(one.files): one for one in distributions}
    tops = {}
    for name in _names(path):
        claim = owners.claims.get(_SITE + name)
        tops[name] = None if claim is None else by_files.get(id(claim))
    outside = frozenset(relative for _, relative in owners.outside)
    return Site(path, distributions, loose, outside, tops)


def read_distribution(
    path: bytes, prefix: bytes, info: bytes, bin_directories: list[bytes]
) -> Installed:
    """Return the one distribution `info` of a directory of packages, nothing else read.

    Parameters are those of `read_site`. A file that two distributions claim is in both of their
    results here, where `read_site` gives it to the first.
    """
    owners = _Owners()
    owner = _read_info(path, prefix, info, owners, None)
    owners.settle()
    found: list[PlannedFile] = []
    tops = {place.split(b"/", 2)[1] for place in owners.claims} | set(owners.tops)
    for top in tops - {b"__pycache__"}:
        if os.path.isdir(path + b"/" + top):
            found.extend(walk(path + b"/" + top, _SITE + top, owners.claims))
        elif file := planned_file(path + b"/" + top, _SITE + top):
            found.append(file)
    _divide(found, owners)
    _add_outside(owners, path, prefix, bin_directories)
    return owner


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Tens of thousands of tuples are made here and none becomes garbage: looking for some among
    # them took a sixth of the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def info_names(path: bytes) -> list[bytes]:
    """Return the sorted names of all `.dist-info` and `.egg-info` in a directory of packages."""
    # A name that begins with `~` is what pip leaves behind when it is killed.
    return sorted(
        name
        for name in _names(path)
        if name.endswith((b".dist-info", b".egg-info")) and not name.startswith(b"~")
    )


def name_and_version(path: bytes, info: bytes) -> tuple[str, str]:
    """Return the normalised name and the version of the distribution `info` in `path`."""
    stem = info.rpartition(b".")[0].decode("utf-8", "surrogateescape")
    name, _, version = stem.partition("-")
    if info.endswith(b".egg-info"):
        version = re.sub(r"-py\d.*$", "", version)
    if not version:
        name, version = _from_metadata(path + b"/" + info, name)
    return normalised(name), version


def normalised(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_file(path: bytes) -> bytes | None:
    """Return the content of the file at `path`, or None if it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def renew_record(owner: Installed, path: bytes) -> None:
    """Make the planned `RECORD` say what `owner.files` are now, after a change of them."""
    place = _SITE + owner.info + b"/RECORD"
    owner.files[:] = [file for file in owner.files if file.path != place]
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(path)))
    owner.files.append(_new_record(owner, path, prefix))


def _names(path: bytes) -> list[bytes]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _from_metadata(info: bytes, name: str) -> tuple[str, str]:
    data = read_file(info) or read_file(info + b"/METADATA") or read_file(info + b"/PKG-INFO")
    version = ""
    for line in (data or b"").splitlines():
        key, _, value = line.partition(b":")
        if key == b"Name":
            name = value.strip().decode("utf-8", "replace")
        elif key == b"Version":
            version = value.strip().decode("utf-8", "replace")
        elif not line:
            break
    return name, version or "0"


def _read_info(
    path: bytes, prefix: bytes, info: bytes, owners: _Owners, records: Records | None
) -> Installed:
    name, version = name_and_version(path, info)
    directory = path + b"/" + info
    owner = Installed(name, version, info)
    if not os.path.isdir(directory):  # distutils wrote one file
        owners.claims.setdefault(_SITE + info, owner.files)
        return owner
    names = os.listdir(directory)
    owner.notes = frozenset(names)
    if b"entry_points.txt" in owner.notes:
        owner.scripts = parse_entry_scripts(read_file(directory + b"/entry_points.txt") or b"")
    for note in (b"RECORD", *INSTALLERS_NOTES):
        owners.claims[_SITE + info + b"/" + note] = []  # a list that nobody looks at
    if b"RECORD" in owner.notes:
        record = (
            parse_record(read_file(directory + b"/RECORD") or b"")
            if records is None
            else records.read(info)
        )
        owners.with_record.append((owner, record))
        for outside in record.elsewhere:
            _claim_outside(owner, outside, path, prefix, owners)
    elif b"installed-files.txt" in owner.notes:
        listed = read_file(directory + b"/installed-files.txt") or b""
        for line in listed.splitlines():
            _claim_outside(owner, info + b"/" + line, path, prefix, owners)
    else:
        for top in (read_file(directory + b"/top_level.txt") or b"").split():
            owners.tops.setdefault(top, owner)
            owners.tops.setdefault(top + b".py", owner)
    owners.tops[info] = owner
    return owner


def _claim_outside(
    owner: Installed, name: bytes, path: bytes, prefix: bytes, owners: _Owners
) -> None:
    # RECORD names what lies outside with `../`; lib64 may be a link, so names are counted, and
    # whatever leaves the environment is not the environment's.
    absolute = posixpath.normpath(posixpath.join(path, name))
    if b"/__pycache__/" in absolute or not absolute.startswith(prefix + b"/"):
        return
    relative = absolute[len(prefix) + 1 :]
    if absolute.startswith(path + b"/"):
        owners.claims.setdefault(_SITE + absolute[len(path) + 1 :], owner.files)
    else:
        owners.outside.append((owner, relative))


def _add_outside(owners: _Owners, path: bytes, prefix: bytes, directories: list[bytes]) -> None:
    for owner, relative in owners.outside:
        top, _, rest = relative.partition(b"/")
        if top == b"bin":
            _add_script(owner, prefix + b"/" + relative, rest, directories)
        elif file := planned_file(prefix + b"/" + relative, b"prefix/" + relative):
            owner.files.append(file)
    for owner, _ in owners.with_record:
        owner.files.append(_new_record(owner, path, prefix))


def _divide(found: list[PlannedFile], owners: _Owners) -> list[PlannedFile]:
    """Give what no RECORD names to the owner of its first component; return the rest."""
    loose: list[PlannedFile] = []
    for file in found:
        claim = owners.claims.get(file.path)
        owner = owners.tops.get(file.path.split(b"/", 2)[1])
        if claim is not None:
            claim.append(file)
        elif owner is not None:
            owner.files.append(file)
        else:
            loose.append(file)
    return loose


def _add_script(owner: Installed, path: bytes, name: bytes, directories: list[bytes]) -> None:
    text = os.fsdecode(name)
    for script in owner.scripts:
        if script.name == text:
            return
        # pip makes `pip3.11` too, which its entry_points.txt does not name.
        stem = script.name.rstrip("0123456789.")
        if re.fullmatch(re.escape(stem) + r"[\d.]*", text):
            owner.scripts.append(EntryScript(text, script.target))
            return
    if file := script_file(path, b"scripts/" + name, directories):
        owner.files.append(file)


def script_file(path: bytes, place: bytes, directories: list[bytes]) -> PlannedFile | None:
    """Return the entry for a file of `bin`, with `#!python` when it names a Python from there."""
    file = planned_file(path, place)
    if file is None:
        return None
    with open(path, "rb") as stream:
        start = stream.read(4096)
        if not start.startswith(b"#!"):
            return file
        content = without_place(start, directories)
        if content is None:
            return file
        content += stream.read()
    return PlannedFile(place, "f", True, None, None, content)


def _new_record(owner: Installed, path: bytes, prefix: bytes) -> PlannedFile:
    up = b"../" * (path[len(prefix) :].count(b"/"))
    skip = len(_SITE)
    names = [file[0][skip:] for file in owner.files if file[0].startswith(_SITE)]
    if len(names) < len(owner.files):
        for file in owner.files:
            if file.path.startswith(b"scripts/"):
                names.append(up + b"bin/" + file.path[len(b"scripts/") :])
            elif file.path.startswith(b"prefix/"):
                names.append(up + file.path[len(b"prefix/") :])
    names.append(owner.info + b"/RECORD")
    names.sort()
    joined = b"\n".join(names)
    if b"," in joined or b'"' in joined:
        names = [_quoted(name) for name in names]
    content = b",,\n".join(names) + b",,\n"
    return PlannedFile(_SITE + owner.info + b"/RECORD", "f", False, None, None, content)


def _quoted(name: bytes) -> bytes:
    if b"," in name or b'"' in name:
        return b'"' + name.replace(b'"', b'""') + b'"'
    return name
