"""When to try again, how long to wait, and when to give up. Knows nothing of any server."""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple


class Patience(NamedTuple):
    """How long a store is waited for, in seconds."""

    #: A request in which nothing moves for so long is given up and tried again.
    stall: float = 30.0
    #: Until the first answer ever: a wrong address should be told soon.
    first: float = 10.0
    #: Since the last thing that worked: long enough for a server to be restarted.
    total: float = 120.0
    #: The first pause; each next one is twice as long.
    pause: float = 0.1
    longest_pause: float = 5.0


class Retry:
    """The tries of one request. `failed` waits before the next one, or says that it was the last.

    Parameters
    ----------
    patience : Patience
        What to wait for.
    known : bool
        Whether the store has answered before.
    """

    def __init__(self, patience: Patience, known: bool = True) -> None:
        self._patience = patience
        self._budget = patience.total if known else min(patience.first, patience.total)
        self._since = time.monotonic()
        self._failures = 0
        #: Tries that failed, over all.
        self.failures = 0

    def progressed(self) -> None:
        """Note that something arrived: patience begins anew."""
        self._since = time.monotonic()
        self._failures = 0
        self._budget = self._patience.total

    async def failed(self) -> bool:
        """Wait before the next try; return False at once when there should be none.

        The pause is random between nothing and twice its mean, so that many clients that failed
        together do not come back together.
        """
        self._failures += 1
        self.failures += 1
        longest = min(
            self._patience.longest_pause, self._patience.pause * 2 ** min(self._failures, 16)
        )
        pause = random.uniform(0, longest)  # noqa: S311 - spreads load, guards nothing
        if time.monotonic() + pause - self._since > self._budget:
            return False
        await asyncio.sleep(pause)
        return True
