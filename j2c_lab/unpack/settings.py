"""Where an attempt works: from options and variables to directories."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from j2c_lab.errors import UnpackError, UsageError
from j2c_lab.store.layout import split_run_url

_DEFAULT_SPOOL = 2 << 30
_DEFAULT_DELIVERY = 60.0


class Settings(NamedTuple):
    """What is known before the store is asked."""

    run_url: str
    store_url: str
    user: str
    run_id: str
    #: Absolute.
    workdir: str
    #: Whether the run's directory is removed at the end.
    temporary: bool
    #: Absolute, or None for no cache.
    cache: str | None
    #: From the scheduler, where it counts attempts itself; else 0.
    attempt: int
    rank: int
    #: Most bytes of the journal that wait on disk.
    spool_limit: int
    #: Seconds to go on delivering when the run has ended and the store does not answer.
    delivery: float
    #: As in `Control`.
    echo: float = 0.0


def settings_from(
    run_url: str, workdir: str | None, cache: str | None, environ: Mapping[str, str]
) -> Settings:
    """Return the settings; `workdir` and `cache` are options, None when they were not given.

    Raises
    ------
    UsageError
        The run URL is none, or of another user.
    """
    store_url, user, run_id = split_run_url(run_url)
    allowed = environ.get("J2C_USER")
    if allowed and allowed != user:
        raise UsageError(
            f"this is a run of {user}, and jobs here are for {allowed} only",
            "submit the run as yourself",
        )
    workdir = workdir or environ.get("J2C_WORKDIR")
    if cache is None:
        cache = environ.get("J2C_CACHE")
    if cache is None:
        cache = _user_cache(environ)
    return Settings(
        run_url=run_url,
        store_url=store_url,
        user=user,
        run_id=run_id,
        workdir=os.path.abspath(workdir or _temporary_directory(environ)),
        temporary=not workdir,
        cache=os.path.abspath(os.path.expanduser(cache)) if cache else None,
        attempt=_number(environ, "J2C_ATTEMPT_NUMBER", 0),
        rank=_number(environ, "J2C_RANK", 0),
        spool_limit=_number(environ, "J2C_SPOOL_LIMIT", _DEFAULT_SPOOL),
        delivery=float(_number(environ, "J2C_DELIVERY_SECONDS", int(_DEFAULT_DELIVERY))),
        echo=float(_number(environ, "J2C_SIGNAL_ECHO", 0)),
    )


def _temporary_directory(environ: Mapping[str, str]) -> str:
    """Return a directory of our own in the first place that can be written to.

    The name is always the same, so that a later attempt finds what an earlier one left.
    """
    name = f"j2c-{os.geteuid()}"
    for parent in (environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm", os.getcwd()):  # noqa: S108
        if not parent:
            continue
        path = os.path.join(parent, name)
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            info = os.lstat(path)
        except OSError:
            continue
        # In a directory that all may write to, somebody else may have been there first.
        if info.st_uid == os.geteuid() and not os.path.islink(path) and os.access(path, os.W_OK):
            return path
    raise UnpackError(
        "there is no directory to work in", "give a writable one with --workdir, or set TMPDIR"
    )


def _user_cache(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        base = os.path.join(home, "Library/Caches" if sys.platform == "darwin" else ".cache")
    return os.path.join(base, "j2c", "node")


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise UsageError(f"{name} is {text!r}, not a whole number")
    return int(text)
