"""Where an input comes from: the kinds of URLs, read the same by the lab and by the cluster."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from j2c_lab.errors import UsageError

PATH, S3, HTTP = "path", "s3", "http"

_SHA256 = re.compile(r"#sha256=([0-9a-f]{64})\Z")


class Source(NamedTuple):
    """An input as it was declared.

    `place` is a path, `bucket/key`, or a URL; `sha256` what its content must be, or empty.
    """

    kind: str
    place: str
    sha256: str = ""

    @property
    def shown(self) -> str:
        """The place for people: what follows `?` in a URL may be a signature."""
        if self.kind == HTTP:
            return self.place.partition("?")[0]
        return f"s3://{self.place}" if self.kind == S3 else self.place


def parse_source(name: str, text: str) -> Source:
    """Return where the input `name` comes from.

    Raises
    ------
    UsageError
        The URL is of a kind that cannot be fetched, or holds a password.
    """
    match = _SHA256.search(text)
    sha256 = match[1] if match else ""
    text = text[: match.start()] if match else text
    if "://" not in text:
        return Source(PATH, text, sha256)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Source(PATH, unquote(parts.path, errors="surrogateescape"), sha256)
    if parts.scheme == "s3" and parts.netloc and parts.path.strip("/"):
        return Source(S3, text[len("s3://") :], sha256)
    if parts.scheme in ("http", "https") and parts.hostname:
        if "@" in parts.netloc:
            raise UsageError(
                f"input {name}: a password in a URL would be stored with the run",
                "give a URL without one, or put the data where the cluster's own rights reach",
            )
        return Source(HTTP, text.partition("#")[0], sha256)
    raise UsageError(
        f"input {name}: {parts.scheme}:// cannot be fetched by this j2c",
        "give s3://bucket/key, s3://bucket/prefix/, an http(s):// URL, or a path that the "
        "cluster can read",
    )


def is_path(text: str) -> bool:
    """Whether an input is a plain path, or the URL of one."""
    return "://" not in text or text.startswith("file://")


def on_cluster(path: str, paths: dict[str, str]) -> str:
    """Return where a path of the lab is on the cluster: by the longest directory that is mapped."""
    whole = os.path.abspath(os.path.expanduser(path))
    for here in sorted(paths, key=len, reverse=True):
        root = os.path.abspath(os.path.expanduser(here))
        if whole == root or whole.startswith(root.rstrip("/") + "/"):
            return paths[here].rstrip("/") + whole[len(root.rstrip("/")) :] or "/"
    return path if path.startswith("~") else whole
