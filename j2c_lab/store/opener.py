"""From a URL to a store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from j2c_lab.errors import UsageError
from j2c_lab.store.base import Store


def open_store(url: str) -> Store:
    """Open the store at `file:///directory`, at a plain path, or at `s3://bucket/prefix`.

    Raises
    ------
    UsageError
        The URL is of no known kind.
    """
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        from j2c_lab.store.local import LocalStore

        path = unquote(urlsplit(url).path) if scheme else os.path.expanduser(url)
        return LocalStore(Path(path))
    if scheme == "s3":
        # Imports no S3 client yet: that takes most of a second, and waits for the first request.
        from j2c_lab.store.s3 import S3Store

        return S3Store(url)
    raise UsageError(
        f"{url!r} is no store this j2c can open",
        "give a directory, a file:// URL or s3://bucket/prefix",
    )
