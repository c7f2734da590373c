"""Coroutines as tests."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test in an event loop of its own; close the stores it was given."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def whole() -> None:
            try:
                await test(*args, **kwargs)
            finally:
                for value in kwargs.values():
                    if hasattr(value, "put_file"):
                        await value.close()

        asyncio.run(whole())

    return run
