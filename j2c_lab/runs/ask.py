"""From what a person writes (`train.py`, `-m pkg`, a notebook, a cell) to a request."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from j2c_lab.errors import UsageError
from j2c_lab.formats.inputs import is_path, on_cluster, parse_source
from j2c_lab.formats.run import EntryPoint, Resources, new_run_id
from j2c_lab.runs.request import Request, host_name

SCRIPT = "script"
MODULE = "module"
NOTEBOOK = "notebook"
CELL = "cell"


def locate_project(entry: str | None, project: str | None) -> str:
    """Return the project's directory for an entry point, or for the current directory."""
    from j2c_lab.pack.project import find_project

    start = os.path.dirname(os.path.abspath(entry)) if entry else os.getcwd()
    if entry and not os.path.exists(entry) and not project:
        raise _no_entry(entry)
    return find_project(start, project)


def make_request(
    *,
    project: str,
    prefix: str,
    user: str,
    entry: str | None = None,
    module: str | None = None,
    cell: str | None = None,
    cell_name: str = "cell",
    args: list[str] | None = None,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    outputs: list[str] | None = None,
    resources: Resources | None = None,
    paths: Mapping[str, str] | None = None,
    **rest: Any,
) -> Request:
    """Return a request with a new run id; exactly one of `entry`, `module`, `cell` is given.

    Parameters
    ----------
    project : str
        The project's directory.
    prefix : str
        The environment to pack.
    entry : str, optional
        A script or a notebook, relative to the current directory; it must lie in the project.
    module : str, optional
        A module, as `python -m` takes it.
    cell : str, optional
        The text of a script; it runs in the current directory's place in the project.
    inputs : mapping, optional
        From NAME to a URL or a path.
    paths : mapping, optional
        From directories of the lab to where the cluster has them: paths of inputs are changed so.

    Raises
    ------
    UsageError
        The entry point is not there, or not in the project.
    """
    if sum(given is not None for given in (entry, module, cell)) != 1:
        raise UsageError("give one thing to run", "a script, a notebook, -m MODULE, or a cell")
    root = os.path.realpath(project)
    directory = _inside(root, os.getcwd())
    if entry is not None:
        point, directory = _file_entry(root, entry, directory)
    elif module is not None:
        point = EntryPoint(kind=MODULE, target=module)
    else:
        point = EntryPoint(kind=CELL, target=cell_name, source=cell)
    stem = os.path.splitext(os.path.basename(point.target))[0]
    for key in inputs or {}:
        if not key.isidentifier():
            raise UsageError(f"{key!r} is no name for an input", "use letters, digits and _")
    known = {key: _input(key, text, dict(paths or {})) for key, text in (inputs or {}).items()}
    return Request(
        id=new_run_id(),
        user=user,
        name=name or stem,
        created=time.time(),
        entry=point,
        project=os.path.abspath(project),
        prefix=os.path.abspath(prefix),
        host=host_name(),
        args=list(args or []),
        cwd=directory or "",
        env=dict(env or {}),
        inputs=known,
        outputs=list(outputs or []),
        resources=resources or Resources(),
        **rest,
    )


def _input(name: str, text: str, paths: dict[str, str]) -> str:
    """Return an input as the cluster shall read it; a bad URL is told before anything is sent."""
    source = parse_source(name, text)
    if not is_path(text):
        return text
    return on_cluster(source.place, paths) + (f"#sha256={source.sha256}" if source.sha256 else "")


def _file_entry(root: str, entry: str, directory: str | None) -> tuple[EntryPoint, str | None]:
    """Return the entry point of a file, and the directory to run it in.

    That is the caller's, when it lies in the project, as if the file were run there; else, and for
    a notebook, whose kernel always starts beside it, the file's own.
    """
    if not os.path.isfile(entry):
        raise _no_entry(entry)
    path = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(entry))),
                        os.path.basename(entry))  # fmt: skip
    target = _inside(root, path)
    if target is None:
        raise UsageError(f"{entry} is not in the project {root}", "give its project with --project")
    if entry.endswith(".ipynb"):
        return EntryPoint(kind=NOTEBOOK, target=target), os.path.dirname(target)
    own = os.path.dirname(target)
    return EntryPoint(kind=SCRIPT, target=target), own if directory is None else directory


def _inside(root: str, path: str) -> str | None:
    """Return `path` relative to `root`, empty for the root itself; None when it lies outside."""
    relative = os.path.relpath(path, root)
    if relative == os.curdir:
        return ""
    return None if relative.split(os.sep)[0] == os.pardir else relative


def _no_entry(entry: str) -> UsageError:
    hint = ""
    if not entry.endswith((".py", ".ipynb")) and "/" not in entry:
        hint = f"; for a module write -m {entry}"
    return UsageError(f"there is no file {entry}", f"give a script or a notebook{hint}")
