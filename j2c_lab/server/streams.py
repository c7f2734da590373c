"""The websockets: changes of the list of runs, and one run's log and events. See docs/rest.md."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.utils import ensure_async
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from j2c_lab.errors import J2CError, NotFoundError
from j2c_lab.server.documents import dump
from j2c_lab.server.follow import RunFollower
from j2c_lab.server.handlers import AUTH_RESOURCE, RUN
from j2c_lab.server.service import Service

#: Everything was sent.
ENDED = 1000
NOT_FOUND = 4404
#: The server could not go on; connecting again is right.
TRY_AGAIN = 1013

#: Seconds of silence after which something is said: proxies cut silent connections.
_HEARTBEAT = 15.0


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """A websocket that only speaks; what it says is pulled as fast as the reader takes it."""

    auth_resource = AUTH_RESOURCE

    def initialize(self, service: Service) -> None:
        """Take the service from the route."""
        self.service = service
        self._task: asyncio.Task[None] | None = None

    def set_default_headers(self) -> None:
        """Not for websockets: the upgrade's headers are tornado's own."""

    def get_compression_options(self) -> dict[str, Any] | None:
        """Logs shrink to a fifth; level 1 costs little."""
        return {"compression_level": 1, "mem_level": 5}

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Let in who may read."""
        allowed = await ensure_async(
            self.authorizer.is_authorized(self, self.current_user, "read", self.auth_resource)
        )
        if not allowed:
            raise web.HTTPError(403)
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Begin to speak."""
        super().open(*args, **kwargs)
        self._task = asyncio.ensure_future(self._speak(**kwargs))

    def on_message(self, message: Any) -> None:
        """Nothing is asked for here."""

    def on_close(self) -> None:
        """Stop when the reader is gone."""
        if self._task is not None:
            self._task.cancel()
        super().on_close()

    async def _speak(self, **kwargs: Any) -> None:
        try:
            await self.speak(**kwargs)
        except NotFoundError as error:
            self.close(NOT_FOUND, error.message[:100])
        except (WebSocketClosedError, asyncio.CancelledError):
            pass
        except J2CError as error:
            self.close(TRY_AGAIN, error.message[:100])
        except Exception:
            self.log.exception("j2c: a stream ended by a fault")
            self.close(TRY_AGAIN, "a fault of the server")

    async def speak(self, **kwargs: Any) -> None:
        """Say everything that there is to say."""
        raise NotImplementedError


class RunStream(StreamHandler):
    """`/j2c/runs/<id>/stream`"""

    async def speak(self, **kwargs: Any) -> None:
        """Send log and events until the run has ended."""
        service = self.service
        follower = RunFollower(
            service.ledger,
            service.index,
            kwargs["run_id"],
            attempt=self._number("attempt") or None,
            rank=self._number("rank") or 0,
            after=self._number("after") or 0,
            tail=self._number("tail"),
        )
        while frames := await service.engine.call(follower.next()):
            for frame in frames:
                await self.write_message(frame, binary=isinstance(frame, bytes))
        self.close(ENDED, "ended")

    def _number(self, name: str) -> int | None:
        text = self.get_query_argument(name, "")
        return int(text) if re.fullmatch(r"\d{1,15}", text) else None


class ListStream(StreamHandler):
    """`/j2c/stream`"""

    async def speak(self, **kwargs: Any) -> None:
        """Send changes of runs for as long as somebody listens."""
        service = self.service
        loop = asyncio.get_running_loop()
        # Of a run that changed many times while the reader was slow, the last state is enough.
        waiting: dict[str, dict[str, Any]] = {}
        news = asyncio.Event()

        def take(message: dict[str, Any]) -> None:
            run = message.get("run") or message
            waiting[run.get("id", message["type"])] = message
            news.set()

        def listener(message: dict[str, Any]) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(take, message)

        async def listen() -> Any:
            return service.index.listen(listener)

        await self.write_message(dump({"type": "hello"}))
        stop = await service.engine.call(listen())
        try:
            while True:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(news.wait(), _HEARTBEAT)
                news.clear()
                messages = list(waiting.values()) or [{"type": "ping"}]
                waiting.clear()
                for message in messages:
                    await self.write_message(dump(message))
        finally:
            service.engine.loop.call_soon_threadsafe(stop)


streams: list[tuple[str, type[StreamHandler]]] = [
    (r"stream", ListStream),
    (rf"runs/{RUN}/stream", RunStream),
]
