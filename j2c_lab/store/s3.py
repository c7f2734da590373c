"""An S3-compatible bucket as the store. See `store.base.Store`.

Nothing here leans on one server's habits: ETags are opaque, checksums are not asked for, and
whether conditional puts work is tried out, not believed (`store.claims` is what stands in).
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from j2c_lab.errors import NotFoundError, StoreError, UsageError
from j2c_lab.store import multipart
from j2c_lab.store.base import ObjectInfo, Progress
from j2c_lab.store.claims import PRIVATE, ConditionalPuts
from j2c_lab.store.listing import may_come, safe_start, sorted_as_bytes
from j2c_lab.store.retry import Patience
from j2c_lab.store.s3_client import S3Client
from j2c_lab.store.s3_errors import Refused, is_passing

_PIECE = 1 << 20
#: From so many keys on, one list is cheaper than asking for each.
_MANY = 8
#: Pages of 1,000 keys that `stat` reads before it asks for single keys instead.
_MOST_PAGES = 4
#: Metadata of an object that says which put made it.
_TOKEN = "j2c-put"  # noqa: S105 - a name


class S3Store:
    """See `store.base.Store`. Credentials, endpoint, region, CA and proxy come from the standard
    variables and configuration files (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL_S3`,
    `AWS_REGION`, `AWS_CA_BUNDLE`, `HTTPS_PROXY`, …).
    """

    def __init__(self, url: str, patience: Patience | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
            raise UsageError(f"{url!r} is no S3 store", "write it like s3://bucket/prefix")
        prefix = parts.path.strip("/")
        self.url = f"s3://{parts.netloc}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self.client = S3Client(parts.netloc, self.url, patience or Patience())
        self._conditional = ConditionalPuts(self.client, self._prefix)

    async def get(self, key: str, start: int = 0) -> bytes:
        return b"".join([piece async for piece in self.read(key, start)])

    async def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        place, etag, retry = start, None, self.client.retry()
        while True:
            answer = await self._opened(key, place, etag)
            if answer is None:
                return
            etag = answer.get("ETag")
            end, skip = _extent(answer, place)
            try:
                # Some versions give something else than the body on entering it.
                async with (body := answer["Body"]):
                    stall = self.client.patience.stall
                    while piece := await asyncio.wait_for(body.read(_PIECE), stall):
                        dropped = min(skip, len(piece))
                        skip -= dropped
                        if dropped < len(piece):
                            place += len(piece) - dropped
                            retry.progressed()
                            yield piece[dropped:] if dropped else piece
                if place >= end:
                    return
                raise ConnectionError("the answer was cut short")
            except Exception as error:
                # What came is kept: the next try asks for the rest of the same object.
                if not is_passing(error) or not await retry.failed():
                    raise self.client.told(error, key) from error

    async def put(
        self, key: str, data: bytes, *, if_absent: bool = False, once: bool = False
    ) -> bool:
        if not if_absent:
            await self.client.call("put_object", key=self._prefix + key, body=data, once=once)
            return True
        if not await self._conditional.work():
            return await self._conditional.put_claimed(
                self._prefix + key, lambda: self.put(key, data)
            )
        token = uuid.uuid4().hex
        return await self._decided(
            key,
            token,
            self.client.call(
                "put_object",
                key=self._prefix + key,
                body=data,
                IfNoneMatch="*",
                Metadata={_TOKEN: token},
            ),
        )

    async def put_file(
        self,
        key: str,
        path: Path,
        *,
        if_absent: bool = False,
        consume: bool = False,
        progress: Progress | None = None,
    ) -> bool:
        size = os.stat(path).st_size
        if size < multipart.THRESHOLD:

            async def send() -> bool:
                data = await asyncio.to_thread(Path(path).read_bytes)
                return await self.put(key, data, if_absent=if_absent)

            # Small bodies may all be in memory at once.
            done = await (self.client.bulk(send) if size > _PIECE else send())
            if progress is not None:
                progress(size)
        elif if_absent and await self.stat([key]):
            done = False
        else:
            done = await self._put_in_parts(key, path, if_absent, progress)
        if consume:
            await asyncio.to_thread(Path(path).unlink, missing_ok=True)
        return done

    async def stat(self, keys: Iterable[str]) -> dict[str, ObjectInfo]:
        wanted = list(dict.fromkeys(keys))
        found: dict[str, ObjectInfo] = {}
        rest: Sequence[str] = wanted
        if len(wanted) > _MANY:
            found, rest = await self._stat_by_list(wanted)
        for info in await asyncio.gather(*(self._head(key) for key in rest)):
            if info is not None:
                found[info.key] = info
        return found

    async def scan(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in sorted_as_bytes(self._listed(prefix, after), prefix):
            yield info

    async def list_names(self, prefix: str) -> list[str]:
        names: set[str] = set()
        token: dict[str, Any] = {}
        start = len(self._prefix + prefix)
        while True:
            page = await self.client.call(
                "list_objects_v2", Prefix=self._prefix + prefix, Delimiter="/", **token
            )
            names.update(
                item["Prefix"][start:].rstrip("/") for item in page.get("CommonPrefixes", ())
            )
            names.update(item["Key"][start:] for item in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return sorted(names - {""})
            token = {"ContinuationToken": page["NextContinuationToken"]}

    async def delete(self, keys: Iterable[str]) -> None:
        # One by one: the request for many needs checksums that not every server agrees on.
        await asyncio.gather(
            *(self.client.call("delete_object", key=self._prefix + key) for key in keys)
        )

    async def renew(self, keys: Iterable[str]) -> set[str]:
        wanted = list(keys)
        there = await asyncio.gather(*(self._renew(key) for key in wanted))
        return {key for key, exists in zip(wanted, there, strict=True) if exists}

    async def sweep(self, older_than: float) -> int:
        return await multipart.abort_stale(self.client, self._prefix, older_than)

    async def conditional_puts_work(self) -> bool:
        """Return whether the server itself honours `if_absent`, or a stand-in has to."""
        return await self._conditional.work()

    def local_path(self, key: str) -> Path | None:
        return None

    def staging(self) -> Path | None:
        return None

    async def close(self) -> None:
        await self.client.close()

    async def _renew(self, key: str) -> bool:
        full = self._prefix + key
        size, metadata = 0, {}
        try:
            head = await self.client.call("head_object", key=full)
            size, metadata = head["ContentLength"], head.get("Metadata", {})
            # Only allowed onto itself where something changes, so metadata is given anew.
            await self.client.call(
                "copy_object",
                key=full,
                CopySource={"Bucket": self.client.bucket, "Key": full},
                MetadataDirective="REPLACE",
                Metadata=metadata,
            )
        except Refused as refused:
            if refused.missing:
                return False
            if size <= multipart.LARGEST_COPY:
                raise
            await multipart.renew(self.client, full, size, metadata)
        return True

    async def _opened(self, key: str, place: int, etag: str | None) -> dict[str, Any] | None:
        """Return the answer whose body begins at `place` or before; None when nothing is there."""
        # A range always, from 0 too: its answer tells the object's whole size, so that a body
        # that something on the way cut short, its length included, is not taken for all.
        asked: dict[str, Any] = {"Range": f"bytes={place}-"}
        if etag:
            asked["IfMatch"] = etag
        try:
            return await self.client.call("get_object", key=self._prefix + key, **asked)
        except Refused as refused:
            if refused.missing:
                raise NotFoundError(f"the store has no {key}") from None
            if refused.status == 416:
                return None
            if refused.status == 412:
                raise StoreError(f"{key} was replaced while it was read", "read it again") from None
            raise

    async def _decided(self, key: str, token: str, request: Any) -> bool:
        """Await a conditional put; False when there is an object that another put has made."""
        try:
            await request
        except Refused as refused:
            if refused.status != 412 and refused.error_code != "PreconditionFailed":
                raise
            # An earlier try whose answer was lost may be what stands there. Asked for always:
            # something on the way may have tried again too.
            return await self._token(key) == token
        return True

    async def _token(self, key: str) -> str:
        head = await self.client.call("head_object", key=self._prefix + key)
        return str(head.get("Metadata", {}).get(_TOKEN, ""))

    async def _put_in_parts(
        self, key: str, path: Path, if_absent: bool, progress: Progress | None
    ) -> bool:
        token = uuid.uuid4().hex
        upload = multipart.Multipart(
            self.client, self._prefix + key, path, {_TOKEN: token}, progress
        )
        await upload.send_parts()
        if not if_absent:
            await upload.complete()
            return True
        if await self._conditional.work():
            done = await self._decided(key, token, upload.complete(IfNoneMatch="*"))
        else:
            done = await self._conditional.put_claimed(self._prefix + key, upload.complete)
        if not done:
            await upload.abort()
        return done

    async def _head(self, key: str) -> ObjectInfo | None:
        try:
            head = await self.client.call("head_object", key=self._prefix + key)
        except Refused as refused:
            if refused.missing:
                return None
            raise
        return ObjectInfo(key, head["ContentLength"], head["LastModified"].timestamp())

    async def _stat_by_list(self, wanted: list[str]) -> tuple[dict[str, ObjectInfo], list[str]]:
        """Return what a few lists tell, and the keys that they did not reach."""
        first, last = min(wanted), max(wanted)
        prefix = os.path.commonprefix([first, last])  # noqa: RUF071 - of keys, not of paths
        unseen = set(wanted)
        found = {}
        pages = 0
        # All but the last character: sorts just before the first key.
        async for page in self._pages(prefix, safe_start(prefix, first[:-1])):
            for info in page:
                if info.key in unseen:
                    found[info.key] = info
                    unseen.remove(info.key)
            if page:
                unseen = {key for key in unseen if may_come(key, page[-1].key)}
            pages += 1
            if not unseen or pages == _MOST_PAGES:
                return found, sorted(unseen)
        return found, []

    async def _listed(self, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
        async for page in self._pages(prefix, safe_start(prefix, after)):
            for info in page:
                if info.key > after:
                    yield info

    async def _pages(self, prefix: str, after: str) -> AsyncIterator[list[ObjectInfo]]:
        asked: dict[str, Any] = {"Prefix": self._prefix + prefix}
        if after:
            asked["StartAfter"] = self._prefix + after
        while True:
            page = await self.client.call("list_objects_v2", **asked)
            yield [
                ObjectInfo(key, item["Size"], item["LastModified"].timestamp())
                for item in page.get("Contents", ())
                if not (key := item["Key"][len(self._prefix) :]).startswith(PRIVATE)
            ]
            if not page.get("IsTruncated"):
                return
            asked = {
                "Prefix": asked["Prefix"],
                "ContinuationToken": page["NextContinuationToken"],
            }


def _extent(answer: dict[str, Any], place: int) -> tuple[int, int]:
    """Return where the object ends, and how many bytes of the body come before `place`."""
    begin, end = 0, int(answer["ContentLength"])
    if given := answer.get("ContentRange"):
        # "bytes 5-9/10"
        span, _, total = given.rpartition("/")
        begin = int(span.split()[-1].split("-")[0])
        end = int(total) if total.isdigit() else begin + end
    if begin > place:
        raise StoreError("the store sent another range than was asked for")
    return end, place - begin
