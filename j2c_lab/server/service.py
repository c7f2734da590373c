"""All that handlers can ask for; they only parse, call this, and answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from j2c_lab.config import load_settings
from j2c_lab.errors import J2CError, NotFoundError, UsageError
from j2c_lab.runs.ledger import Ledger
from j2c_lab.server.ask import Ask
from j2c_lab.server.config import J2CServer
from j2c_lab.server.documents import Document, asked_of, is_final, request_of
from j2c_lab.server.engine import EngineThread
from j2c_lab.server.index import RunIndex
from j2c_lab.server.jobs import Event, Jobs
from j2c_lab.server.kernels import Kernels
from j2c_lab.server.keys import Keys
from j2c_lab.server.logs import LogReader
from j2c_lab.server.paths import Root
from j2c_lab.store.opener import open_store

#: Interrupted requests older than this (seconds) are left for the user to resume.
_RESUMED_WITHIN = 86400.0


class ConflictError(J2CError):
    """The run is in a state in which this cannot be done, or the key was used for another one."""

    code = "conflict"


class Service:
    """The engine, behind the server.

    Parameters
    ----------
    config : J2CServer
    root : str
        The server's root directory.
    state_directory : str
        Where idempotency keys are kept, for a restarted server.
    kernels : Kernels
        Which Python environments there are.
    on_activity : callable
        Called while work is in flight, so that an idle culler leaves the server alone.
    """

    def __init__(
        self,
        config: J2CServer,
        root: str,
        state_directory: str,
        kernels: Kernels,
        on_activity: Callable[[], None],
    ) -> None:
        self.config = config
        self.root = Root(root)
        self.kernels = kernels
        self.engine = EngineThread()
        settings = load_settings({}, None, os.environ)
        self._store = open_store(settings.store)
        self.ledger = Ledger(self._store, settings.user)
        self.index = RunIndex(self.ledger)
        self.jobs = Jobs(config.max_jobs, on_activity)
        self._keys = Keys(Path(state_directory))

    async def page(self, limit: int, cursor: str | None, text: str, group: str) -> dict[str, Any]:
        """Return a page of runs."""
        runs, following = await self.engine.call(self.index.page(limit, cursor, text, group))
        return {"runs": runs, "cursor": following, "counts": self.index.counts()}

    async def run(self, run_id: str) -> Document:
        """Return a run as it is now."""
        return await self.engine.call(self.index.get(run_id))

    async def run_with_request(self, run_id: str) -> Document:
        """Return a run, and the request that submits it again."""
        shown = await self.run(run_id)
        documents = await self.engine.call(self.ledger.documents(run_id))
        asked = asked_of(documents)
        return {**shown, "request": request_of(asked, self.root.show(asked.project))}

    async def submit(self, body: Any, key: str | None) -> Document:
        """Start a run and return it as soon as it has an id; the rest goes on in its process.

        Raises
        ------
        UsageError
            The request is wrong, or not allowed here.
        ConflictError
            The key stands for another request.
        """
        ask = Ask.parse(body, self.config)
        if key is None:
            return await self.run(await self._start(ask))
        async with self._keys.lock(key):
            known = self._keys.get(key)
            fingerprint = json.dumps(ask.to_dict(), sort_keys=True)
            if known is None:
                run_id = await self._start(ask)
                self._keys.put(key, run_id, fingerprint)
            elif known[1] != fingerprint:
                raise ConflictError(
                    "this Idempotency-Key was used for another request", "use a new key"
                )
            else:
                run_id = known[0]
        return await self.run(run_id)

    async def preview(self, body: Any) -> dict[str, Any]:
        """Return what would be sent."""
        ask = Ask.parse(body, self.config)
        arguments, directory, environ = await self._submit_command(ask)
        left_out: list[Event] = []
        warnings: list[Event] = []
        shown: Event = {}

        def on_event(event: Event) -> None:
            if event.get("event") == "left_out":
                left_out.append({k: event.get(k) for k in ("path", "rule", "size")})
            elif event.get("event") == "warning":
                warnings.append({"message": event["message"], "remedy": event.get("remedy", "")})
            elif event.get("event") == "dry_run":
                shown.update(event)

        await self.jobs.run(
            ["submit", "--json", "--dry-run", *arguments],
            on_event=on_event,
            directory=directory,
            environ=environ,
        )
        layers = sorted(shown["layers"], key=lambda layer: layer["bytes"], reverse=True)
        return {
            "send": shown["send"],
            "reuse": shown["reuse"],
            "biggest": [
                {"name": layer["name"], "bytes": layer["bytes"], "sent": layer["send"]}
                for layer in layers[:8]
            ],
            "left_out": left_out[:500],
            "warnings": warnings,
            "project": self.root.show(directory),
            "line": _line(ask),
        }

    async def cancel(self, run_id: str) -> Document:
        """Ask for the end of a run."""
        await self._exists(run_id)
        await self.jobs.run(["cancel", "--json", run_id])
        return await self.run(run_id)

    async def resume(self, run_id: str) -> Document:
        """Go on with an interrupted run, or run an ended one again."""
        shown = await self._exists(run_id)
        if shown["state"] == "succeeded":
            raise ConflictError("the run has succeeded", "submit it again to repeat it")
        await self._started(["resume", "--json", "--detach", run_id], None, {})
        return await self.run(run_id)

    async def delete(self, run_id: str) -> None:
        """Delete a run that is over, with its log and saved outputs."""
        from j2c_lab.runs.delete import delete

        shown = await self._exists(run_id)
        if not is_final(shown["state"]) and shown["state"] != "interrupted":
            raise ConflictError(f"the run is {shown['state']}", "cancel it first")
        await self.engine.call(delete(self.ledger, run_id))
        self.engine.loop.call_soon_threadsafe(self.index.forget, run_id)

    async def files(self, run_id: str) -> list[dict[str, Any]]:
        """Return the output files that can be fetched."""
        await self._exists(run_id)
        from j2c_lab.runs.view import view

        seen = await self.engine.call(view(self.ledger, run_id))
        return [{"path": f.path, "size": f.size, "sha256": f.sha256} for f in seen.outputs]

    async def fetch(self, run_id: str) -> dict[str, Any]:
        """Bring a run's outputs into `j2c_outputs/<run id>` of its project, or of the root."""
        await self._exists(run_id)
        documents = await self.engine.call(self.ledger.documents(run_id))
        target = self._outputs_directory(asked_of(documents).project, run_id)
        done: Event = {}

        def on_event(event: Event) -> None:
            if event.get("event") == "fetched":
                done.update(event)

        await self.jobs.run(["fetch", "--json", run_id, "-o", target], on_event=on_event)
        counts = {name: done.get(name, 0) for name in ("files", "bytes", "skipped")}
        return {"directory": self.root.show(target), **counts}

    async def log_reader(self, run_id: str, attempt: int | None, rank: int) -> LogReader:
        """Return the reader of a log; of the last attempt if none is given."""
        shown = await self._exists(run_id)
        number = attempt or shown["attempt"]
        if number and rank in await self.engine.call(self.ledger.ranks(run_id, number)):
            return LogReader(self.ledger, run_id, number, rank)
        raise NotFoundError("the run has no such log (yet)")

    def schedulers(self) -> list[dict[str, Any]]:
        """Return the schedulers that may be used, and their queues."""
        queues = self.config.queues
        return [{"name": n, "queues": list(queues.get(n, []))} for n in self.config.schedulers]

    async def form_config(self) -> dict[str, Any]:
        """Return what the form needs to know."""
        from importlib.metadata import version

        config = self.config
        return {
            "version": version("j2c-lab"),
            "schedulers": self.schedulers(),
            "default_scheduler": (config.schedulers or ["local"])[0],
            "profiles": [{"name": name, **p} for name, p in config.profiles.items()],
            "images": config.images,
            "max_gpus": config.max_gpus,
            "environments": await self.kernels.environments(),
        }

    async def resume_interrupted(self, log: Any) -> None:
        """Go on with what the end of the last server interrupted, and say so."""
        page = await self.page(200, None, "", "active")
        for shown in page["runs"]:
            recent = time.time() - shown["created"] < _RESUMED_WITHIN
            if shown["state"] == "interrupted" and recent:
                log.info("j2c goes on with the interrupted run %s", shown["id"])
                with contextlib.suppress(J2CError):
                    await self.resume(shown["id"])

    def _outputs_directory(self, project: str, run_id: str) -> str:
        project = os.path.realpath(project)
        if not (self.root.holds(project) and os.path.isdir(project)):
            project = self.root.directory
        target = os.path.join(project, "j2c_outputs", run_id)
        if not self.root.holds(os.path.realpath(target)):
            raise UsageError("j2c_outputs leads out of the lab's root directory")
        return target

    async def _exists(self, run_id: str) -> Document:
        return await self.run(run_id)

    async def _start(self, ask: Ask) -> str:
        arguments, directory, environ = await self._submit_command(ask)
        command = ["submit", "--json", "--detach", *arguments]
        return await self._started(command, directory, environ)

    async def _started(
        self, command: list[str], directory: str | None, environ: dict[str, str]
    ) -> str:
        """Start a command and return the run's id as soon as it has told it."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_event(event: Event) -> None:
            kind = event.get("event")
            if kind == "run" and not told.done():
                told.set_result(event["run"])
            elif kind == "progress" and told.done():
                progress = {k: v for k, v in event.items() if k != "event"}
                self._progress(told.result(), progress)
            elif kind == "submitted" and told.done():
                self._progress(told.result(), None)

        task = self.jobs.start(
            command, on_event=on_event, directory=directory, environ=environ, survive=True
        )
        both: list[asyncio.Future[Any]] = [task, told]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not told.done():
            await task
            raise UsageError("j2c told no run")
        run_id = told.result()
        task.add_done_callback(lambda done: self._done(run_id, done))
        await self._appeared(run_id, task)
        return run_id

    async def _appeared(self, run_id: str, task: asyncio.Task[None]) -> None:
        """Wait for the request to be written: its process tells the id a moment before that."""
        while not task.done():
            with contextlib.suppress(NotFoundError):
                await self.run(run_id)
                return
            await asyncio.sleep(0.02)

    def _done(self, run_id: str, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            failure = str(task.exception())
            self.engine.loop.call_soon_threadsafe(self.index.fail, run_id, failure)
        self._progress(run_id, None)

    def _progress(self, run_id: str, progress: dict[str, Any] | None) -> None:
        self.engine.loop.call_soon_threadsafe(self.index.progress, run_id, progress)

    async def _submit_command(self, ask: Ask) -> tuple[list[str], str, dict[str, str]]:
        prefixes = [item["prefix"] for item in await self.kernels.environments()]
        arguments, directory, entry = ask.command(self.root, prefixes)
        path = self.root.resolve(entry) if ask.kind == "notebook" else None
        prefix = await self.kernels.prefix_for(path)
        if "scheduler" not in ask.values and self.config.schedulers:
            arguments.insert(0, f"--scheduler={self.config.schedulers[0]}")
        # A default only: [tool.j2c] of the project and --venv win.
        return arguments, directory, {"J2C_VENV": prefix, "VIRTUAL_ENV": ""}


def _line(ask: Ask) -> str:
    words = ["%j2c", "submit"]
    values = ask.values
    for name in ("gpus", "cpus", "memory", "nodes", "time", "scheduler", "queue", "image", "name"):
        if values.get(name):
            words += [f"--{name}", str(values[name])]
    for option, name in (("--env", "env"), ("--input", "inputs")):
        for key, value in values.get(name, {}).items():
            words += [option, f"{key}={value}"]
    for glob in values.get("outputs", []):
        words += ["--output", glob]
    target = os.path.basename(ask.entry)
    words += ["-m", ask.entry] if ask.kind == "module" else [target]
    if values.get("args"):
        words += ["--", *values["args"]]
    return shlex.join(words)
