"""What of a project stays behind, and by which rule."""

from __future__ import annotations

import os
from collections.abc import Sequence

from j2c_lab.pack.ignore import Rule, RuleSet

#: Directories and files that never travel, by name.
_BUILT_IN_DIRECTORIES = frozenset(
    {
        b".git",
        b".hg",
        b".svn",
        b".bzr",
        b".jj",
        b"CVS",
        b"_darcs",
        b"__pycache__",
        b".ipynb_checkpoints",
        b".virtual_documents",
        b"node_modules",
        b".mypy_cache",
        b".ruff_cache",
        b".pytest_cache",
        b".hypothesis",
        b".pytype",
        b".pyre",
        b".tox",
        b".nox",
        b".eggs",
        b".cache",
        b".uv-cache",
        b".Trash",
        b"j2c_outputs",
    }
)
_BUILT_IN_FILES = frozenset({b".git", b".DS_Store", b"Thumbs.db"})
_SECRET_DIRECTORIES = frozenset({b".aws", b".ssh", b".gnupg", b".azure", b".kube", b".docker"})
_SECRET_FILES = frozenset(
    {
        b".env",
        b".envrc",
        b".netrc",
        b"_netrc",
        b".git-credentials",
        b".pypirc",
        b".pgpass",
        b".npmrc",
        b".my.cnf",
        b".vault-token",
        b"kaggle.json",
        b"kubeconfig",
        b"application_default_credentials.json",
        # Commands typed, and what was typed among them.
        b".bash_history",
        b".zsh_history",
        b".python_history",
        b".psql_history",
        b".mysql_history",
    }
)
_SECRET_STARTS = (b".env.", b"id_rsa", b"id_dsa", b"id_ecdsa", b"id_ed25519")
#: Examples of secret files, which hold none.
_NO_SECRETS = (b".example", b".sample", b".template", b".dist", b".pub")
_LISTS = (b".j2cignore", b".gitignore")


class Rules:
    """Decides, from the top down, what is left out; one for each walk."""

    def __init__(self, root: bytes, exclude: Sequence[str], extra: Sequence[bytes]) -> None:
        self._root = root
        #: In a home directory everything hidden is settings, caches and secrets.
        self.is_home = root == os.path.abspath(os.path.expanduser(b"~"))
        self._extra = set(extra) | {os.path.realpath(path) for path in extra}
        # A .j2cignore at the top replaces what git ignores, everywhere.
        own = os.path.exists(os.path.join(root, b".j2cignore"))
        self._names = _LISTS[:1] if own else _LISTS
        #: Rule sets by the directory that they are for: the strongest last.
        self._base: list[tuple[bytes, RuleSet]] = [] if own else _of_repository(root)
        #: The settings' own rules, above all others.
        self._top = RuleSet("\n".join(exclude).encode(), "[tool.j2c] exclude")

    def at_top(self) -> list[tuple[bytes, RuleSet]]:
        """Return the rule sets that hold for the project's directory itself."""
        return self._base

    def below(
        self, above: list[tuple[bytes, RuleSet]], directory: bytes, path: bytes, names: set[bytes]
    ) -> list[tuple[bytes, RuleSet]]:
        """Return the rule sets for what is in `directory`, whose place in the project is `path`.

        `path` is empty or ends with a slash; `names` is what the directory holds.
        """
        for name in self._names:
            if name in names:
                content = _content(os.path.join(directory, name))
                found = RuleSet(content, (path + name).decode("utf-8", "replace"))
                return [*above, (path, found)] if found else above
        return above

    def left_out(
        self,
        sets: list[tuple[bytes, RuleSet]],
        path: bytes,
        name: bytes,
        is_directory: bool,
        absolute: bytes,
    ) -> tuple[str, bool] | None:
        """Return the rule by which `path` stays behind and whether that may surprise, or None."""
        if is_directory and self._extra and absolute in self._extra:
            return "not the project: the environment, or j2c's own", False
        rule = self._listed(sets, path, name, is_directory)
        built_in = built_in_rule(name, is_directory)
        if self.is_home and path == name and name[:1] == b"." and name not in _LISTS:
            built_in = built_in or ("built-in: hidden in the home directory", False)
        if built_in is not None and not (rule is not None and _takes_back(rule)):
            return built_in
        if rule is not None and not rule.negated:
            return rule.label, True
        return None

    def _listed(
        self, sets: list[tuple[bytes, RuleSet]], path: bytes, name: bytes, is_directory: bool
    ) -> Rule | None:
        rule = self._top.find(path, name, is_directory) if self._top else None
        if rule is not None:
            return rule
        for base, found in reversed(sets):
            # A base that begins with "/" lies above the project: its rules see a longer path.
            below = base[1:] + path if base[:1] == b"/" else path[len(base) :]
            rule = found.find(below, name, is_directory)
            if rule is not None:
                return rule
        return None


def built_in_rule(name: bytes, is_directory: bool) -> tuple[str, bool] | None:
    """Return the built-in rule that leaves `name` out and whether that may surprise, or None."""
    if is_directory:
        if name in _BUILT_IN_DIRECTORIES:
            return f"built-in: {name.decode()}", name == b"j2c_outputs"
        if name in _SECRET_DIRECTORIES:
            return "built-in: secrets", True
        return None
    if name in _BUILT_IN_FILES:
        return f"built-in: {name.decode()}", False
    if is_secret_file(name):
        return "built-in: secrets", True
    return None


def is_secret_file(name: bytes) -> bool:
    """Whether a file of this name usually holds passwords or keys."""
    if name in _SECRET_FILES:
        return True
    return name.startswith(_SECRET_STARTS) and not name.endswith(_NO_SECRETS)


def is_secret_place(path: bytes) -> bool:
    """Whether an absolute path, reached through a link, leads to passwords or keys."""
    parts = path.split(b"/")
    return is_secret_file(parts[-1]) or not _SECRET_DIRECTORIES.isdisjoint(parts)


def _takes_back(rule: Rule) -> bool:
    """Whether a rule brings back what is left out by default.

    It has to be a negated one of .j2cignore (or of the settings) whose last part begins with a
    plain character: `!.env` does it, but `!*/`, which people write for other reasons, does not.
    """
    ours = ".gitignore:" not in rule.label and "info/exclude:" not in rule.label
    return rule.negated and ours and rule.pattern.rpartition(b"/")[2][:1] not in b"*?[\\"


def _of_repository(root: bytes) -> list[tuple[bytes, RuleSet]]:
    """Return the rule sets of the git repository around `root`, the weakest first."""
    found: list[tuple[bytes, RuleSet]] = []
    directory = root
    while True:
        git = os.path.join(directory, b".git")
        inner = root[len(directory) :].strip(b"/")
        base = b"/" + inner + b"/" if inner else b""
        if directory != root:
            above = RuleSet(_content(os.path.join(directory, b".gitignore")), "../.gitignore")
            if above:
                found.append((base, above))
        if os.path.exists(git):
            exclude = RuleSet(_content(_exclude_file(git)), ".git/info/exclude")
            if exclude:
                found.append((base, exclude))
            return found[::-1]
        above_it = os.path.dirname(directory)
        if above_it == directory:
            return []
        directory = above_it


def _exclude_file(git: bytes) -> bytes:
    """Return the path of `info/exclude`; `.git` is a file in worktrees and submodules."""
    if not os.path.isdir(git):
        pointer = _content(git).strip()
        git = os.path.join(os.path.dirname(git), pointer.removeprefix(b"gitdir:").strip())
        common = _content(os.path.join(git, b"commondir")).strip()
        git = os.path.join(git, common) if common else git
    return os.path.join(git, b"info", b"exclude")


def _content(path: bytes) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
