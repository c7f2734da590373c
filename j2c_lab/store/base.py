"""The contract of every store. Code above knows stores by this file alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

#: Called with the number of bytes that were sent or received since the last call.
Progress = Callable[[int], None]


class ObjectInfo(NamedTuple):
    """What a store knows of an object without reading it."""

    key: str
    #: Bytes.
    size: int
    #: Seconds since the epoch, by the store's clock.
    modified: float


class Store(Protocol):
    """Named bytes. Keys are made by `layout` only: ASCII, no empty, `.` or `..` components.

    A `put` that returned is visible to every later `get`, `stat` and `scan`, whole: readers see
    the old bytes or the new, never a part. Methods retry passing faults by themselves and raise
    `StoreError` when the store cannot be reached or refuses, `NotFoundError` for a missing key.
    They may be called from many tasks of one event loop at once. Cancelling a call leaves either
    the old object or the new one.
    """

    #: `file:///…` or `s3://…`, without a trailing slash; opens the same store again.
    url: str

    async def get(self, key: str, start: int = 0) -> bytes:
        """Return the object's bytes from `start` on; empty when it is not longer than that."""
        ...

    def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        """Yield the object's bytes from `start` on, in pieces of at most 1 MiB."""
        ...

    async def put(
        self, key: str, data: bytes, *, if_absent: bool = False, once: bool = False
    ) -> bool:
        """Write an object; with `if_absent` only when there is none.

        Returns False when there was one already (only with `if_absent`). Of many callers at once
        with `if_absent`, exactly one gets True.

        A try that got no answer may arrive late, after its repetition and after the next put: who
        writes one key several times asks for `once`, a single try, and puts nothing else under a
        key whose put has raised.
        """
        ...

    async def put_file(
        self,
        key: str,
        path: Path,
        *,
        if_absent: bool = False,
        consume: bool = False,
        progress: Progress | None = None,
    ) -> bool:
        """Write an object from a file, which may be larger than memory; else as `put`.

        With `consume` the file is the store's afterwards: it is moved where that is cheaper than
        a copy, and deleted otherwise.
        """
        ...

    async def stat(self, keys: Iterable[str]) -> dict[str, ObjectInfo]:
        """Return what is known of those keys that exist; a missing key is missing in the answer."""
        ...

    def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield all objects whose key begins with `prefix` and sorts after `after`, sorted."""
        ...

    async def list_names(self, prefix: str) -> list[str]:
        """Return the sorted next components below `prefix`, which ends with `/`.

        Some servers name a component for a while after everything below it was deleted.
        """
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; a missing key is no error."""
        ...

    async def renew(self, keys: Iterable[str]) -> set[str]:
        """Make objects as young as if they were written now; return those that exist."""
        ...

    async def sweep(self, older_than: float) -> int:
        """Remove what interrupted writes left behind over `older_than` seconds ago; return how
        much of it there was: temporary files, uploads in parts that nobody will finish.
        """
        ...

    def local_path(self, key: str) -> Path | None:
        """Return a file that holds the object, when it lies on this machine; else None.

        The file may not exist. It must not be written to.
        """
        ...

    def staging(self) -> Path | None:
        """Return a directory in which to make files for `put_file(consume=True)`, or None.

        A store that can move a file instead of copying it says here where that works from.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
