"""Where layers are made: here when there is little to do, else in worker processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from j2c_lab import errors
from j2c_lab.errors import J2CError, PackError
from j2c_lab.loops import has_loop, need_loop
from j2c_lab.pack.layer_writer import Advance, LayerResult, hash_layer, make_layer
from j2c_lab.pack.plan import FileKey, PlannedFile
from j2c_lab.pack.worker import ADVANCE, DONE, HASH, HEAD, PACK, decode, encode
from j2c_lab.worker_environment import worker_environment

if TYPE_CHECKING:
    import asyncio

_MOST = 8
#: Bytes below which starting a process (about 50 ms) is not worth it.
_SMALL = 16 << 20

#: Not `-m`, which would put the current directory first among the places to import from.
_PLACE = os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))
_START = "import sys; sys.path.append(sys.argv[1]); from j2c_lab.pack.worker import main; main()"


class Workers(Protocol):
    """Makes layers. Raises `PackError` as `layer_writer` does."""

    #: How many layers are made at a time.
    size: int

    async def pack(self, files: Sequence[PlannedFile], path: str) -> LayerResult:
        """Write the layer to the new file `path`."""
        ...

    async def hash(
        self, files: Sequence[PlannedFile], known: Sequence[bytes | None]
    ) -> LayerResult:
        """Find the layer's digest, reading only the files whose hash is not known."""
        ...

    async def __aenter__(self) -> Workers: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def workers_for(jobs: int, size: int, advance: Advance) -> Workers:
    """Return workers for `jobs` layers with `size` bytes to read, to be used in `async with`."""
    if size < _SMALL:
        return _Here(advance)
    return _Processes(min(_cpus(), _MOST, jobs), advance)


async def run_all(jobs: Sequence[Callable[[], Awaitable[None]]], at_once: int) -> None:
    """Run all jobs, begun in their order, some at once; after an error none goes on."""
    if not has_loop():
        for job in jobs:
            await job()
        return
    import asyncio

    gate = asyncio.Semaphore(at_once)

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            await job()

    tasks = [asyncio.ensure_future(run(job)) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Here:
    """Works in this process, one layer at a time: in a thread, where a loop must not be held."""

    size = 1

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._one: asyncio.Lock | None = None

    async def pack(self, files: Sequence[PlannedFile], path: str) -> LayerResult:
        return await self._run(make_layer, files, path)

    async def hash(
        self, files: Sequence[PlannedFile], known: Sequence[bytes | None]
    ) -> LayerResult:
        return await self._run(hash_layer, files, known)

    async def _run(self, work: Callable[..., LayerResult], *arguments: Any) -> LayerResult:
        if not has_loop():
            return work(*arguments, self._advance)
        import asyncio

        done: list[tuple[int, int]] = []
        self._one = self._one or asyncio.Lock()
        async with self._one:
            result = await asyncio.to_thread(
                work, *arguments, lambda size, files: done.append((size, files))
            )
        # Reported from the loop's own thread, as everything is.
        self._advance(sum(size for size, _ in done), sum(files for _, files in done))
        return result

    async def __aenter__(self) -> Workers:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _Processes:
    """Works in processes of their own, which know nothing of the program that started them."""

    def __init__(self, size: int, advance: Advance) -> None:
        self.size = size
        self._advance = advance
        self._all: list[asyncio.subprocess.Process] = []
        self._idle: asyncio.Queue[asyncio.subprocess.Process]

    async def pack(self, files: Sequence[PlannedFile], path: str) -> LayerResult:
        return await self._run((PACK, _plain(files), path))

    async def hash(
        self, files: Sequence[PlannedFile], known: Sequence[bytes | None]
    ) -> LayerResult:
        return await self._run((HASH, _plain(files), list(known)))

    async def __aenter__(self) -> Workers:
        await need_loop()
        import asyncio

        self._idle = asyncio.Queue()
        try:
            for _ in range(self.size):
                process = await _start()
                self._all.append(process)
                self._idle.put_nowait(process)
        except BaseException:
            await self._end(kill=True)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._end(kill=kind is not None)

    async def _run(self, task: tuple[Any, ...]) -> LayerResult:
        process = await self._idle.get()
        result = await self._ask(process, task)
        # Only after an answer: one that was cancelled meanwhile is still at its task.
        self._idle.put_nowait(process)
        if isinstance(result, J2CError):
            raise result
        return result

    async def _ask(
        self, process: asyncio.subprocess.Process, task: tuple[Any, ...]
    ) -> LayerResult | J2CError:
        assert process.stdin is not None and process.stdout is not None
        import asyncio

        try:
            process.stdin.write(encode(task))
            await process.stdin.drain()
            while True:
                head = await process.stdout.readexactly(HEAD.size)
                kind, *values = decode(
                    await process.stdout.readexactly(HEAD.unpack(head)[0]),
                )
                if kind == ADVANCE:
                    self._advance(*values)
                elif kind == DONE:
                    digest, packed, unpacked, hashes = values
                    known = {FileKey(*key): content for key, content in hashes}
                    return LayerResult(digest, packed, unpacked, known)
                else:
                    name, *arguments = values
                    return getattr(errors, name, PackError)(*arguments)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise _death(await process.wait()) from None

    async def _end(self, *, kill: bool) -> None:
        for process in self._all:
            if kill and process.returncode is None:
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
        for process in self._all:
            await process.wait()


async def _start() -> asyncio.subprocess.Process:
    import asyncio

    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _START,
        _PLACE,
        cwd="/",
        env=worker_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


def _death(code: int) -> PackError:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    remedy = "repeat the command: the layers that were finished are kept"
    if code == -9:
        remedy = "free some memory, then " + remedy
    return PackError(f"a process that makes layers {how}", remedy)


def _plain(files: Sequence[PlannedFile]) -> list[tuple[Any, ...]]:
    return [(*file[:4], file.key and tuple(file.key), *file[5:]) for file in files]


def _cpus() -> int:
    """Return how many processors this process may use, as a container's quota has it too."""
    allowed = _allowed_cpus()
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        return max(1, min(allowed, round(int(quota) / int(period))))
    except (OSError, ValueError):
        # No container, no Linux, or `max`: no quota.
        return allowed


def _allowed_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
