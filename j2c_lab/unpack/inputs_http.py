"""An input behind an HTTP(S) URL: gone on with by range when the connection breaks."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import http.client
import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from j2c_lab.errors import UnpackError
from j2c_lab.formats.inputs import Source

if TYPE_CHECKING:
    from j2c_lab.unpack.inputs_fetch import Opened

_PIECE = 1 << 20
#: Seconds without a byte.
_STALL = 30.0
#: Tries without a byte of progress, and the pause before each, in seconds.
_TRIES = 5
_PAUSE = 0.5
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


@contextlib.asynccontextmanager
async def open_http(name: str, source: Source) -> AsyncIterator[Opened]:
    """Ask for the URL; raises `UnpackError` when the server refuses or does not answer."""
    from j2c_lab.unpack.inputs_fetch import Opened, Remote

    answer = await _opened(name, source, 0, "")
    headers = answer.headers
    length = headers.get("Content-Length", "")
    size = int(length) if length.isdigit() else None
    etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
    version = f"{source.place} {etag} {modified} {length}" if etag or modified else ""
    state = {"answer": answer}

    async def read() -> AsyncIterator[bytes]:
        done = failures = 0
        while True:
            try:
                while piece := await asyncio.to_thread(state["answer"].read, _PIECE):
                    done += len(piece)
                    failures = 0
                    yield piece
                if size is None or done >= size:
                    return
                why = f"it ended after {done} of {size} bytes"
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
            state["answer"].close()
            failures += 1
            resumable = etag and not etag.startswith("W/") and size is not None
            if failures >= _TRIES or not (resumable or not done):
                raise UnpackError(f"input {name}: {source.shown} broke off: {why}", "run it again")
            await asyncio.sleep(_PAUSE * failures)
            state["answer"] = await _opened(name, source, done, etag)

    file = os.path.basename(unquote(urlsplit(source.place).path)) or "content"
    try:
        yield Opened(version, [Remote("", file, size, read, _checks(headers))])
    finally:
        _break_off(state["answer"])


def _break_off(answer: Any) -> None:
    """Close an answer that a thread may be reading: the reading ends at once, not at its limit."""
    # It has no descriptor once it was read to its end.
    with (
        contextlib.suppress(OSError, ValueError, AttributeError),
        socket.socket(fileno=os.dup(answer.fileno())) as connection,
    ):
        connection.shutdown(socket.SHUT_RDWR)
    answer.close()


async def _opened(name: str, source: Source, start: int, etag: str) -> Any:
    for failure in range(1, _TRIES + 1):
        try:
            answer = await asyncio.to_thread(_request, source.place, start, etag)
            if start and answer.status != 206:
                answer.close()
                raise UnpackError(
                    f"input {name}: {source.shown} changed while it was fetched",
                    "run it again when nobody writes to it",
                )
            return answer
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _PASSING or failure == _TRIES:
                raise UnpackError(
                    f"input {name}: {source.shown} answers {error.code} {error.reason}",
                    "check the address, and that it has not expired"
                    if error.code in (401, 403, 404, 410)
                    else "run it again later",
                ) from None
        except (OSError, http.client.HTTPException) as error:
            if failure == _TRIES:
                why = getattr(error, "reason", None) or error
                raise UnpackError(
                    f"input {name}: {source.shown} cannot be reached from "
                    f"{os.uname().nodename}: {why}",
                    "check the address, and the cluster's proxy (https_proxy)",
                ) from None
        await asyncio.sleep(_PAUSE * failure)
    raise AssertionError("unreachable")


def _request(url: str, start: int, etag: str) -> Any:
    # A compressed answer would have another size, and no ranges.
    headers = {"Accept-Encoding": "identity", "User-Agent": "j2c-lab"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": etag}
    # Only http and https come here: `formats.inputs` has seen to it.
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    return urllib.request.urlopen(request, timeout=_STALL)  # noqa: S310


def _checks(headers: Any) -> list[tuple[str, str]]:
    """Return the checksums of the whole content that the server tells."""
    found = []
    given = [("md5", headers.get("Content-MD5", ""))]
    if match := re.search(r"sha-256=:([^:]+):", headers.get("Repr-Digest", "")):
        given.append(("sha256", match[1]))
    # An object that was sent in parts has a checksum of checksums, with a number behind it.
    given.append(("sha256", headers.get("x-amz-checksum-sha256", "")))
    for kind, text in given:
        with contextlib.suppress(binascii.Error, ValueError):
            digest = base64.b64decode(text, validate=True)
            if len(digest) == {"md5": 16, "sha256": 32}[kind]:
                found.append((kind, digest.hex()))
    return found
