"""Walks a project: every file, link and directory gets its place in the bundle, or a reason."""

from __future__ import annotations

import heapq
import os
import stat
from typing import NamedTuple

from j2c_lab.formats.digest import DIRECTORY, FILE, LINK
from j2c_lab.formats.manifest import DanglingLink, LeftOut
from j2c_lab.formats.paths import link_stays_inside, show, to_text
from j2c_lab.pack.file_hashes import key_of
from j2c_lab.pack.ignore import RuleSet, parse_rules
from j2c_lab.pack.plan import PlannedFile
from j2c_lab.pack.project_rules import Rules, is_secret_place

_SPECIAL = {
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "FIFO",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}
_PLACE = b"project/"


class _Directory(NamedTuple):
    """A directory to be walked."""

    #: Where it is, absolute and without links in it.
    real: bytes
    #: Its place in the project: empty, or ending with a slash.
    path: bytes
    #: Where the tree that it belongs to begins: the project, or a directory that a link led to.
    tree: bytes
    rules: list[tuple[bytes, RuleSet]]


#: A heap of links that lead out, sorted by their place.
_Links = list[tuple[bytes, bytes, _Directory, bytes]]


class Walk:
    """One walk over a project. The results are in the attributes after `run`."""

    def __init__(self, root: bytes, rules: Rules) -> None:
        self._root = root
        self._real_root = os.path.realpath(root)
        self._rules = rules
        self._may_read_all = os.geteuid() == 0
        #: Where each directory outside the project, that a link led to, lies in the bundle.
        self._trees: dict[bytes, bytes] = {}
        self._todo: list[_Directory] = []
        self._filled: set[bytes] = set()
        self._directories: list[bytes] = []
        self.files: list[PlannedFile] = []
        self.left_out: list[LeftOut] = []
        #: Paths of `left_out` that a program may want to read.
        self.worth_a_warning: set[str] = set()
        self.dangling: list[DanglingLink] = []
        self.warnings: list[str] = []
        #: One line for each file or directory that cannot be read.
        self.unreadable: list[str] = []

    def run(self) -> None:
        """Walk everything below the root."""
        self._todo.append(_Directory(self._real_root, b"", self._real_root, self._rules.at_top()))
        # Links out are followed when everything inside is known, in the order of their names:
        # the same project gives the same plan in whatever order the disk lists it.
        links: _Links = []
        while self._todo or links:
            while self._todo:
                self._enter(self._todo.pop(), links)
            if links:
                self._link_out(*heapq.heappop(links)[2:])
        for path in self._directories:
            if path not in self._filled:
                self._add(PlannedFile(_PLACE + path, DIRECTORY, False, None, None), path)
        self.files.sort(key=lambda file: file.path)
        self.left_out.sort(key=lambda entry: entry.path)
        self.dangling.sort(key=lambda link: link.path)

    def _enter(self, directory: _Directory, links: _Links) -> None:
        """Sort what one directory holds."""
        try:
            with os.scandir(directory.real) as found:
                entries = list(found)
        except OSError as error:
            if error.errno != 2:  # ENOENT: removed since it was listed
                self.unreadable.append(f"{show(directory.real)}: {error.strerror}")
            return
        names = {entry.name for entry in entries}
        if b"pyvenv.cfg" in names or b"conda-meta" in names:
            if directory.path:
                self._leave(directory.path, "built-in: virtual environment")
                return
            self.warnings.append(
                "the project's own directory is a virtual environment; its packages are left out"
            )
            entries = [entry for entry in entries if not _of_environment(entry, directory.real)]
            names = {entry.name for entry in entries}
        if directory.path:
            self._note_directory(directory.path[:-1])
        rules = self._rules.below(directory.rules, directory.real, directory.path, names)
        directory = directory._replace(rules=rules)
        for entry in entries:
            self._sort(entry, directory, links)

    def _sort(
        self,
        entry: os.DirEntry[bytes],
        directory: _Directory,
        links: _Links,
    ) -> None:
        name = entry.name
        path = directory.path + name
        is_directory = entry.is_dir(follow_symlinks=False)
        reason = self._rules.left_out(directory.rules, path, name, is_directory, entry.path)
        if reason is not None:
            size = None if is_directory else _size_of(entry)
            self._leave(path + b"/" if is_directory else path, *reason, size=size)
        elif is_directory and entry.path in self._trees:
            self._link_to(self._trees[entry.path], path)
        elif is_directory:
            self._todo.append(_Directory(entry.path, path + b"/", directory.tree, directory.rules))
        elif entry.is_symlink():
            if not self._link_inside(directory, name):
                heapq.heappush(links, (directory.path, name, directory, name))
        else:
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                return
            self._file(entry.path, path, info)

    def _file(self, source: bytes, path: bytes, info: os.stat_result) -> None:
        """Take a file, or say why not."""
        mode = info.st_mode
        if not stat.S_ISREG(mode):
            kind = _SPECIAL.get(stat.S_IFMT(mode), "special file")
            self._leave(path, kind, True)
            return
        if not self._may_read_all and mode & 0o444 != 0o444 and not os.access(source, os.R_OK):
            self.unreadable.append(f"{show(source)}: Permission denied")
        executable = bool(mode & 0o100)
        self._add(PlannedFile(_PLACE + path, FILE, executable, source, key_of(info)), path)

    def _link_inside(self, directory: _Directory, name: bytes) -> bool:
        """Take a link that may stay as it is; return whether it was one."""
        path = directory.path + name
        try:
            target = os.readlink(os.path.join(directory.real, name))
        except OSError:
            return True
        if not link_stays_inside(_PLACE + path, target):
            return False
        # In a tree that a link led to, what the name says is true only below the tree's own top.
        lexical = os.path.normpath(os.path.join(directory.real, target))
        if not _is_below(lexical, directory.tree):
            return False
        # The names stay inside, but one of them may be a link that leads out.
        real = os.path.realpath(lexical)
        if os.path.exists(real) and not _is_below(real, directory.tree):
            return False
        self._add(PlannedFile(_PLACE + path, LINK, False, None, None, target), path)
        return True

    def _link_out(self, directory: _Directory, name: bytes) -> None:
        """Follow a link that leads out of its tree."""
        path = directory.path + name
        source = os.path.join(directory.real, name)
        target = os.readlink(source)
        try:
            info = os.stat(source)
        except OSError as error:
            if error.errno == 13:  # EACCES
                self.unreadable.append(f"{show(source)}: {error.strerror}")
            else:
                self.dangling.append(
                    DanglingLink(path=to_text(_PLACE + path), target=to_text(target))
                )
            return
        real = os.path.realpath(source)
        place = self._place_of(real)
        if place is not None:
            self._link_to(place, path)
        elif is_secret_place(real):
            self._leave(path, "built-in: secrets", True)
        elif not stat.S_ISDIR(info.st_mode):
            self._file(source, path, info)
        elif _is_below(self._real_root, real):
            self._leave(path, "link to a directory that holds the project", True)
        else:
            self._trees[real] = path
            rules = self._rules.at_top() if directory.tree == self._real_root else directory.rules
            self._todo.append(_Directory(real, path + b"/", real, rules))

    def _link_to(self, place: bytes, path: bytes) -> None:
        """Make `path` a link to what lies at `place` in the project."""
        target = os.path.relpath(b"/" + place, os.path.dirname(b"/" + path))
        self._add(PlannedFile(_PLACE + path, LINK, False, None, None, target), path)

    def _place_of(self, real: bytes) -> bytes | None:
        """Return the place of a real path that travels anyway, or None."""
        if _is_below(real, self._real_root):
            return real[len(self._real_root) + 1 :] or b"."
        for tree, place in self._trees.items():
            if _is_below(real, tree):
                return place + real[len(tree) :]
        return None

    def _add(self, file: PlannedFile, path: bytes) -> None:
        self.files.append(file)
        self._filled.add(path.rpartition(b"/")[0])

    def _note_directory(self, path: bytes) -> None:
        self._directories.append(path)
        self._filled.add(path.rpartition(b"/")[0])

    def _leave(
        self, path: bytes, rule: str, surprising: bool = False, size: int | None = None
    ) -> None:
        text = to_text(path)
        self.left_out.append(LeftOut(path=text, rule=rule, size=size))
        if surprising:
            self.worth_a_warning.add(text)


def _is_below(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top + b"/")


def _size_of(entry: os.DirEntry[bytes]) -> int | None:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return None


#: What venv, virtualenv, uv and conda make at the top of an environment.
_ENVIRONMENT = frozenset(
    {
        b"pyvenv.cfg",
        b"conda-meta",
        b"lib64",
        b"include",
        b"pkgs",
        b"share",
        b"CACHEDIR.TAG",
        b".lock",
    }
)


def _of_environment(entry: os.DirEntry[bytes], root: bytes) -> bool:
    """Whether an entry of a project that is itself an environment belongs to the environment."""
    if entry.name in _ENVIRONMENT:
        return True
    if entry.name == b"bin":
        return os.path.exists(os.path.join(root, b"bin", b"python"))
    if entry.name == b".gitignore":
        # uv and Python 3.13 write one that hides the environment, and all beside it, from git.
        with open(entry.path, "rb") as file:
            return [rule.text for rule in parse_rules(file.read(), "")] == [b"*"]
    return entry.name == b"lib" and any(
        name.startswith(b"python") for name in os.listdir(os.path.join(root, b"lib"))
    )
