"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path


def describe(directory: Path) -> str:
    """Return one paragraph: processor, cores, memory, system, file system, tools."""
    parts = [
        f"{_processor()}, {os.cpu_count()} cores, {_memory()} of memory",
        f"{platform.system()} {platform.release()}, {_file_system(directory)}",
        f"Python {platform.python_version()}",
        _first_line("tar", "--version"),
        f"zstd {_version('zstd', '--version')} (peer) and {_own_zstd()} (j2c)",
        _first_line(str(Path(sys.executable).parent / "uv"), "--version"),
    ]
    return "; ".join(filter(None, parts))


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _memory() -> str:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / 2**30:.0f} GiB"


def _file_system(directory: Path) -> str:
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    mounts = [line.split()[1:3] for line in lines]
    fitting = [(point, kind) for point, kind in mounts if directory.is_relative_to(point)]
    return max(fitting, key=lambda mount: len(mount[0]))[1] if fitting else ""


def _first_line(*command: str) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.stdout.strip().partition("\n")[0]


def _version(*command: str) -> str:
    found = re.search(r"\d+\.\d+\.\d+", _first_line(*command))
    return found[0] if found else "?"


def _own_zstd() -> str:
    if sys.version_info >= (3, 14):
        from compression.zstd import zstd_version
    else:
        from backports.zstd import zstd_version
    return str(zstd_version)
