"""A process that makes layers: takes tasks on standard input, answers on standard output.

A message is its length (4 bytes, big-endian) and a tuple written by `marshal`; both ends are the
same Python and the same j2c. `pool` is the other end. Standard input that ends is the end.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import struct
import sys
import time
from typing import Any

from j2c_lab.errors import J2CError
from j2c_lab.pack.layer_writer import hash_layer, make_layer
from j2c_lab.pack.plan import FileKey, PlannedFile

HEAD = struct.Struct(">I")

# Tasks: (PACK, files, path) and (HASH, files, known hashes).
PACK = "pack"
HASH = "hash"
# Answers: any number of (ADVANCE, bytes, files), then (DONE, digest, packed size, unpacked size,
# hashes) or (FAILED, class of the error, message, remedy, details).
ADVANCE = "advance"
DONE = "done"
FAILED = "failed"

#: Seconds between two `ADVANCE`.
_INTERVAL = 0.05


def encode(message: tuple[Any, ...]) -> bytes:
    """Return the bytes of a message, its length included."""
    body = marshal.dumps(message)
    return HEAD.pack(len(body)) + body


def decode(body: bytes) -> tuple[Any, ...]:
    """Return the message whose bytes, without its length, are `body`."""
    message: tuple[Any, ...] = marshal.loads(body)  # noqa: S302  (a pipe to our own process)
    return message


def main() -> None:
    """Do tasks until standard input ends."""
    # Ctrl-C reaches the whole terminal's group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nothing here makes cycles, and the collector would walk the files of every layer.
    gc.disable()
    tasks = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    while head := tasks.read(HEAD.size):
        task = decode(tasks.read(HEAD.unpack(head)[0]))
        try:
            _write(answers, _do(task, _Advance(answers)))
        except BrokenPipeError:
            # The parent is gone; it has nobody to clean up after it but us, and that was done.
            sys.exit(1)


def _do(task: tuple[Any, ...], advance: _Advance) -> tuple[Any, ...]:
    kind, rows, argument = task
    files = [PlannedFile._make((*row[:4], row[4] and FileKey(*row[4]), *row[5:])) for row in rows]
    try:
        if kind == PACK:
            result = make_layer(files, argument, advance)
        else:
            result = hash_layer(files, argument, advance)
    except J2CError as error:
        return FAILED, type(error).__name__, error.message, error.remedy, error.details
    except BrokenPipeError:
        raise
    except Exception as error:
        return (
            FAILED,
            "PackError",
            f"making a layer failed: {type(error).__name__}: {error}",
            "",
            [],
        )
    advance.flush()
    hashes = [(tuple(key), content) for key, content in result.hashes.items()]
    return DONE, result.digest, result.packed_size, result.unpacked_size, hashes


class _Advance:
    """Sums up what was read, and tells the parent now and then."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._size = 0
        self._files = 0
        self._last = time.monotonic()

    def __call__(self, size: int, files: int) -> None:
        self._size += size
        self._files += files
        if time.monotonic() - self._last > _INTERVAL:
            self.flush()

    def flush(self) -> None:
        _write(self._answers, (ADVANCE, self._size, self._files))
        self._size = self._files = 0
        self._last = time.monotonic()


def _write(answers: Any, message: tuple[Any, ...]) -> None:
    data = memoryview(encode(message))
    while data:
        data = data[answers.write(data) :]


if __name__ == "__main__":
    main()
