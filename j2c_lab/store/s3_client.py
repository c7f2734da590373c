"""Requests to one bucket: the client, its settings, deadlines and retries.

aiobotocore is imported on first use, never when this module is: it takes most of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from j2c_lab.errors import J2CError, StoreError
from j2c_lab.store.retry import Patience, Retry
from j2c_lab.store.s3_errors import (
    Refused,
    code_and_status,
    explain,
    is_a_bug,
    is_expired,
    is_passing,
)

_T = TypeVar("_T")

#: Requests in flight at once. Small ones wait for the network, not for this machine.
_REQUESTS = 32
#: Bodies of over a MiB in memory at once: four fill a fast link, and bound the memory.
BULK = 4
#: Where the server moves the data itself, it may be silent so many times longer.
_SLOW_OPERATIONS = {"complete_multipart_upload", "copy_object", "upload_part_copy"}
_SLOW = 10


class S3Client:
    """Sends requests for one bucket, each with its own deadline, until it works or cannot.

    Parameters
    ----------
    bucket : str
        Name of the bucket.
    url : str
        The store's URL, for messages.
    patience : Patience
        How long to wait and to try.
    """

    def __init__(self, bucket: str, url: str, patience: Patience) -> None:
        self.bucket = bucket
        self.patience = patience
        self._url = url
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._stack = contextlib.AsyncExitStack()
        self._known = False
        #: Address of the server, once known.
        self.endpoint = ""

    async def call(
        self,
        operation: str,
        *,
        body: bytes | None = None,
        key: str = "",
        once: bool = False,
        **parameters: Any,
    ) -> dict[str, Any]:
        """Send one request and return botocore's answer.

        Parameters
        ----------
        operation : str
            Name of the client's method, such as `head_object`.
        body : bytes, optional
            What to send.
        key : str, optional
            The object's key in the bucket.
        once : bool
            Whether a try without an answer is the last.
        **parameters
            As botocore names them.

        Raises
        ------
        Refused
            The server answered no; its `ambiguous` says whether an earlier try got no answer.
        StoreError
            The server could not be reached, or did not answer in time.
        """
        if key:
            parameters["Key"] = key
        retry = self.retry()
        renewed = False
        while True:
            client = None
            try:
                client = await self._opened()
                async with self._slots:
                    answer = await self._try(client, operation, body, parameters)
                self._known = True
                return answer
            except Exception as error:
                if is_expired(error) and not renewed:
                    # Whoever signed in again meanwhile left new credentials in the same place.
                    renewed = True
                    await self._renew(client)
                    continue
                if once or not is_passing(error) or not await retry.failed():
                    raise self._told(error, key, retry.failures > 0) from error

    def retry(self) -> Retry:
        """Return the tries of a new request."""
        return Retry(self.patience, self._known)

    def told(self, error: Exception, key: str) -> Exception:
        """Return the error of a request as it is told to the user."""
        return self._told(error, key, False)

    async def address(self) -> str:
        """Return the server's address and the bucket: what tells one store from another."""
        await self._opened()
        return f"{self.endpoint}/{self.bucket}"

    async def bulk(self, send: Callable[[], Awaitable[_T]]) -> _T:
        """Run what holds a large body in memory: `BULK` of them at once."""
        await self._opened()
        async with self._bulk:
            return await send()

    async def close(self) -> None:
        """Close connections. The next call opens new ones."""
        stack, self._stack, self._client = self._stack, contextlib.AsyncExitStack(), None
        if self._loop is asyncio.get_running_loop():
            await stack.aclose()

    async def _try(
        self, client: Any, operation: str, body: bytes | None, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        watched = None
        if body is not None:
            watched = _WatchedBody(body)
            parameters = {**parameters, "Body": watched}
        request = getattr(client, operation)(Bucket=self.bucket, **parameters)
        stall = self.patience.stall * (_SLOW if operation in _SLOW_OPERATIONS else 1)
        answer: dict[str, Any] = await _until_stalled(request, watched, stall)
        return answer

    async def _opened(self) -> Any:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The store outlives event loops (one for each call of the synchronous API);
            # connections do not.
            self._loop = loop
            self._client = None
            self._stack = contextlib.AsyncExitStack()
            self._opening = asyncio.Lock()
            self._slots = asyncio.Semaphore(_REQUESTS)
            self._bulk = asyncio.Semaphore(BULK)
        async with self._opening:
            if self._client is None:
                try:
                    context = await asyncio.to_thread(_create_client, self.patience)
                    self._client = await self._stack.enter_async_context(context)
                except ImportError as error:
                    raise StoreError(
                        "S3 stores need a package that is not installed here",
                        "pip install 'j2c-lab[s3]'",
                    ) from error
                self.endpoint = self._client.meta.endpoint_url
                # botocore asks the server's leave (`Expect: 100-continue`) before each body, and
                # waits for it without end when a server is frozen.
                from botocore.handlers import add_expect_header

                self._client.meta.events.unregister("before-call.s3", add_expect_header)
            return self._client

    async def _renew(self, used: Any) -> None:
        async with self._opening:
            if self._client is used:
                # Other tasks may still wait on the old client: `close` ends both.
                self._client = None

    def _told(self, error: Exception, key: str, ambiguous: bool) -> Exception:
        if isinstance(error, J2CError) or is_a_bug(error):
            return error
        told = explain(error, self._url, self.endpoint, key)
        code, status = code_and_status(error)
        if not status:
            return told
        refused = Refused(told, code, status)
        refused.ambiguous = ambiguous
        return refused


_loaders: dict[str, Any] = {}


def _create_client(patience: Patience) -> Any:
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    session = get_session()
    # It remembers the service's description, whose parsing is most of a client's making.
    session.register_component(
        "data_loader", _loaders.setdefault("one", session.get_component("data_loader"))
    )
    custom = _has_own_endpoint(session)
    s3 = dict(session.get_config_variable("s3") or {})
    if custom and s3.get("addressing_style", "auto") == "auto":
        # `bucket.host` needs a wildcard in DNS and certificate that few private servers have.
        s3["addressing_style"] = "path"
    config = AioConfig(
        http_session_cls=_session_class(),
        s3=s3,
        signature_version="s3v4",
        connect_timeout=min(10.0, patience.stall),
        # Ours are the deadlines: for a whole answer, and for each piece of a body.
        read_timeout=patience.stall * _SLOW,
        max_pool_connections=_REQUESTS,
        # One layer of retries only: the one that knows deadlines and bodies.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Checksum headers and trailers that newer clients add by themselves break many servers
        # (boto3#4398, #4401, #4409, #4435). Content is proved by its digest at unpack.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    region = session.get_config_variable("region") or ("us-east-1" if custom else None)
    return session.create_client("s3", region_name=region, config=config)


@functools.lru_cache(maxsize=1)
def _session_class() -> type[Any]:
    """aiobotocore's HTTP session, of which a request is one request.

    aiohttp sends a PUT again by itself when a connection that it had kept is reset. A put that must
    be tried once would be sent twice unseen, and one of them could arrive late.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    class Session(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: Any) -> Any:
            session = await super()._get_session(proxy_url)
            session._retry_connection = False
            return session

    return Session


def _has_own_endpoint(session: Any) -> bool:
    from botocore.configprovider import ConfiguredEndpointProvider

    provider = ConfiguredEndpointProvider(
        full_config=session.full_config,
        scoped_config=session.get_scoped_config(),
        client_name="s3",
    )
    return bool(provider.provide())


class _WatchedBody(io.BytesIO):
    """A body that shows how far it was sent."""

    moves = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.moves += 1
        return super().read(size)


async def _until_stalled(request: Awaitable[_T], body: _WatchedBody | None, stall: float) -> _T:
    """Await a request; raise TimeoutError when nothing was sent or answered for `stall` seconds.

    A deadline for the whole would be too short for a slow link, or too long for a frozen server.
    """
    task = asyncio.ensure_future(request)
    try:
        moves = -1
        while True:
            done, _ = await asyncio.wait({task}, timeout=stall)
            if done:
                return task.result()
            if body is None or body.moves == moves:
                raise TimeoutError("the server does not move")
            moves = body.moves
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
