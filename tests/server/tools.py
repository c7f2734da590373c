"""Helpers for tests that speak to a server as a program would."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T], seconds: float = 60) -> T:
    """Run a coroutine, with an end."""

    async def whole() -> T:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(whole())
