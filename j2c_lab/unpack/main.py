"""`j2c unpack`: the cluster side's command. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `j2c unpack`; also used by the `j2c` command."""
    parser.add_argument("run_url", metavar="RUN_URL", help="<store URL>/runs/<user>/<run id>")
    parser.add_argument(
        "--workdir",
        metavar="DIR",
        help="where the run's directory is made (default: J2C_WORKDIR, else a directory in TMPDIR "
        "that is removed at the end)",
    )
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="this node's cache of unpacked layers (default: J2C_CACHE, else j2c/node in the "
        "user's cache directory; empty for none)",
    )
    parser.add_argument(
        "--deliver",
        action="store_true",
        help="run nothing: send what earlier attempts on this node could not deliver",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="write what the run's journal gets to standard output, one JSON object a line",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, or end by the signal that ended the run."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="j2c unpack", description="Fetch, unpack and execute a run on this machine."
    )
    add_arguments(parser)
    return execute(parser.parse_args(argv))


def execute(arguments: argparse.Namespace) -> int:
    """Do what parsed arguments of `add_arguments` say; else as `main`."""
    from j2c_lab.errors import J2CError

    try:
        from j2c_lab.unpack.attempt import deliver_run, execute_run
        from j2c_lab.unpack.settings import settings_from

        settings = settings_from(arguments.run_url, arguments.workdir, arguments.cache, os.environ)
        if arguments.deliver:
            return deliver_run(settings)
        status = execute_run(settings, _told() if arguments.json else None)
    except J2CError as error:
        if arguments.debug:
            raise
        if arguments.json:
            _told()(error.event())
            return error.exit_code
        print(f"j2c unpack: {error}", file=sys.stderr)
        for line in error.details:
            print(f"  {line}", file=sys.stderr)
        return error.exit_code
    if status.reason:
        print(f"j2c unpack: {status.reason}", file=sys.stderr)
    if status.kept:
        print(f"j2c unpack: {status.kept}", file=sys.stderr)
    if status.signal is not None:
        return die_by(status.signal)
    return status.exit_code


def _told() -> Callable[[dict[str, Any]], None]:
    """Return what writes an event to standard output; once that is closed, it does nothing."""
    from j2c_lab.formats.events import json_line

    def tell(event: dict[str, Any]) -> None:
        data = memoryview(json_line(event).encode())
        # Nobody reads any more, or the disk is full: no reason to end a run.
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(1, data) :]

    return tell


def die_by(number: int) -> int:
    """End this process by a signal, so that the parent sees what it would have seen of the run.

    Returns 128 + signal where that is not possible: the kernel keeps such signals from PID 1.
    """
    import resource
    import signal

    sys.stdout.flush()
    sys.stderr.flush()
    # A core of j2c's own would tell nothing about the run.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.getpid() != 1:
        with contextlib.suppress(OSError, ValueError):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
            os.kill(os.getpid(), number)
    return 128 + number
