"""A proxy between an S3 client and a real server that breaks what it is told to break.

It runs in a thread with a loop of its own, speaks HTTP/1.1 well enough for S3, and asks a schedule,
a plain function, what to do with each request. It counts what passes.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

_PIECE = 1 << 16


class Request(NamedTuple):
    """A request as the schedule sees it."""

    #: How many this is on this proxy, from 1.
    number: int
    method: str
    path: str
    query: dict[str, list[str]]
    #: Bytes of the body.
    length: int

    @property
    def operation(self) -> str:
        """`put`, `part`, `create`, `complete`, `abort`, `get`, `list`, `uploads`, `parts`, …"""
        query = self.query
        if "partNumber" in query and self.method == "PUT":
            return "part"
        if "uploads" in query:
            return "create" if self.method == "POST" else "uploads"
        if "uploadId" in query:
            return {"POST": "complete", "GET": "parts", "DELETE": "abort"}[self.method]
        if self.method == "GET" and ("list-type" in query or "prefix" in query):
            return "list"
        return self.method.lower()


class Fault(NamedTuple):
    """What happens to a request.

    `reset`: the connection is reset at once. `reset-body`: in the middle of the request's body.
    `lose-answer`: the server does it, its answer is lost. `answer`: an error answer, the server
    never hears of it. `answer-after`: the server does it, and an error answer is given. `cut`: the
    connection is reset in the middle of the answer's body. `shorten`: the answer's body is
    shortened and its length says so. `stall`: nothing moves for `seconds`, then all goes on.
    `late`: the connection is reset, and the server gets the request `seconds` later.
    """

    kind: str
    status: int = 500
    code: str = "InternalError"
    seconds: float = 0.0


Schedule = Callable[[Request], "Fault | None"]


class FaultProxy:
    """See the module. Use as a context manager.

    Parameters
    ----------
    endpoint : str
        The real server's address.
    schedule : callable, optional
        Called with each `Request`, in the proxy's thread; returns a `Fault` or None.
    delay : float
        Seconds that each way takes.
    """

    def __init__(self, endpoint: str, schedule: Schedule | None = None, delay: float = 0.0) -> None:
        parts = urlsplit(endpoint)
        self._upstream = (parts.hostname or "", parts.port or 80)
        self.schedule = schedule
        self.delay = delay
        #: Requests by operation, faulty ones included.
        self.requests: collections.Counter[str] = collections.Counter()
        #: Bytes of request bodies that reached the server, by operation.
        self.sent: collections.Counter[str] = collections.Counter()
        #: Faults by kind.
        self.faults: collections.Counter[str] = collections.Counter()
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._late: set[asyncio.Future[None]] = set()
        self._number = 0
        self._listening: asyncio.Server | None = None
        self._port = 0

    def __enter__(self) -> FaultProxy:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *exc: object) -> None:
        self.refuse()
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def endpoint(self) -> str:
        """The address to give to the client."""
        return f"http://127.0.0.1:{self._port}"

    def refuse(self) -> None:
        """From now on refuse connections, and cut those there are."""
        self._run(self._close())

    def accept(self) -> None:
        """Take connections again, at the same address."""
        self._run(self._listen())

    def _run(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, limit=1 << 20
        )
        self._port = self._listening.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for writer in list(self._writers):
            _reset(writer)

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._writers.add(writer)
        try:
            while head := await _head(reader):
                if up is None:
                    up = await asyncio.open_connection(*self._upstream, limit=1 << 20)
                    self._writers.add(up[1])
                if not await self._exchange(head, reader, writer, *up):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, up[1] if up else writer):
                self._writers.discard(each)
                _reset(each)

    async def _exchange(
        self,
        head: list[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> bool:
        """Pass one request and its answer; return whether the connection goes on."""
        request = self._noted(head)
        fault = self.schedule(request) if self.schedule else None
        kind = fault.kind if fault else ""
        self.faults.update([kind] if kind else [])
        if fault and kind == "stall":
            await asyncio.sleep(fault.seconds)
        if kind == "reset":
            return False
        if fault and kind == "answer":
            await _pass(reader, None, request.length)
            await _answer_error(writer, fault, request.method)
            return True
        if fault and kind == "late":
            body = await reader.readexactly(request.length)
            self._late.add(asyncio.ensure_future(self._deliver(head, body, fault.seconds)))
            return False
        await asyncio.sleep(self.delay)
        head = [line for line in head if not line.lower().startswith(b"expect:")]
        up_writer.write(b"".join(head))
        if kind == "reset-body" and request.length:
            await _pass(reader, up_writer, request.length // 2)
            return False
        await _pass(reader, up_writer, request.length)
        self.sent[request.operation] += request.length
        answer = await _head(up_reader)
        if kind in ("lose-answer", "reset-body") or not answer:
            await _whole_body(up_reader, None, answer, request.method)
            return False
        if fault and kind == "answer-after":
            await _whole_body(up_reader, None, answer, request.method)
            await _answer_error(writer, fault, request.method)
            return True
        await asyncio.sleep(self.delay)
        return await self._pass_answer(kind, answer, up_reader, writer, request.method)

    async def _deliver(self, head: list[bytes], body: bytes, seconds: float) -> None:
        await asyncio.sleep(seconds)
        reader, writer = await asyncio.open_connection(*self._upstream, limit=1 << 20)
        writer.write(b"".join(head) + body)
        await _head(reader)
        _reset(writer)

    async def _pass_answer(
        self,
        kind: str,
        answer: list[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
    ) -> bool:
        length = _length(answer)
        if kind in ("cut", "shorten") and method == "GET" and length:
            if kind == "shorten":
                answer = [
                    b"Content-Length: %d\r\n" % (length // 2)
                    if line.lower().startswith(b"content-length:")
                    else line
                    for line in answer
                ]
            writer.write(b"".join(answer))
            await _pass(reader, writer, length // 2)
            await asyncio.sleep(0.02)
            return False
        writer.write(b"".join(answer))
        await _whole_body(reader, writer, answer, method)
        await writer.drain()
        return True

    def _noted(self, head: list[bytes]) -> Request:
        method, target, _ = head[0].decode().split(" ", 2)
        parts = urlsplit(target)
        self._number += 1
        request = Request(
            self._number,
            method,
            parts.path,
            parse_qs(parts.query, keep_blank_values=True),
            _length(head) or 0,
        )
        self.requests[request.operation] += 1
        return request


async def _head(reader: asyncio.StreamReader) -> list[bytes]:
    """Return the lines of a head, the empty one included; nothing at the end of the connection."""
    lines: list[bytes] = []
    while line := await reader.readline():
        lines.append(line)
        if line == b"\r\n":
            if len(lines) > 1 and lines[0].startswith(b"HTTP/1.1 100"):
                lines.clear()
                continue
            return lines
    return []


def _length(head: list[bytes]) -> int | None:
    for line in head:
        if line.lower().startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return None


async def _whole_body(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter | None,
    head: list[bytes],
    method: str,
) -> None:
    """Pass the body of an answer, or drop it."""
    status = int(head[0].split()[1]) if head else 204
    if method == "HEAD" or status in (204, 304):
        return
    if any(line.lower().startswith(b"transfer-encoding:") for line in head):
        while True:
            size = await reader.readline()
            if writer:
                writer.write(size)
            await _pass(reader, writer, int(size.split(b";")[0], 16) + 2)
            if int(size.split(b";")[0], 16) == 0:
                return
    await _pass(reader, writer, _length(head) or 0)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None, length: int
) -> None:
    while length:
        piece = await reader.read(min(length, _PIECE))
        if not piece:
            raise ConnectionResetError
        length -= len(piece)
        if writer:
            writer.write(piece)
            await writer.drain()


async def _answer_error(writer: asyncio.StreamWriter, fault: Fault, method: str) -> None:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{fault.code}</Code>'
        f"<Message>made by the fault proxy</Message></Error>"
    ).encode()
    head = (
        f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: application/xml\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    writer.write(head + (b"" if method == "HEAD" else body))
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a crash does: with RST."""
    with contextlib.suppress(OSError, AttributeError):
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
