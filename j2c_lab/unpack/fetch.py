"""All layers of a bundle at once: worker processes fetch, verify and unpack them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from j2c_lab import errors
from j2c_lab.errors import J2CError, UnpackError
from j2c_lab.unpack.cache import LayerCache
from j2c_lab.unpack.control import Control
from j2c_lab.unpack.layer import LayerDone, LayerJob, do_layer
from j2c_lab.unpack.source import ObjectSource
from j2c_lab.worker_environment import worker_environment

#: Called with bytes and files done so far.
Report = Callable[[int, int], None]

_MOST_WORKERS = 8
#: Below this, two processes take longer to start than the work takes.
_LITTLE_FILES = 250
_LITTLE_BYTES = 4 << 20
_PIPE_PIECE = 1 << 16


def do_layers(
    jobs: Sequence[LayerJob],
    store_url: str,
    cache: LayerCache | None,
    control: Control,
    report: Report,
    keep_open: Sequence[int] = (),
) -> list[LayerDone]:
    """Do all jobs, the largest first.

    `keep_open` are descriptors that the workers hold too: the lock on the run's directory, so
    that no other attempt takes it over while a worker of a killed one still writes there.

    Raises
    ------
    control.Stopped
        The end was asked for; the workers are gone.
    J2CError
        A layer is missing, damaged or hostile, or the disk is full.
    """
    files = sum(job.expected.files for job in jobs)
    size = sum(job.expected.packed_size for job in jobs)
    if files <= _LITTLE_FILES and size <= _LITTLE_BYTES:
        return _do_here(jobs, store_url, cache, control, report)
    pool = _Pool(jobs, store_url, cache, report, keep_open)
    try:
        return pool.run(control)
    finally:
        pool.close()


def disk_error(error: OSError) -> UnpackError:
    """Return a sentence for an error of the cluster's file system."""
    return _disk_error(error.errno, error.strerror, error.filename)


def _do_here(
    jobs: Sequence[LayerJob],
    store_url: str,
    cache: LayerCache | None,
    control: Control,
    report: Report,
) -> list[LayerDone]:
    source = ObjectSource(store_url)
    done: list[LayerDone] = []
    size = files = 0
    try:
        for job in jobs:
            control.check()
            done.append(do_layer(job, source, cache, lambda fetched: None))
            size += job.expected.packed_size
            files += job.expected.files
            report(size, files)
    except OSError as error:
        raise disk_error(error) from error
    finally:
        source.close()
    return done


class _Worker:
    def __init__(self, start: bytes, keep_open: Sequence[int]) -> None:
        self.process = subprocess.Popen(
            # In a directory of its own: `-m` puts the current one first into sys.path.
            [sys.executable, "-m", "j2c_lab.unpack.worker"],
            cwd="/",
            env=worker_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal reaches the whole group; only the parent should act on it.
            start_new_session=True,
            pass_fds=keep_open,
        )
        self.job: LayerJob | None = None
        self.fetched = 0
        self._buffer = b""
        self._write(start)

    def give(self, job: LayerJob) -> None:
        self.job = job
        self.fetched = 0
        self._write(json.dumps(job.to_json()).encode())

    def read(self) -> list[dict[str, Any]]:
        """Return the answers that have come; raises `UnpackError` when the worker died."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), _PIPE_PIECE)
        if not data:
            code = self.process.wait()
            why = f"signal {-code}, most likely out of memory" if code < 0 else f"exit code {code}"
            raise UnpackError(f"a process that unpacks layers ended with {why}")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It died: reading says how.


class _Pool:
    def __init__(
        self,
        jobs: Sequence[LayerJob],
        store_url: str,
        cache: LayerCache | None,
        report: Report,
        keep_open: Sequence[int],
    ) -> None:
        self.todo = sorted(jobs, key=_cost)
        self.done: list[LayerDone] = []
        self.report = report
        self.size = self.files = 0
        start = {"store": store_url, "cache": cache.root.decode("latin-1") if cache else None}
        count = min(len(jobs), _MOST_WORKERS, _processors())
        self.workers: list[_Worker] = []
        for _ in range(count):
            self.workers.append(_Worker(json.dumps(start).encode(), keep_open))

    def run(self, control: Control) -> list[LayerDone]:
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ)
            for worker in self.workers:
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                worker.give(self.todo.pop())
            while any(worker.job for worker in self.workers):
                for key, _ in selector.select():
                    if isinstance(key.data, _Worker):
                        for answer in key.data.read():
                            self._take(key.data, answer)
                    else:
                        control.check()
        return self.done

    def close(self) -> None:
        for worker in self.workers:
            process = worker.process
            assert process.stdin is not None
            assert process.stdout is not None
            if worker.job is not None:
                process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
        for worker in self.workers:
            worker.process.wait()

    def _take(self, worker: _Worker, answer: dict[str, Any]) -> None:
        job = worker.job
        assert job is not None
        if "progress" in answer:
            worker.fetched = answer["progress"]
        elif "links" in answer:
            self.done.append(LayerDone.from_json(answer))
            self.size += job.expected.packed_size
            self.files += job.expected.files
            worker.job, worker.fetched = None, 0
            if self.todo:
                worker.give(self.todo.pop())
        else:
            raise _error(answer)
        self.report(self.size + sum(worker.fetched for worker in self.workers), self.files)


def _cost(job: LayerJob) -> int:
    # A small file costs about as much as 50 kB of a large one.
    return job.expected.unpacked_size + 50_000 * job.expected.files


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _error(answer: dict[str, Any]) -> J2CError:
    if "errno" in answer:
        return _disk_error(answer["errno"], answer["message"], answer["path"])
    kind = getattr(errors, answer["error"], UnpackError)
    error: J2CError = kind(answer["message"], answer["remedy"], answer["details"])
    return error


def _disk_error(number: int | None, message: str | None, path: Any) -> UnpackError:
    import errno

    if isinstance(path, bytes):
        path = path.decode("utf-8", "backslashreplace")
    remedy = {
        errno.ENOSPC: "free some space there, or give another directory with --workdir",
        errno.EDQUOT: "free some of your quota, or give another directory with --workdir",
        errno.EROFS: "give a writable directory with --workdir, or set TMPDIR",
        errno.EACCES: "give a writable directory with --workdir, or set TMPDIR",
    }.get(number or 0, "")
    return UnpackError(f"cannot unpack: {message} {path or ''}".rstrip(), remedy)
