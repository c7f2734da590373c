"""The environment of j2c's own worker processes."""

from __future__ import annotations

import os


def worker_environment() -> dict[str, str]:
    """Return this process's environment, with glibc's allocator told to keep what it has.

    Workers take and drop buffers of megabytes all the time. By default glibc gives each back to
    the kernel, which then clears the same pages again: a tenth of a worker's CPU time (55,000 page
    faults against 5,000 for a pack of 850 MB). Other allocators ignore these variables.
    """
    return {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    }
