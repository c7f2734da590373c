"""Which kind of Python environment a directory is, read from its files."""

from __future__ import annotations

import dataclasses
import os
import re

from j2c_lab.errors import EnvironmentNotSupportedError, UsageError
from j2c_lab.installed.interpreter import Interpreter, ask, own, user_base

VENV = "venv"
CONDA = "conda"
USER = "user"
NONE = "none"


@dataclasses.dataclass(frozen=True)
class Prefix:
    """A Python environment, before its packages are read."""

    #: `venv`, `conda`, `user` or `none`, as in the manifest.
    kind: str
    path: bytes
    #: The Python below the environment.
    base: Interpreter
    #: Directories of packages that are the environment's own.
    site_packages: list[bytes]
    #: Whether the packages of the Python below are visible.
    system_site: bool
    #: The user's directory of packages, where it exists and is visible.
    user_site: bytes | None

    @property
    def bin_directories(self) -> list[bytes]:
        """Where scripts of the environment say that its Python is, links resolved or not."""
        real = os.path.realpath(self.path)
        return list(dict.fromkeys([self.path + b"/bin", real + b"/bin"]))


def read_prefix(prefix: str) -> Prefix:
    """Return what the directory `prefix` (or the Python executable in its `bin`) is.

    Raises
    ------
    UsageError
        There is no such directory, or no Python in it.
    EnvironmentNotSupportedError
        It is an environment whose Python is gone or does not start.
    """
    path = os.path.abspath(os.path.expanduser(prefix))
    if os.path.isfile(path) and os.path.basename(os.path.dirname(path)) == "bin":
        path = os.path.dirname(os.path.dirname(path))
    if not os.path.isdir(path):
        raise UsageError(f"there is no environment at {path}", "give the directory with pyvenv.cfg")
    config = read_config(path)
    if config is not None:
        return _venv(path, config)
    if os.path.realpath(path) == os.path.realpath(user_base()):
        return _below(path, ask(own().base_executable))
    executable = _executable(path)
    if executable is None:
        raise UsageError(
            f"{path} is no Python environment", "give the directory with pyvenv.cfg or conda-meta"
        )
    own_base = os.path.realpath(own().base_prefix)
    if os.path.realpath(path) == own_base:
        return _below(path, ask(own().base_executable))
    base = ask(executable)
    if os.path.isdir(os.path.join(path, "conda-meta")):
        return Prefix(CONDA, os.fsencode(path), base, _site_directories(path, base), False, None)
    # A Python in the home directory is the user's, packages and all; any other is the image's.
    if os.path.realpath(path).startswith(os.path.realpath(os.path.expanduser("~")) + os.sep):
        return Prefix(VENV, os.fsencode(path), base, _site_directories(path, base), False, None)
    return _below(path, base)


def read_config(path: str) -> dict[str, str] | None:
    """Return the settings of `pyvenv.cfg` in the directory `path`, names in lower case, or None."""
    try:
        with open(os.path.join(path, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def user_site(python: str) -> bytes | None:
    """Return the user's directory of packages for Python `python` (`3.11`), if it has any."""
    if os.environ.get("PYTHONNOUSERSITE"):
        return None
    path = os.path.join(user_base(), "lib", f"python{python}", "site-packages")
    return os.fsencode(path) if os.path.isdir(path) and os.listdir(path) else None


def _venv(path: str, config: dict[str, str]) -> Prefix:
    executable = _executable(path)
    if executable is None:
        home = config.get("home", "an unknown place")
        raise EnvironmentNotSupportedError(
            f"the Python of {path} is gone (it was made from {home})", "make the environment anew"
        )
    base = ask(os.path.realpath(executable))
    if base.is_venv:  # its `python` was copied, not linked
        base = ask(base.base_executable)
    system_site = config.get("include-system-site-packages", "").lower() == "true"
    return Prefix(
        VENV,
        os.fsencode(path),
        base,
        _site_directories(path, base),
        system_site,
        user_site(base.python) if system_site else None,
    )


def _below(path: str, base: Interpreter) -> Prefix:
    site = user_site(base.python)
    return Prefix(USER if site else NONE, os.fsencode(path), base, [], True, site)


def _executable(path: str) -> str | None:
    try:
        names = os.listdir(os.path.join(path, "bin"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    # The longest is the exact one (`python3.11`), in a directory such as /usr/bin too.
    names = [n for n in names if re.fullmatch(r"(python|pypy)(3(\.\d+)?)?", n)]
    preferred = sorted(names, key=lambda n: (n != "python", n != "python3", n))
    for name in preferred:
        candidate = os.path.join(path, "bin", name)
        if os.access(candidate, os.X_OK):
            return candidate
    return None


def _site_directories(path: str, base: Interpreter) -> list[bytes]:
    found: dict[str, bytes] = {}
    others: list[str] = []
    for lib in ("lib", "lib64"):
        directory = os.path.join(path, lib)
        names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
        for name in names:
            site = os.path.join(directory, name, "site-packages")
            match = re.fullmatch(r"(?:python|pypy)(\d+\.\d+)t?", name)
            if not match or not os.path.isdir(site):
                continue
            if match[1] == base.python:
                # lib64 is a link to lib nearly everywhere.
                found.setdefault(os.path.realpath(site), os.fsencode(site))
            else:
                others.append(match[1])
    if others and not found:
        raise EnvironmentNotSupportedError(
            f"{path} was made with Python {others[0]}, and its Python is {base.python} now",
            "make the environment anew",
        )
    return list(found.values())
