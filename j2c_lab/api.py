"""The same as the command, from Python::

    import j2c_lab

    run = j2c_lab.submit("train.py", ["--lr", "3e-4"], gpus=1)
    for line in run.logs():
        print(line, end="")
    print(run.wait().state)
    run.fetch("results")

Every call is blocking and may be made where an event loop runs (a notebook): the work is then done
in a thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import queue
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from j2c_lab.config import default_prefix, load_settings
from j2c_lab.formats.journal import LOG
from j2c_lab.runs import ask, cancel, follow, ledger, outputs, view
from j2c_lab.runs.submit import submit as submit_request
from j2c_lab.store.opener import open_store

T = TypeVar("T")

__all__ = ["RunHandle", "get_run", "submit"]


def submit(
    entry: str | os.PathLike[str] | None = None,
    args: Sequence[str] = (),
    *,
    module: str | None = None,
    project: str | os.PathLike[str] | None = None,
    venv: str | os.PathLike[str] | None = None,
    name: str | None = None,
    gpus: int | None = None,
    cpus: int | None = None,
    memory: str | None = None,
    nodes: int | None = None,
    time: str | None = None,
    image: str | None = None,
    queue: str | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Mapping[str, str] | None = None,
    outputs: Sequence[str] | None = None,
    save_every: str | None = None,
    scheduler: str | None = None,
    store: str | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> RunHandle:
    """Pack, send and start a run; return once the scheduler has it.

    Parameters
    ----------
    entry : path, optional
        A script or a notebook in the project.
    args : sequence of str
        What the script is given.
    module : str, optional
        A module instead, as `python -m` runs it.
    project : path, optional
        The project; found upwards from the entry point by default.
    venv : path, optional
        The environment to pack; that of this Python by default.
    memory, time : str, optional
        As on the command line: `16G`, `2h`.
    env, inputs : mapping, optional
        Variables of the run; inputs by name.
    outputs : sequence of str, optional
        Globs of what is brought back.
    save_every : str, optional
        Time between saves of the outputs while the run goes on: `10m`.
    report : callable, optional
        Takes each event (docs/events.md).

    Other parameters are those of `j2c submit`; settings in `[tool.j2c]`, the environment and the
    Jupyter config count where a parameter is None.

    Raises
    ------
    J2CError
        It could not be done; nothing is submitted, and the same call goes on from there.
    """
    path = None if entry is None else os.fspath(entry)
    root = ask.locate_project(path, None if project is None else os.fspath(project))
    flags = {
        "store": store,
        "venv": None if venv is None else os.fspath(venv),
        "name": name,
        "gpus": gpus,
        "cpus": cpus,
        "memory": memory,
        "nodes": nodes,
        "time": time,
        "image": image,
        "queue": queue,
        "env": dict(env or {}),
        "inputs": dict(inputs or {}),
        "outputs": None if outputs is None else list(outputs),
        "save_every": save_every,
        "scheduler": scheduler,
    }
    settings = load_settings(flags, root, os.environ)
    request = ask.make_request(
        project=root,
        prefix=settings.venv or _own_prefix(),
        user=settings.user,
        entry=path,
        module=module,
        args=[str(argument) for argument in args],
        **settings.for_request(),
    )

    warned: list[str] = []

    def remember(event: dict[str, Any]) -> None:
        if event["event"] == "warning":
            warned.append(event["message"])

    async def work(book: ledger.Ledger) -> str:
        submitted = await submit_request(book, request, report or remember)
        book.pending.release(submitted.run.id)
        return submitted.run.id

    run_id = _with_ledger(settings.store, settings.user, work)
    for message in warned:
        # Here and not where it arose: there, and in a thread, the caller is not on the stack.
        warnings.warn(message, stacklevel=2)
    return RunHandle(run_id, settings.store, settings.user)


def get_run(reference: str = "last", *, store: str | None = None) -> RunHandle:
    """Return a run by its id, a part of it, its name, or `last`.

    Raises
    ------
    NotFoundError
        There is no such run.
    """
    settings = load_settings({"store": store}, os.getcwd(), os.environ)
    run_id = _with_ledger(settings.store, settings.user, lambda book: book.resolve(reference))
    return RunHandle(run_id, settings.store, settings.user)


class RunHandle:
    """A run; nothing is kept here but where it is, so it may be made again at any time."""

    def __init__(self, run_id: str, store: str, user: str) -> None:
        #: The run's id.
        self.id = run_id
        self._store = store
        self._user = user

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    def status(self) -> view.RunView:
        """Return the run's state as it is now."""
        return self._do(lambda book: view.view(book, self.id))

    def logs(self, follow: bool = True) -> Iterator[str]:
        """Yield the log as text, in pieces as they came; until the run ends, or what is there."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for payload in _drain(lambda put: self._do(lambda book: self._feed(book, put, follow))):
            if text := decoder.decode(payload):
                yield text
        if rest := decoder.decode(b"", final=True):
            yield rest

    def wait(self, timeout: float | None = None) -> view.RunView:
        """Wait for the run's end and return how it ended.

        Raises
        ------
        TimeoutError
            It has not ended after `timeout` seconds; it goes on.
        """

        async def work(book: ledger.Ledger) -> view.RunView:
            follower = follow.Follower(book, self.id)
            try:
                await asyncio.wait_for(_exhaust(follower), timeout)
            except asyncio.TimeoutError:
                raise TimeoutError(f"run {self.id} has not ended yet") from None
            assert follower.result is not None
            return follower.result

        return self._do(work)

    def cancel(self) -> None:
        """End the run, whatever it is doing; one that has ended stays as it is."""
        self._do(lambda book: cancel.cancel(book, self.id, by=self._user))

    def fetch(self, directory: str | os.PathLike[str] | None = None) -> Path:
        """Bring the outputs into `directory` (`j2c_outputs/<run id>`) and return it."""
        target = None if directory is None else Path(directory)
        return self._do(lambda book: outputs.fetch(book, self.id, target)).directory

    async def _feed(
        self, book: ledger.Ledger, put: Callable[[bytes], bool], to_the_end: bool
    ) -> None:
        if to_the_end:
            async for item in follow.Follower(book, self.id):
                if item.record and item.record.kind == LOG and not put(item.record.payload):
                    return
            return
        attempt = max(await book.attempts(self.id), default=1)
        async for _, record in follow.records_so_far(book, self.id, attempt):
            if record.kind == LOG and not put(record.payload):
                return

    def _do(self, work: Callable[[ledger.Ledger], Coroutine[Any, Any, T]]) -> T:
        return _with_ledger(self._store, self._user, work)


async def _exhaust(follower: follow.Follower) -> None:
    async for _ in follower:
        pass


def _with_ledger(
    store: str, user: str, work: Callable[[ledger.Ledger], Coroutine[Any, Any, T]]
) -> T:
    async def whole() -> T:
        book = ledger.Ledger(open_store(store), user)
        try:
            return await work(book)
        finally:
            await book.store.close()

    return _run(whole)


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, from a thread with or without a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    done: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def target() -> None:
        try:
            done.put((True, asyncio.run(work())))
        except BaseException as error:
            done.put((False, error))

    threading.Thread(target=target, daemon=True).start()
    good, value = done.get()
    if not good:
        raise value
    result: T = value
    return result


def _drain(feed: Callable[[Callable[[bytes], bool]], None]) -> Iterator[bytes]:
    """Yield what `feed`, in a thread, puts; when the reader leaves, `put` returns False."""
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=64)
    gone = threading.Event()

    def put(piece: bytes | BaseException | None) -> bool:
        while not gone.is_set():
            try:
                pieces.put(piece, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def target() -> None:
        try:
            feed(put)
            put(None)
        except BaseException as error:
            put(error)

    threading.Thread(target=target, daemon=True).start()
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        gone.set()


def _own_prefix() -> str:
    """Return the environment of this Python, which is the caller's own."""
    if sys.prefix != sys.base_prefix or os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        return sys.prefix
    return default_prefix(os.environ)
