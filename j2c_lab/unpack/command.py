"""From a run's entry point to the command that executes it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import NamedTuple

from j2c_lab.errors import UnpackError, UsageError
from j2c_lab.formats.paths import from_text
from j2c_lab.formats.run import EntryPoint, Run
from j2c_lab.unpack.launch import Command

#: The directory of `-c` must not come first in `sys.path`: a project's own `json.py` would be
#: imported by j2c. `sys` is built in, so nothing is looked up before it is gone.
_NOTEBOOK = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; "
    "runpy.run_module('j2c_lab.unpack.notebook', run_name='__main__', alter_sys=True)"
)


class Places(NamedTuple):
    """Directories of a run, absolute."""

    project: str
    outputs: str
    #: What other attempts and ranks share nothing of.
    attempt: int


def run_directory(run: Run, project: str) -> str:
    """Return the directory to run in; raises `UnpackError` when it is none of the project's."""
    directory = os.path.normpath(os.path.join(project, run.cwd))
    if directory != project and not directory.startswith(project + os.sep):
        raise UnpackError(f"the run's directory {run.cwd!r} is not in the project")
    if not os.path.isdir(directory):
        raise UnpackError(
            f"the run's directory {run.cwd!r} is not there",
            "it may have been left out of the bundle: see j2c pack",
        )
    return directory


def make_command(
    run: Run, places: Places, python: str, environ: Mapping[str, str], inputs: Mapping[str, str]
) -> Command:
    """Return the command of a run; writes the file that a cell is run from.

    Parameters
    ----------
    python : str
        The environment's interpreter.
    environ : mapping
        The environment's variables; the run's own are added to them.
    inputs : mapping
        From NAME to a local path.
    """
    directory = run_directory(run, places.project)
    variables = {
        **{os.fsencode(k): os.fsencode(v) for k, v in environ.items()},
        b"PYTHONUNBUFFERED": b"1",
        b"J2C_RUN_ID": from_text(run.id),
        b"J2C_RUN_NAME": from_text(run.name),
        b"J2C_ATTEMPT": b"%d" % places.attempt,
        b"J2C_OUTPUT_DIR": os.fsencode(places.outputs),
        **{b"J2C_INPUT_" + from_text(k): os.fsencode(v) for k, v in inputs.items()},
        **{from_text(k): from_text(v) for k, v in run.env.items()},
    }
    arguments = [
        *_interpreter(run.entry, places, directory, os.fsencode(python)),
        *map(from_text, run.args),
    ]
    if any(b"\0" in text for text in arguments):
        raise UsageError("an argument holds a NUL byte, which no process can be given")
    return Command(arguments, variables, os.fsencode(directory))


def cell_file(directory: str, target: str) -> str:
    """Return where a cell's source is written: hidden, and named so that a traceback tells."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", target).strip("-") or "cell"
    return os.path.join(directory, f".{name}.py")


def _interpreter(entry: EntryPoint, places: Places, directory: str, python: bytes) -> list[bytes]:
    if entry.kind == "module":
        return [python, b"-m", from_text(entry.target)]
    if entry.kind == "cell":
        path = cell_file(directory, entry.target)
        with open(path, "wb") as file:
            file.write(from_text(entry.source or ""))
        return [python, os.fsencode(os.path.relpath(path, directory))]
    if entry.kind not in ("script", "notebook"):
        raise UnpackError(f"this j2c cannot run a {entry.kind!r}", "install a newer j2c-lab here")
    root = os.fsencode(places.project)
    path_bytes = os.path.normpath(os.path.join(root, from_text(entry.target)))
    if not path_bytes.startswith(root + b"/") or not os.path.isfile(path_bytes):
        raise UnpackError(
            f"{entry.target} is not in the bundle", "see what j2c pack lists as left out"
        )
    if entry.kind == "script":
        name = os.path.relpath(path_bytes, os.fsencode(directory))
        return [python, b"./" + name if name.startswith(b"-") else name]
    executed = os.path.join(os.fsencode(places.outputs), os.path.basename(path_bytes))
    own = os.fsencode(sys.executable)
    # -E: the variables that the environment needs are for the kernel, not for j2c's own Python.
    return [own, b"-E", b"-c", _NOTEBOOK.encode(), path_bytes, executed, python]
