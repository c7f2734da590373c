"""From a URL to a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from j2c_lab.errors import UsageError
from j2c_lab.store.base import Store

#: What leads to the same server, and is no secret. Credentials never travel with a job: it has its
#: cluster's own.
_SETTINGS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")


def job_settings(url: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which a job elsewhere finds the store at `url`: no credentials.

    Parameters
    ----------
    url : str
        Of the store, or of anything in it.
    environ : mapping
        The submitter's environment.
    """
    if not url.startswith("s3://"):
        return {}
    return {name: environ[name] for name in _SETTINGS if environ.get(name)}


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
