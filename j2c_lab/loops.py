"""Runs coroutines, with asyncio only when one has to wait.

Importing asyncio takes 60 ms, a third of a `j2c pack` that finds nothing changed; on a directory
as the store nothing in it ever waits. So a coroutine is begun without a loop, and code that is
about to use asyncio says so first: `await need_loop()`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

_NEEDED = object()


def has_loop() -> bool:
    """Whether an event loop runs in this thread."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


@types.coroutine
def need_loop() -> Generator[Any, Any, None]:
    """Go on in an event loop: begun now, unless one runs already."""
    if not has_loop():
        yield _NEEDED


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does, beginning without a loop.

    Everything that it uses must await `need_loop()` before it uses asyncio.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    if awaited is not _NEEDED:
        coroutine.close()
        raise RuntimeError("something used asyncio without awaiting need_loop()")
    import asyncio

    return asyncio.run(_rest(coroutine))


async def _rest(coroutine: Coroutine[Any, Any, T]) -> T:
    return await _passed_on(coroutine)


@types.coroutine
def _passed_on(coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine that has begun already, which `await` itself refuses."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            awaited = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        value = error = None
        try:
            value = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as caught:
            error = caught
