"""Whether a store can do what j2c needs, tried out for real and told in plain words."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from j2c_lab.errors import J2CError, NotFoundError
from j2c_lab.store import layout
from j2c_lab.store.base import Store
from j2c_lab.store.multipart import THRESHOLD

OK = "ok"
WARNING = "warning"
ERROR = "error"

#: Seconds that clocks may differ before signatures are refused (15 minutes) comes near.
_SKEW = 60.0


class Finding(NamedTuple):
    """What one try has shown."""

    #: `write`, `read`, `range`, `list`, `once`, `parts`, `clock` or `delete`.
    name: str
    #: `OK`, `WARNING` or `ERROR`.
    severity: str
    message: str
    #: What to do, and who; empty when all is well.
    remedy: str = ""


async def check(store: Store) -> AsyncIterator[Finding]:
    """Try everything that j2c does with a store, below `check/`; yields what was found.

    Ends after the first finding when nothing can be written at all.
    """
    token = secrets.token_hex(8)
    tries: list[tuple[str, Callable[[Store, str], Awaitable[Finding]]]] = [
        ("write", _write),
        ("read", _read),
        ("range", _range),
        ("list", _list),
        ("once", _once),
        ("parts", _parts),
        ("clock", _clock),
        ("delete", _delete),
    ]
    for name, attempt in tries:
        try:
            finding = await attempt(store, token)
        except NotFoundError:
            finding = Finding(name, ERROR, "what was written is not there", _ASK_CONSISTENT)
        except J2CError as error:
            finding = Finding(name, ERROR, error.message, error.remedy)
        yield finding
        if name == "write" and finding.severity == ERROR:
            return


_ASK_CONSISTENT = "ask the store's owner: j2c needs a store that shows a write at once"


async def _write(store: Store, token: str) -> Finding:
    begun = time.monotonic()
    await store.put(layout.check(token, "object"), b"0123456789")
    took = (time.monotonic() - begun) * 1000
    return Finding("write", OK, f"writes objects ({took:.0f} ms for the first)")


async def _read(store: Store, token: str) -> Finding:
    begun = time.monotonic()
    if await store.get(layout.check(token, "object")) != b"0123456789":
        return Finding("read", ERROR, "gives back other bytes than were written", _ASK_CONSISTENT)
    return Finding("read", OK, f"reads objects ({(time.monotonic() - begun) * 1000:.0f} ms)")


async def _range(store: Store, token: str) -> Finding:
    if await store.get(layout.check(token, "object"), 6) != b"6789":
        return Finding(
            "range",
            ERROR,
            "gives other bytes than the range that is asked for",
            "ask the store's owner: downloads cannot be resumed, nor logs followed",
        )
    return Finding("range", OK, "reads parts of objects: downloads can be resumed")


async def _list(store: Store, token: str) -> Finding:
    prefix = layout.check(token, "")
    listed = [info.key[len(prefix) :] async for info in store.scan(prefix)]
    names = await store.list_names(prefix)
    if listed != ["object"] or names != ["object"]:
        return Finding("list", ERROR, "does not list what was written", _ASK_CONSISTENT)
    return Finding("list", OK, "lists objects")


async def _once(store: Store, token: str) -> Finding:
    key = layout.check(token, "once")
    first = await store.put(key, b"first", if_absent=True)
    second = await store.put(key, b"second", if_absent=True)
    if not first or second or await store.get(key) != b"first":
        return Finding(
            "once",
            ERROR,
            "a second write that must not happen has happened",
            "use another store: a job could be submitted twice",
        )
    works = getattr(store, "conditional_puts_work", None)
    if works is not None and not await works():
        return Finding(
            "once",
            WARNING,
            "the server ignores conditional writes (If-None-Match); j2c uses claims instead, which "
            "is as safe but slower, and after a crash may bar a run's next submit for 20 minutes",
            "ask the store's owner for a newer server version",
        )
    return Finding("once", OK, "writes only if absent: no job is submitted twice")


async def _parts(store: Store, token: str) -> Finding:
    size = THRESHOLD + 1

    def make(directory: str) -> Path:
        path = Path(directory) / "parts"
        path.write_bytes(os.urandom(size))
        return path

    with tempfile.TemporaryDirectory() as directory:
        path = await asyncio.to_thread(make, directory)
        begun = time.monotonic()
        await store.put_file(layout.check(token, "parts"), path)
        took = time.monotonic() - begun
        same = True
        with open(path, "rb") as file:  # noqa: ASYNC230 - this file was just written
            async for piece in store.read(layout.check(token, "parts")):
                same = same and file.read(len(piece)) == piece
            same = same and not file.read(1)
    if not same:
        return Finding(
            "parts",
            ERROR,
            "a large file comes back with other bytes",
            "ask the store's owner: uploads in parts do not work",
        )
    return Finding("parts", OK, f"takes large files in parts ({size / 1e6 / took:.0f} MB/s)")


async def _clock(store: Store, token: str) -> Finding:
    key = layout.check(token, "clock")
    before = time.time()
    await store.put(key, b"")
    after = time.time()
    modified = (await store.stat([key]))[key].modified
    # Some stores tell whole seconds.
    off = max(before - modified - 1, modified - after - 1, 0.0)
    if off > _SKEW:
        return Finding(
            "clock",
            WARNING,
            f"the store's clock and this machine's differ by {off:.0f} s",
            "set both by NTP: past 15 minutes every request is refused",
        )
    return Finding("clock", OK, "its clock agrees with this machine's")


async def _delete(store: Store, token: str) -> Finding:
    keys = [layout.check(token, name) for name in ("object", "once", "parts", "clock")]
    await store.delete(keys)
    if await store.stat(keys):
        return Finding("delete", ERROR, "still shows what was deleted", _ASK_CONSISTENT)
    return Finding("delete", OK, "deletes objects")
