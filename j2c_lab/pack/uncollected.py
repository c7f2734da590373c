"""Many small records at once, without the garbage collector's attention."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Hold the garbage collector while many small records are made, of which none is garbage.

    It would look at all of them again and again: 25 of 300 ms for 13,000 files.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
