"""Declared inputs: from what the user wrote to a path on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from j2c_lab.errors import UnpackError, UsageError


def resolve_inputs(inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the local path of each input, by its NAME.

    Raises
    ------
    UsageError
        The URL is of a kind that cannot be fetched.
    UnpackError
        There is no such file or directory on this machine.
    """
    return {name: _local_path(name, url) for name, url in inputs.items()}


def _local_path(name: str, url: str) -> str:
    """The one place that knows the kinds of inputs."""
    path = url
    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise UsageError(
                f"input {name}: {parts.scheme}:// cannot be fetched by this j2c",
                "give a path or a file:// URL that the cluster can read",
            )
        path = unquote(parts.path, errors="surrogateescape")
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise UsageError(f"input {name}: {url!r} is relative", "give an absolute path")
    if not os.access(path, os.R_OK):
        why = "cannot be read" if os.path.exists(path) else "is not there"
        raise UnpackError(
            f"input {name}: {path} {why} on {os.uname().nodename}",
            "check the path on the cluster, and that the job may read it",
        )
    return path
