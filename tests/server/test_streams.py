"""The websockets, as a program reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tornado", reason="needs the extra test-lab")

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.lab_tools import TOKEN, LabServer
from tests.server.tools import run_async

CHATTY = """
import sys, time
for i in range({lines}):
    sys.stdout.write(f"line {{i}}\\r" * 3 + "é€\\n"); sys.stdout.flush()
    if i % {every} == 0: time.sleep(0.01)
print('::j2c-metrics {{"step": 1, "loss": 0.5}}')
sys.stdout.buffer.write(b"\\xff\\x00 end without newline")
"""


def whole(lines: int) -> bytes:
    text = "".join(f"line {i}\r" * 3 + "é€\n" for i in range(lines))
    metrics = '::j2c-metrics {"step": 1, "loss": 0.5}\n'
    return (text + metrics).encode() + b"\xff\x00 end without newline"


class Reader:
    """What one connection has received."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.data = b""
        #: Bytes had when the attempt began, and where in its log the stream began.
        self.before = self.start = 0
        self.after = 0
        self.attempt: int | None = None
        self.code: int | None = None

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["type"] == kind]

    async def read(
        self, lab: LabServer, path: str, until: Callable[[Reader], bool] = lambda reader: False
    ) -> Reader:
        head: dict[str, Any] = {}
        async with connect(lab, path) as connection:
            while (frame := await connection.read_message()) is not None:
                if isinstance(frame, bytes):
                    assert len(frame) == head["len"] <= 1 << 20
                    assert head["at"] == self.start + len(self.data) - self.before
                    self.data += frame
                else:
                    head = json.loads(frame)
                    self.messages.append(head)
                    if head["type"] == "hello" and head["attempt"] != self.attempt:
                        self.before, self.start = len(self.data), head["start"]
                    self.attempt = head.get("attempt", self.attempt)
                if head["type"] != "log" or isinstance(frame, bytes):
                    self.after = head.get("n", self.after)
                    if until(self):
                        return self
            self.code = connection.close_code
        return self


@contextlib.asynccontextmanager
async def connect(lab: LabServer, path: str) -> AsyncIterator[WebSocketClientConnection]:
    url = f"ws://127.0.0.1:{lab.port}/{path}"
    headers = {"Authorization": f"token {TOKEN}"}
    connection = await websocket_connect(
        HTTPRequest(url, headers=headers), max_message_size=1 << 24
    )
    try:
        yield connection
    finally:
        # A real cut: the socket is gone, no word said.
        if connection.protocol is not None:
            connection.protocol.stream.close()
        connection.close()
        await asyncio.sleep(0)


def test_a_stream_gives_every_byte_in_order_and_says_that_it_ended(lab: LabServer) -> None:
    run_id = lab.submit(lab.script(CHATTY.format(lines=300, every=10), "chatty.py"))
    reader = run_async(Reader().read(lab, f"j2c/runs/{run_id}/stream"))
    assert reader.data == whole(300)
    assert reader.code == 1000
    assert [(m["step"], m["values"]) for m in reader.of("metrics")] == [(1, {"loss": 0.5})]
    assert reader.messages[-1]["type"] == "end"
    assert reader.messages[-1]["size"] == len(whole(300))
    assert [m["run"]["state"] for m in reader.of("run")][-1] == "succeeded"
    numbers = [m["n"] for m in reader.messages if "n" in m]
    assert numbers == sorted(numbers)


def test_a_connection_cut_again_and_again_loses_and_doubles_nothing(lab: LabServer) -> None:
    run_id = lab.submit(lab.script(CHATTY.format(lines=400, every=4), "cut.py"))
    reader = Reader()
    cuts = 0
    while reader.code is None:
        path = f"j2c/runs/{run_id}/stream?after={reader.after}&attempt={reader.attempt or ''}"
        had = len(reader.data)
        run_async(reader.read(lab, path, lambda r, had=had: len(r.data) > had + 500))
        cuts += 1
    assert reader.data == whole(400)
    assert cuts > 5


def test_a_stream_can_begin_near_the_end(lab: LabServer) -> None:
    run_id = lab.submit(lab.script(CHATTY.format(lines=200, every=1000), "tail.py"))
    lab.wait(run_id)
    reader = run_async(Reader().read(lab, f"j2c/runs/{run_id}/stream?tail=100"))
    assert reader.data == whole(200)[-100:]
    (hello,) = reader.of("hello")
    assert (hello["start"], hello["size"]) == (len(whole(200)) - 100, len(whole(200)))


def test_two_attempts_follow_each_other_in_one_stream(lab: LabServer) -> None:
    script = (
        "import os; n = os.environ['J2C_ATTEMPT']; print('attempt', n); raise SystemExit(n < '2')"
    )
    run_id = lab.submit(lab.script(script, "twice.py"))
    lab.wait(run_id)
    lab.call("POST", f"j2c/runs/{run_id}/resume")
    reader = Reader()
    first = run_async(Reader().read(lab, f"j2c/runs/{run_id}/stream?attempt=1"))
    assert [m["attempt"] for m in first.of("hello")] == [1, 2]
    assert first.data == b"attempt 1\nattempt 2\n"
    run_async(reader.read(lab, f"j2c/runs/{run_id}/stream"))
    assert reader.data in (b"attempt 2\n", b"attempt 1\nattempt 2\n")


def test_a_run_that_is_not_there_closes_with_its_own_code(lab: LabServer) -> None:
    reader = run_async(Reader().read(lab, "j2c/runs/20260101-000000-aaaaaa/stream"))
    assert (reader.code, reader.data) == (4404, b"")


def test_a_reader_that_does_not_read_gets_all_of_it_late_and_stalls_nobody(lab: LabServer) -> None:
    script = "import sys\nfor i in range(600): sys.stdout.write(f'{i:07d}' + 'z' * 65529)"
    run_id = lab.submit(lab.script(script, "flood.py"))

    async def slow() -> int:
        size = 0
        async with connect(lab, f"j2c/runs/{run_id}/stream") as stalled:
            await stalled.read_message()
            other = await Reader().read(lab, f"j2c/runs/{run_id}/stream")
            while (frame := await stalled.read_message()) is not None:
                size += len(frame) if isinstance(frame, bytes) else 0
        assert len(other.data) == 600 * 65536
        return size

    assert run_async(slow(), 120) == 600 * 65536
    assert lab.wait(run_id)["state"] == "succeeded"


def test_the_list_stream_tells_of_every_state_to_the_end_and_of_deletion(lab: LabServer) -> None:
    entry = lab.script("print('listed')", "listed.py")

    async def listen() -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        async with connect(lab, "j2c/stream") as connection:
            assert json.loads(await connection.read_message())["type"] == "hello"
            run_id = await asyncio.to_thread(lab.submit, entry)
            while True:
                message = json.loads(await connection.read_message())
                if message["type"] == "run" and message["run"]["id"] == run_id:
                    seen.append(("run", message["run"]["state"]))
                    if message["run"]["state"] == "succeeded":
                        await asyncio.to_thread(lab.call, "DELETE", f"j2c/runs/{run_id}")
                elif message == {"type": "deleted", "id": run_id}:
                    return seen

    seen = run_async(listen())
    assert seen[-1] == ("run", "succeeded")
    assert len(seen) >= 2


def test_a_log_is_followed_through_a_killed_server(tmp_path: Path) -> None:
    server = LabServer(tmp_path).start()
    try:
        run_id = server.submit(server.script(CHATTY.format(lines=150, every=1), "train.py"))
        reader = run_async(
            Reader().read(server, f"j2c/runs/{run_id}/stream", lambda r: len(r.data) > 300)
        )
        server.stop(signal.SIGKILL)
        server.start()
        path = f"j2c/runs/{run_id}/stream?after={reader.after}&attempt={reader.attempt}"
        run_async(reader.read(server, path))
        assert reader.data == whole(150)
        assert server.get(f"j2c/runs/{run_id}")["state"] == "succeeded"
    finally:
        server.stop()
