"""Puts that happen once, also on servers that ignore `If-None-Match`.

Such servers (rclone's, nanio, older gateways) answer 200 and overwrite. Whether a server honours
the condition is tried on an object of its own before it is relied on. Where it does not, a claim
stands in: a caller writes a claim of its own name, and goes on only if it then sees no other claim
and no object; it removes its claim after the object is written. Of two callers, each has written
its claim before it looks, so at least one of them sees the other: never do both go on. When both
see each other both withdraw, and try again after a random pause.

A caller that died between claim and object bars the way for `_STALE` seconds. That is longer than
the quarter of an hour for which a signed request is accepted, so that a write of the dead one which
is still under way somewhere can no longer arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

from j2c_lab.errors import StoreError
from j2c_lab.store.s3_client import S3Client
from j2c_lab.store.s3_errors import Refused

#: Where this module keeps its objects, under the store's prefix.
PRIVATE = ".j2c/"
_STALE = 20 * 60
_ROUNDS = 12
#: Seconds for which another process need not ask again.
_REMEMBERED = 24 * 3600.0


class _Memory:
    """That a server honoured the condition lately, as a file of this user; no is not remembered."""

    def __init__(self, address: str) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = hashlib.sha256(address.encode()).hexdigest()[:32]
        self._path = Path(cache) / "j2c" / "conditional-puts" / name

    def said_yes(self) -> bool:
        try:
            return abs(time.time() - self._path.stat().st_mtime) < _REMEMBERED
        except OSError:
            return False

    def say_yes(self) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()


class ConditionalPuts:
    """Knows whether this server's conditional puts work, and what to do when they do not.

    Parameters
    ----------
    client : S3Client
        Sends the requests.
    prefix : str
        The store's prefix in the bucket.
    """

    def __init__(self, client: S3Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._work: bool | None = None
        self._trying: asyncio.Lock | None = None
        #: Claims of puts whose end is not known: the same caller may go on with them.
        self._held: dict[str, str] = {}

    async def work(self) -> bool:
        """Return whether this server honours `If-None-Match: *`; asks it once a day."""
        if self._work is None:
            memory = _Memory(f"{await self._client.address()}/{self._prefix}")
            # The object is there after the first try ever, so this is one request.
            self._work = memory.said_yes() or await self._refused() or await self._refused()
            if self._work:
                memory.say_yes()
        return self._work

    async def put_claimed(self, key: str, put: Callable[[], Awaitable[bool]]) -> bool:
        """Run `put` if there is no object; of many callers at once, for one only.

        Parameters
        ----------
        key : str
            The object's key in the bucket.
        put : callable
            Writes the object, unconditionally.

        Raises
        ------
        StoreError
            Another caller began and did not end.
        """
        for tried in range(_ROUNDS):
            if await self._exists(key):
                return False
            claim = self._held.pop(key, "") or uuid.uuid4().hex
            try:
                done = await self._try(key, claim, put)
            except BaseException:
                # The object may yet appear: the claim stays and keeps all others out.
                self._held[key] = claim
                raise
            await self._client.call("delete_object", key=self._claim(key, claim))
            if done is not None:
                return done
            await asyncio.sleep(random.uniform(0, 0.1 * 2 ** min(tried, 6)))  # noqa: S311
        raise StoreError(
            f"another j2c began to write {key} and has not finished",
            f"wait until it is done; if it was killed, repeat in {_STALE // 60} minutes",
        )

    async def _try(self, key: str, claim: str, put: Callable[[], Awaitable[bool]]) -> bool | None:
        """Return whether this caller wrote the object, or None when nobody may have."""
        begun = time.time()
        await self._client.call("put_object", key=self._claim(key, claim), body=b"")
        # A machine that slept in between may have been taken for dead.
        if not await self._alone(key, claim) or time.time() - begun > _STALE / 2:
            return None
        # Looked at again: who was alone before removed the claim only after writing the object.
        if await self._exists(key):
            return False
        return await put()

    async def _refused(self) -> bool:
        try:
            await self._client.call(
                "put_object", key=f"{self._prefix}{PRIVATE}probe", body=b"", IfNoneMatch="*"
            )
        except Refused as refused:
            if refused.status == 412:
                return True
            if refused.status in (400, 501):
                return False
            raise
        return False

    async def _exists(self, key: str) -> bool:
        try:
            await self._client.call("head_object", key=key)
        except Refused as refused:
            if refused.missing:
                return False
            raise
        return True

    async def _alone(self, key: str, claim: str) -> bool:
        """Return whether only this claim stands; removes those of the dead."""
        prefix = self._claim(key, "")
        answer = await self._client.call("list_objects_v2", Prefix=prefix)
        claims = {item["Key"]: item["LastModified"] for item in answer.get("Contents", ())}
        # Ages are told by the server's clock alone. Without its own claim nobody is alone.
        mine = claims.pop(prefix + claim, None)
        if mine is None:
            return False
        alone = True
        for name, written in claims.items():
            if (mine - written).total_seconds() > _STALE:
                await self._client.call("delete_object", key=name)
            else:
                alone = False
        return alone

    def _claim(self, key: str, claim: str) -> str:
        return f"{self._prefix}{PRIVATE}claims/{key[len(self._prefix) :]}/{claim}"
