"""What a Python interpreter says of itself, asked once and remembered."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from j2c_lab.errors import EnvironmentNotSupportedError, FormatError
from j2c_lab.formats.record import Record

# Runs in any Python from 3.7 on, isolated, so that no variable or user package changes the answer.
_QUESTION = """
import os, platform, site, sys, sysconfig
try:
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
except (AttributeError, OSError, ValueError):
    libc = ""
if sys.prefix != sys.base_prefix:
    sites = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
else:
    sites = site.getsitepackages()
base = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
if not os.access(base, os.X_OK):
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
answer = {
    "executable": sys.executable,
    "base_executable": base,
    "python": "%d.%d" % sys.version_info[:2],
    "python_full": platform.python_version(),
    "implementation": sys.implementation.name,
    "platform": sysconfig.get_platform(),
    "libc": libc,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "site_packages": [p for p in dict.fromkeys(sites) if os.path.isdir(p)],
}
"""
_PRINT = "import json; json.dump(answer, sys.stdout)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interpreter(Record):
    """One Python interpreter; all paths are absolute."""

    executable: str
    #: The interpreter below all virtual environments, by a path that finds its own library.
    base_executable: str
    #: `3.11`
    python: str
    #: `3.11.7`
    python_full: str
    #: `cpython`
    implementation: str
    #: `linux-x86_64`
    platform: str
    #: `glibc 2.36`, or empty.
    libc: str
    prefix: str
    base_prefix: str
    #: Its own directories of packages (the venv's alone, when it is a venv), in order.
    site_packages: list[str]

    @property
    def is_venv(self) -> bool:
        """Whether it is the Python of a virtual environment."""
        return self.prefix != self.base_prefix


def ask(executable: str) -> Interpreter:
    """Return what the interpreter at `executable` says of itself.

    It is run once, with `-I`; the answer is kept in the user's cache directory for as long as the
    executable and its `pyvenv.cfg` stay as they are.

    Raises
    ------
    EnvironmentNotSupportedError
        It cannot be run, or does not answer.
    """
    return _remembered(executable, lambda: _run(executable))


def own() -> Interpreter:
    """Return what the Python that runs this code says of itself."""
    return _remembered(sys.executable, _introspect)


def cache_directory() -> str:
    """Return j2c's directory below the user's cache directory; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    # A user id without a home has no cache, least of all one below the current directory.
    return os.path.join(base, "j2c") if os.path.isabs(base) else os.path.join(os.devnull, "j2c")


def user_base() -> str:
    """Return where `pip install --user` puts things: `PYTHONUSERBASE`, or `~/.local`."""
    return os.environ.get("PYTHONUSERBASE") or os.path.join(os.path.expanduser("~"), ".local")


def remember(path: str, data: bytes) -> None:
    """Write a file of the cache; one that cannot be written costs time, never the run."""
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        pass


def _remembered(executable: str, answer: Callable[[], Interpreter]) -> Interpreter:
    cache = _cache_file(executable)
    if cache is not None:
        try:
            with open(cache, "rb") as file:
                return Interpreter.from_json(file.read())
        except (OSError, FormatError):
            pass
    found = answer()
    if cache is not None:
        remember(cache, found.to_json())
    return found


def _introspect() -> Interpreter:
    # The same lines that other Pythons run: on the cluster a process saved is 50 ms of a start.
    names: dict[str, Any] = {}
    exec(_QUESTION, names)  # noqa: S102
    return Interpreter.from_dict(names["answer"])


def _run(executable: str) -> Interpreter:
    import subprocess  # only for a Python that was not asked before

    try:
        done = subprocess.run(
            [executable, "-I", "-c", _QUESTION + _PRINT],
            capture_output=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise EnvironmentNotSupportedError(
            f"the Python at {executable} does not start ({reason})", "make the environment anew"
        ) from None
    if done.returncode != 0:
        raise EnvironmentNotSupportedError(
            f"the Python at {executable} does not start (exit code {done.returncode})",
            "make the environment anew",
            done.stderr.decode("utf-8", "replace").splitlines()[-5:],
        )
    try:
        return Interpreter.from_dict(json.loads(done.stdout))
    except (ValueError, FormatError) as error:
        raise EnvironmentNotSupportedError(
            f"the Python at {executable} gave no usable answer ({error})",
            "make the environment anew",
        ) from None


def _cache_file(executable: str) -> str | None:
    # A venv's `python` is a link to its base's: the same file, another answer. So the key has the
    # path as given, and both the executable's and pyvenv.cfg's times.
    from hashlib import sha256

    path = os.path.abspath(executable)
    try:
        stat = os.stat(path)
    except OSError:
        return None
    try:
        config = os.stat(os.path.join(os.path.dirname(path), "..", "pyvenv.cfg")).st_mtime_ns
    except OSError:
        config = 0
    key = repr((path, os.path.realpath(path), stat.st_mtime_ns, stat.st_size, config, 2))
    name = sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return os.path.join(cache_directory(), "interpreters", name + ".json")
