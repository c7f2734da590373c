"""The REST: each handler parses, asks the service, answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import quote

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web
from tornado.iostream import StreamClosedError

from j2c_lab.errors import J2CError, NotFoundError, UsageError
from j2c_lab.server.documents import dump
from j2c_lab.server.service import Service

AUTH_RESOURCE = "j2c"

RUN = r"(?P<run_id>\d{8}-\d{6}-[0-9a-f]{6})"

#: HTTP status of each kind of error; what is not here is 400.
_STATUS = {
    "not-found": 404,
    "conflict": 409,
    "cancelled": 409,
    "store": 503,
    "scheduler": 503,
    "error": 500,
}
_LARGEST_BODY = 1 << 20
_KEY = re.compile(r"[\x21-\x7e]{1,200}")

Verb = Callable[..., Awaitable[None]]


def endpoint(verb: Verb) -> Verb:
    """Mark a verb that needs a signed-in user who may do that."""
    return web.authenticated(authorized(verb))  # type: ignore


class J2CHandler(APIHandler):
    """What all handlers share: the service, and one shape for everything that goes wrong."""

    auth_resource = AUTH_RESOURCE

    def initialize(self, service: Service) -> None:
        """Take the service from the route."""
        self.service = service
        self.request_id = uuid.uuid4().hex

    def reply(self, value: Any, status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(dump(value))

    def body(self) -> Any:
        """Return the JSON that was sent; an empty body is an empty object.

        Raises
        ------
        UsageError
            It is not JSON.
        """
        if not self.request.body:
            return {}
        if len(self.request.body) > _LARGEST_BODY:
            raise UsageError("the request is too large")
        try:
            return json.loads(self.request.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise UsageError("the body is not JSON") from None

    def number(self, name: str, default: int | None, least: int, most: int) -> int | None:
        """Return a whole number from the query."""
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,16}", text) or not least <= int(text) <= most:
            raise UsageError(f"{name} is no number from {least} to {most}")
        return int(text)

    def audit(self, action: str, run_id: str) -> None:
        """Write down who did what."""
        self.log.info(
            "j2c audit: %s run=%s user=%s ip=%s request=%s",
            action,
            run_id,
            getattr(self.current_user, "username", self.current_user),
            self.request.remote_ip,
            self.request_id,
        )

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        """Our own errors are answers, not faults of the server."""
        if not isinstance(value, J2CError):
            super().log_exception(kind, value, traceback)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with the one shape of errors."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        code, message, remedy, details = "http", "", "", []
        if isinstance(error, J2CError):
            code, message, remedy = error.code, error.message, error.remedy
            details = error.details
            self.set_status(_STATUS.get(code, 400))
        elif isinstance(error, web.HTTPError):
            code = {403: "forbidden", 404: "not-found", 405: "method"}.get(status_code, "http")
            message = (error.log_message or "").replace("%%", "%")
        if status_code == 405:
            self.set_header("Allow", ", ".join(self._implemented()))
        self.reply_error(code, message or self._reason, remedy, details)

    def reply_error(self, code: str, message: str, remedy: str, details: list[str]) -> None:
        """Finish with an error's document; the status is set already."""
        self.set_header("Content-Type", "application/json")
        document = {"code": code, "message": message, "request_id": self.request_id}
        if remedy:
            document["remedy"] = remedy
        self.finish(dump({**document, **({"details": details} if details else {})}))

    def _implemented(self) -> list[str]:
        refused = web.RequestHandler._unimplemented_method
        return [
            method
            for method in self.SUPPORTED_METHODS
            if getattr(type(self), method.lower(), refused) is not refused
        ]


class Runs(J2CHandler):
    @endpoint
    async def get(self) -> None:
        """List runs, newest first."""
        cursor = self.get_query_argument("cursor", None)
        if cursor is not None and not re.fullmatch(RUN, cursor):
            raise UsageError("cursor is not one that was answered")
        group = self.get_query_argument("group", "")
        if group not in ("", "active", "succeeded", "failed"):
            raise UsageError("group is not active, succeeded or failed")
        limit = self.number("limit", 100, 1, 1000)
        text = self.get_query_argument("text", "")[:1000]
        assert limit is not None
        self.reply(await self.service.page(limit, cursor, text, group))

    @endpoint
    async def post(self) -> None:
        """Start a run."""
        key = self.request.headers.get("Idempotency-Key")
        if key is not None and not _KEY.fullmatch(key):
            raise UsageError("Idempotency-Key is not up to 200 visible ASCII characters")
        shown = await self.service.submit(self.body(), key)
        self.audit("submit", shown["id"])
        self.set_header("Location", f"{self.base_url}j2c/runs/{shown['id']}")
        self.reply(shown, 202)


class OneRun(J2CHandler):
    @endpoint
    async def get(self, run_id: str) -> None:
        """Return a run, and the request that submits it again."""
        self.reply(await self.service.run_with_request(run_id))

    @endpoint
    async def delete(self, run_id: str) -> None:
        """Delete a run that is over."""
        await self.service.delete(run_id)
        self.audit("delete", run_id)
        self.set_status(204)
        self.finish()


class Cancel(J2CHandler):
    @endpoint
    async def post(self, run_id: str) -> None:
        """Ask for the end of a run."""
        shown = await self.service.cancel(run_id)
        self.audit("cancel", run_id)
        self.reply(shown, 202)


class Resume(J2CHandler):
    @endpoint
    async def post(self, run_id: str) -> None:
        """Go on with a run."""
        shown = await self.service.resume(run_id)
        self.audit("resume", run_id)
        self.reply(shown, 202)


class Preview(J2CHandler):
    @endpoint
    async def post(self) -> None:
        """Say what a request would send; nothing is written."""
        self._task = asyncio.ensure_future(self.service.preview(self.body()))
        try:
            self.reply(await self._task)
        except asyncio.CancelledError:
            # The client is gone: nobody reads the answer.
            raise web.Finish() from None

    def on_connection_close(self) -> None:
        """Stop looking when nobody waits for it."""
        if hasattr(self, "_task"):
            self._task.cancel()
        super().on_connection_close()


class Files(J2CHandler):
    @endpoint
    async def get(self, run_id: str) -> None:
        """List the files that a run has saved."""
        self.reply({"files": await self.service.files(run_id)})


class OneFile(J2CHandler):
    @endpoint
    async def get(self, run_id: str, path: str) -> None:
        """Download one file that a run has saved."""
        from j2c_lab.store import layout

        for file in await self.service.files(run_id):
            if file["path"] == path:
                ledger = self.service.ledger
                key = layout.output(ledger.user, run_id, file["sha256"])
                name = path.rsplit("/", 1)[-1]
                self.set_header("Content-Length", str(file["size"]))
                await send(self, ledger.store.read(key), name)
                return
        raise NotFoundError(f"the run has saved no file {path!r}")


class Fetch(J2CHandler):
    @endpoint
    async def post(self, run_id: str) -> None:
        """Bring what a run has saved into its project."""
        self.reply(await self.service.fetch(run_id))


class Log(J2CHandler):
    @endpoint
    async def get(self, run_id: str) -> None:
        """Return a part of a log, or all of it as a download."""
        start = self.number("start", 0, 0, 1 << 50)
        end = self.number("end", 1 << 50, 0, 1 << 50)
        attempt = self.number("attempt", None, 1, 10_000)
        rank = self.number("rank", 0, 0, 100_000)
        assert start is not None and end is not None and rank is not None
        reader = await self.service.log_reader(run_id, attempt, rank)
        name = f"{run_id}.log" if self.get_query_argument("download", "") else ""
        await send(self, reader.read(start, end), name)


class Metrics(J2CHandler):
    @endpoint
    async def get(self, run_id: str) -> None:
        """Return the numbers that a run has reported."""
        attempt = self.number("attempt", None, 1, 10_000)
        rank = self.number("rank", 0, 0, 100_000)
        assert rank is not None
        reader = await self.service.log_reader(run_id, attempt, rank)
        self.reply({"metrics": await self.service.engine.call(reader.metrics())})


class Schedulers(J2CHandler):
    @endpoint
    async def get(self) -> None:
        """List the schedulers that may be used, and their queues."""
        self.reply({"schedulers": self.service.schedulers()})


class Config(J2CHandler):
    @endpoint
    async def get(self) -> None:
        """Return what the form needs to know."""
        self.reply(await self.service.form_config())


class OpenApi(J2CHandler):
    @endpoint
    async def get(self) -> None:
        """Return this API's description."""
        self.finish(_description(), set_content_type="application/yaml")


class Unknown(J2CHandler):
    """Everything else under `/j2c/`: an answer in JSON, not a page."""

    @endpoint
    async def get(self) -> None:
        """Nothing is there."""
        raise NotFoundError("there is nothing at this address", "openapi.yaml lists what there is")

    head = post = put = patch = delete = get


async def send(handler: J2CHandler, pieces: Any, name: str) -> None:
    """Answer with bytes as they come from the store, no faster than they are taken."""
    handler.set_header("Content-Type", "application/octet-stream")
    handler.set_header("X-Content-Type-Options", "nosniff")
    if name:
        handler.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{quote(name)}")
    call = handler.service.engine.call
    pieces = aiter(pieces)
    with contextlib.suppress(StreamClosedError):
        while piece := await call(_next(pieces)):
            handler.write(piece)
            await handler.flush()
        handler.finish(set_content_type="application/octet-stream")


async def _next(pieces: Any) -> bytes:
    return await anext(pieces, b"")  # type: ignore[no-any-return]


@functools.cache
def _description() -> str:
    return (resources.files("j2c_lab.server") / "openapi.yaml").read_text(encoding="utf-8")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


handlers: list[tuple[str, type[J2CHandler]]] = [
    (r"runs", Runs),
    (rf"runs/{RUN}", OneRun),
    (rf"runs/{RUN}/cancel", Cancel),
    (rf"runs/{RUN}/resume", Resume),
    (rf"runs/{RUN}/files", Files),
    (rf"runs/{RUN}/files/(?P<path>.+)", OneFile),
    (rf"runs/{RUN}/fetch", Fetch),
    (rf"runs/{RUN}/log", Log),
    (rf"runs/{RUN}/metrics", Metrics),
    (r"preview", Preview),
    (r"schedulers", Schedulers),
    (r"config", Config),
    (r"openapi.yaml", OpenApi),
]
