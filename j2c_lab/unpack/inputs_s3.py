"""An input in S3: one object, or all below a prefix."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from j2c_lab.errors import UnpackError
from j2c_lab.formats.inputs import Source
from j2c_lab.store.base import ObjectInfo
from j2c_lab.store.opener import open_store

if TYPE_CHECKING:
    from j2c_lab.unpack.inputs_fetch import Opened


@contextlib.asynccontextmanager
async def open_s3(name: str, source: Source) -> AsyncIterator[Opened]:
    """Ask for the object, else for all below the prefix; raises `UnpackError`, `StoreError`."""
    from j2c_lab.unpack.inputs_fetch import Opened, Remote

    bucket, _, key = source.place.partition("/")
    store = open_store(f"s3://{bucket}")

    def reader(key: str) -> Callable[[], AsyncIterator[bytes]]:
        return lambda: store.read(key)

    try:
        found: dict[str, ObjectInfo] = {} if key.endswith("/") else await store.stat([key])
        if found:
            infos, prefix = [found[key]], os.path.dirname(key)
        else:
            prefix = key.rstrip("/") + "/"
            # Some tools make an empty object for each directory.
            infos = [info async for info in store.scan(prefix) if not info.key.endswith("/")]
        if not infos:
            raise UnpackError(
                f"input {name}: there is nothing at {source.shown}",
                "check the address, and that the cluster's credentials may read it",
            )
        version = "\n".join(
            [
                f"{os.environ.get('AWS_ENDPOINT_URL_S3', '')} {source.shown}",
                *(f"{info.key} {info.size} {info.modified}" for info in infos),
            ]
        )
        files = [
            Remote(
                path="" if found else info.key[len(prefix) :],
                name=os.path.basename(info.key),
                size=info.size,
                read=reader(info.key),
                checks=[],
            )
            for info in infos
        ]
        yield Opened(version, files)
    finally:
        await store.close()
