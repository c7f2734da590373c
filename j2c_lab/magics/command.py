"""Finds the lab's `j2c` from inside a kernel, and prepares what it is told about the kernel."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: Names the command: a JSON list of arguments, or a path. The lab's server exports it.
VARIABLE = "J2C_COMMAND"

#: What the command needs to start; a kernel may see `j2c_lab` without them.
_NEEDED = ("rich", "shtab", "traitlets", "jupyter_core")

# `python -m` would put the user's directory first, where a file called `queue.py` or `rich.py`
# would be imported instead of the real one.
_START = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; sys.path.append({root!r}); "
    "from j2c_lab.cli import main; sys.exit(main())"
)


class CommandNotFoundError(Exception):
    """There is no `j2c` that this kernel could call."""


class Command(NamedTuple):
    """How to call `j2c`; `own` when it runs in the kernel's own Python."""

    argv: list[str]
    own: bool


def find_command(environ: Mapping[str, str]) -> Command:
    """Return how to call `j2c` from this kernel.

    `J2C_COMMAND` wins; then the Python that `j2c_lab` is installed in, then this kernel's own if
    it has what is needed, then `j2c` on the PATH.

    Raises
    ------
    CommandNotFoundError
        None of these is there, or `J2C_COMMAND` is not what it should be.
    """
    if given := environ.get(VARIABLE):
        return Command(_parse(given), own=False)
    root = Path(__file__).resolve().parents[2]
    if python := _python_owning(root):
        return Command([python, "-c", _START.format(root=str(root))], own=_same(python))
    if all(importlib.util.find_spec(name) for name in _NEEDED):
        return Command([sys.executable, "-c", _START.format(root=str(root))], own=True)
    if found := shutil.which("j2c", path=environ.get("PATH")):
        return Command([found], own=False)
    raise CommandNotFoundError(
        f"no j2c command was found from this kernel ({sys.executable}); start JupyterLab where "
        f"j2c-lab is installed, or set {VARIABLE} to the path of j2c"
    )


def kernel_environment(environ: Mapping[str, str], command: Command) -> dict[str, str]:
    """Return the environment for the command: the kernel's, without what is only the kernel's.

    The display hooks of a kernel (`MPLBACKEND`) make no sense in a run, and `PYTHONPATH` of the
    kernel is for the kernel's Python, not for the lab's. `J2C_VENV` makes the kernel's environment
    the one that is packed, unless the project or the user names another.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith("PYDEVD_")}
    if "inline" in kept.get("MPLBACKEND", ""):
        del kept["MPLBACKEND"]
    if not command.own:
        for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONWARNINGS"):
            kept.pop(name, None)
    kept.setdefault("J2C_VENV", sys.prefix)
    return kept


def notebook_name(environ: Mapping[str, str]) -> list[str]:
    """Return `--name` with the notebook's name, for a run of one of its cells, if it is known."""
    session = Path(environ.get("JPY_SESSION_NAME", ""))
    return [f"--name={session.stem}"] if session.suffix == ".ipynb" else []


def _parse(given: str) -> list[str]:
    if given.lstrip().startswith("["):
        try:
            argv = json.loads(given)
        except ValueError:
            argv = None
        if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
            raise CommandNotFoundError(f"{VARIABLE} is no JSON list of strings: {given}")
        return argv
    if found := shutil.which(given):
        return [found]
    raise CommandNotFoundError(f"{VARIABLE} names {given}, which cannot be run")


def _python_owning(root: Path) -> str | None:
    """Return the Python whose `site-packages` (or `dist-packages`) `root` is."""
    if root.name not in ("site-packages", "dist-packages"):
        return None
    version = root.parent.name
    for prefix in root.parents:
        for name in (version, "python3", "python"):
            candidate = prefix / "bin" / name
            if name.startswith("python") and os.access(candidate, os.X_OK):
                return str(candidate)
        if (prefix / "pyvenv.cfg").exists():
            break
    return None


def _same(python: str) -> bool:
    return os.path.realpath(os.path.dirname(python)) == os.path.realpath(
        os.path.dirname(sys.executable)
    )
