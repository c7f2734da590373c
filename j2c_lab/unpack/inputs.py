"""Declared inputs: from what the user wrote to a path on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from j2c_lab.errors import UnpackError, UsageError
from j2c_lab.formats.inputs import PATH, Source, parse_source

if TYPE_CHECKING:
    from j2c_lab.unpack.control import Control


def resolve_inputs(
    inputs: Mapping[str, str],
    cache: str | None,
    directory: str,
    control: Control,
    report: Callable[[int, int, int | None, int], None],
) -> dict[str, str]:
    """Return the local path of each input, by its NAME; fetch what is not on this machine.

    Parameters
    ----------
    cache : str, optional
        The node's cache.
    directory : str
        The run's own, for what cannot be kept.
    report : callable
        Is given bytes and files so far, all bytes if they are known, and all files.

    Raises
    ------
    Stopped
        The end was asked for.
    UsageError
        The URL is of a kind that cannot be fetched.
    UnpackError
        There is no such file, directory or object, or it is not what it should be.
    """
    sources = {name: parse_source(name, text) for name, text in inputs.items()}
    found = {n: _local_path(n, s) for n, s in sources.items() if s.kind == PATH}
    far = {name: source for name, source in sources.items() if source.kind != PATH}
    if far:
        from j2c_lab.unpack.inputs_fetch import fetch_inputs

        found.update(fetch_inputs(far, cache, directory, control, report))
    return found


def _local_path(name: str, source: Source) -> str:
    path = os.path.expanduser(source.place)
    if not os.path.isabs(path):
        raise UsageError(f"input {name}: {path!r} is relative", "give an absolute path")
    if not os.access(path, os.R_OK):
        why = "cannot be read" if os.path.exists(path) else "is not there"
        raise UnpackError(
            f"input {name}: {path} {why} on {os.uname().nodename}",
            "check the path on the cluster, and that the job may read it; [tool.j2c.paths] maps "
            "the lab's directories to the cluster's",
        )
    if source.sha256:
        from j2c_lab.unpack.inputs_fetch import check_file

        check_file(name, path, source)
    return path
