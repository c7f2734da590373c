"""From a URL to a store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from j2c_lab.errors import UsageError
from j2c_lab.store.base import Store


def open_store(url: str) -> Store:
    """Open the store at `file:///directory` or at a plain path.

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
    raise UsageError(f"{url!r} is no store this j2c can open", "give a directory or a file:// URL")
