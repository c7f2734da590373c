"""Sending a large file in parts, and going on with the parts that an earlier process has sent.

S3 itself is the memory: an upload that was begun for a key is found by listing uploads, its parts
by listing parts. Whether a part holds the same bytes as this file is proved, not assumed: the same
layer packed by another zstd has the same key and other bytes. A part counts as sent when its ETag
is the MD5 of the bytes here; that is no belief in ETags, since any other ETag only means that the
part is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import os
import time
from pathlib import Path
from typing import Any

from j2c_lab.errors import StoreError
from j2c_lab.store.base import Progress
from j2c_lab.store.s3_client import BULK, S3Client
from j2c_lab.store.s3_errors import Refused

#: Smaller files are sent in one request.
THRESHOLD = 16 << 20
PART = 8 << 20
_MOST_PARTS = 10_000
#: Larger objects S3 copies in parts only; no part may be larger.
LARGEST_COPY = 5 << 30


def part_size(size: int) -> int:
    """Return the size of the parts of a file of `size` bytes: the same in every process."""
    part = PART
    while part * _MOST_PARTS < size:
        part *= 2
    return part


async def renew(client: S3Client, key: str, size: int, metadata: dict[str, str]) -> None:
    """Copy an object onto itself inside the server, in parts."""
    begun = await client.call("create_multipart_upload", key=key, Metadata=metadata)
    upload = begun["UploadId"]
    parts = []
    try:
        for number, start in enumerate(range(0, size, LARGEST_COPY), 1):
            answer = await client.call(
                "upload_part_copy",
                key=key,
                UploadId=upload,
                PartNumber=number,
                CopySource={"Bucket": client.bucket, "Key": key},
                CopySourceRange=f"bytes={start}-{min(start + LARGEST_COPY, size) - 1}",
            )
            parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
        await client.call(
            "complete_multipart_upload",
            key=key,
            UploadId=upload,
            MultipartUpload={"Parts": parts},
        )
    except BaseException:
        with contextlib.suppress(StoreError):
            await client.call("abort_multipart_upload", key=key, UploadId=upload)
        raise


async def abort_stale(client: S3Client, prefix: str, older_than: float) -> int:
    """Give up uploads below `prefix` that were begun over `older_than` seconds ago; count them."""
    count = 0
    marker: dict[str, Any] = {}
    limit = time.time() - older_than
    while True:
        answer = await client.call("list_multipart_uploads", Prefix=prefix, **marker)
        for upload in answer.get("Uploads", ()):
            if upload["Initiated"].timestamp() < limit:
                await client.call(
                    "abort_multipart_upload", key=upload["Key"], UploadId=upload["UploadId"]
                )
                count += 1
        if not answer.get("IsTruncated"):
            return count
        marker = {
            "KeyMarker": answer["NextKeyMarker"],
            "UploadIdMarker": answer["NextUploadIdMarker"],
        }


class Multipart:
    """One file on its way to one key.

    Parameters
    ----------
    client : S3Client
        Sends the requests.
    key : str
        The object's key in the bucket.
    path : Path
        The file; it must not change meanwhile.
    metadata : dict
        What the object will carry, when this process begins the upload.
    progress : callable, optional
        Called with the size of each part that is in the store, those found there included.
    """

    def __init__(
        self,
        client: S3Client,
        key: str,
        path: Path,
        metadata: dict[str, str],
        progress: Progress | None,
    ) -> None:
        self._client = client
        self._key = key
        self._path = path
        self._metadata = metadata
        self._progress = progress
        self._upload = ""
        self._etags: dict[int, str] = {}

    async def send_parts(self) -> None:
        """Send all parts that are not there yet, `BULK` at once.

        Raises
        ------
        StoreError
            A part could not be sent; those that were stay for the next try.
        """
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            before = os.fstat(descriptor)
            await self._send_all(descriptor, before.st_size)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            await self.abort()
            raise StoreError(f"{self._path} changed while it was sent", "repeat the command")

    async def complete(self, **condition: Any) -> bool:
        """Make the parts an object; always True.

        Raises
        ------
        Refused
            The condition does not hold (status 412), or the server refuses otherwise.
        """
        parts = [{"PartNumber": n, "ETag": etag} for n, etag in sorted(self._etags.items())]
        try:
            await self._client.call(
                "complete_multipart_upload",
                key=self._key,
                UploadId=self._upload,
                MultipartUpload={"Parts": parts},
                **condition,
            )
        except Refused as refused:
            # An earlier try whose answer was lost has used the upload up.
            if not (refused.error_code == "NoSuchUpload" and refused.ambiguous):
                raise
            await self._client.call("head_object", key=self._key)
        return True

    async def abort(self) -> None:
        """Give the parts up. What cannot be removed is left to `j2c gc`."""
        if self._upload:
            with contextlib.suppress(StoreError):
                await self._client.call(
                    "abort_multipart_upload", key=self._key, UploadId=self._upload
                )

    async def _send_all(self, descriptor: int, size: int) -> None:
        step = part_size(size)
        count = -(-size // step)
        self._upload, self._etags = await self._begun(descriptor, step, count)
        if not self._upload:
            answer = await self._client.call(
                "create_multipart_upload", key=self._key, Metadata=self._metadata
            )
            self._upload = answer["UploadId"]
        for number in self._etags:
            self._sent(min(step, size - (number - 1) * step))
        missing = [number for number in range(1, count + 1) if number not in self._etags]
        numbers = iter(missing)

        async def send_some() -> None:
            for number in numbers:
                await self._client.bulk(functools.partial(self._send, descriptor, number, step))

        await _all_or_first_error([send_some() for _ in range(min(BULK, len(missing)))])

    async def _send(self, descriptor: int, number: int, step: int) -> None:
        data = await asyncio.to_thread(os.pread, descriptor, step, (number - 1) * step)
        answer = await self._client.call(
            "upload_part", key=self._key, body=data, UploadId=self._upload, PartNumber=number
        )
        self._etags[number] = answer["ETag"]
        self._sent(len(data))

    def _sent(self, size: int) -> None:
        if self._progress is not None:
            self._progress(size)

    async def _begun(self, descriptor: int, step: int, count: int) -> tuple[str, dict[int, str]]:
        """Return the upload of this very file that has the most parts, and their ETags."""
        best: tuple[str, dict[int, str]] = ("", {})
        try:
            for upload in await self._uploads():
                etags = await self._parts(upload)
                if len(etags) > len(best[1]) and max(etags) <= count:
                    same = await asyncio.to_thread(_matching, descriptor, step, etags)
                    # With one foreign part it is another packing of the layer: keep out of it,
                    # whoever began it may still be at work.
                    if len(same) == len(etags):
                        best = (upload, etags)
        except Refused:
            # No right to list uploads, or a server that cannot: begin anew.
            return "", {}
        return best

    async def _uploads(self) -> list[str]:
        answer = await self._client.call("list_multipart_uploads", Prefix=self._key)
        return [item["UploadId"] for item in answer.get("Uploads", ()) if item["Key"] == self._key]

    async def _parts(self, upload: str) -> dict[int, str]:
        etags: dict[int, str] = {}
        marker: dict[str, Any] = {}
        while True:
            answer = await self._client.call("list_parts", key=self._key, UploadId=upload, **marker)
            etags.update((part["PartNumber"], part["ETag"]) for part in answer.get("Parts", ()))
            if not answer.get("IsTruncated"):
                return etags
            marker = {"PartNumberMarker": answer["NextPartNumberMarker"]}


def _matching(descriptor: int, step: int, etags: dict[int, str]) -> list[int]:
    """Return the numbers of the parts whose ETag is the MD5 of the file's bytes."""
    same = []
    for number, etag in etags.items():
        data = os.pread(descriptor, step, (number - 1) * step)
        if hashlib.md5(data, usedforsecurity=False).hexdigest() == etag.strip('"'):
            same.append(number)
    return same


async def _all_or_first_error(work: list[Any]) -> None:
    """Await all; at the first error cancel the others, wait until they are gone, and raise it."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
