"""What this machine has to give, and the environment that a job on it gets."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Mapping

#: Taken over from who submits: who and where the user is, and how the network is reached.
_KEPT = re.compile(
    r"HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|XDG_\w+|(?i:(https?|no|all)_proxy)"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|AWS_\w+|J2C_\w+"
)
#: Those of a run, should j2c be used inside one.
_RUN_OWN = re.compile(r"J2C_(RUN_ID|ATTEMPT|OUTPUT_DIR|INPUT_\w+)")


@dataclasses.dataclass(frozen=True)
class Capacity:
    """What the machine gives to all jobs together."""

    cpus: int
    #: As `CUDA_VISIBLE_DEVICES` names them.
    gpus: list[str]
    #: Bytes; None when unknown.
    memory: int | None = None


def discover(environ: Mapping[str, str]) -> Capacity:
    """Return the machine's capacity; `J2C_LOCAL_CPUS` and `J2C_LOCAL_GPUS` overrule it.

    `J2C_LOCAL_GPUS` is a number, or names as `CUDA_VISIBLE_DEVICES` has them.
    """
    cpus = environ.get("J2C_LOCAL_CPUS", "")
    return Capacity(
        cpus=int(cpus) if cpus.isdigit() and int(cpus) > 0 else _cpus(),
        gpus=_gpus(environ),
        memory=_memory(),
    )


def job_environment(environ: Mapping[str, str], passed: list[str]) -> dict[str, str]:
    """Return what a job gets of the submitter's environment.

    The lab's own Python must not reach the job: `PYTHONPATH`, `VIRTUAL_ENV`, `LD_LIBRARY_PATH`
    and the like stay behind, and its directories go from `PATH`. `passed` names variables that
    are taken over nevertheless.
    """
    env = {
        name: value
        for name, value in environ.items()
        if name in passed or (_KEPT.fullmatch(name) and not _RUN_OWN.fullmatch(name))
    }
    prefixes = [environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")]
    if sys.prefix != sys.base_prefix:
        prefixes.append(sys.prefix)
    own = {os.path.join(prefix, "bin") for prefix in prefixes if prefix}
    path = environ.get("PATH", os.defpath).split(os.pathsep)
    env["PATH"] = os.pathsep.join(entry for entry in path if entry.rstrip("/") not in own)
    return env


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    try:
        # A container's share, cgroup v2: "<quota> <period>" in microseconds, or "max …".
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            usable = min(usable, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return usable


def _gpus(environ: Mapping[str, str]) -> list[str]:
    given = environ.get("J2C_LOCAL_GPUS", "").strip()
    if given.isdigit():
        return [str(number) for number in range(int(given))]
    visible = given or environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    if visible:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    if "CUDA_VISIBLE_DEVICES" in environ:
        return []
    try:
        devices = [name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]
    except OSError:
        devices = []
    if devices:
        return [str(number) for number in range(len(devices))]
    if os.path.exists("/dev/dxg"):  # under WSL only the tool knows
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        count = sum(line.startswith("GPU ") for line in answer.stdout.splitlines())
        return [str(number) for number in range(count)]
    return []


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
