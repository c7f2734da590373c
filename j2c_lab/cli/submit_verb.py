"""`j2c submit` and `j2c resume`: the whole cycle in the foreground."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from j2c_lab.cli import completion
from j2c_lab.cli.common import add_run, add_sources, add_store, pairs, run_async, verb
from j2c_lab.cli.following import follow_to_end, tell_detached
from j2c_lab.cli.output import Output, open_output
from j2c_lab.config import Settings, default_prefix, load_settings
from j2c_lab.errors import J2CError, UsageError
from j2c_lab.runs.ask import locate_project, make_request
from j2c_lab.runs.follow import Position
from j2c_lab.runs.ledger import Ledger
from j2c_lab.runs.request import Request
from j2c_lab.runs.submit import Submitted, dry_run, resume, submit


def add(verbs: Any) -> None:
    """Add the verbs."""
    parser = verb(verbs, "submit", "pack, send and start a run, and follow it to its end", _submit)
    parser.usage = "j2c submit [options] (ENTRY | -m MODULE | --cell-file FILE) [-- ARGS...]"
    what = parser.add_argument_group("what to run")
    entry = what.add_argument(
        "entry", metavar="ENTRY", nargs="?", help="a script or notebook; - reads a script's text"
    )
    completion.mark(entry, completion.FILE)
    what.add_argument("-m", dest="module", metavar="MODULE", help="a module, as python -m runs it")
    what.add_argument("--cell-file", metavar="FILE", help="run this file's text as a script here")
    what.add_argument("--name", help="the run's name (the entry's by default)")
    what.add_argument(
        "--env", action="append", default=[], metavar="K=V", help="set a variable for the run"
    )
    add_sources(what)
    asks = parser.add_argument_group("resources")
    asks.add_argument("--gpus", type=int, metavar="N", help="GPUs (for each node)")
    asks.add_argument("--cpus", type=int, metavar="N", help="CPUs (for each node)")
    asks.add_argument("--memory", metavar="16G", help="memory for each node")
    asks.add_argument("--nodes", type=int, metavar="N", help="nodes")
    asks.add_argument("--time", metavar="2h", help="time limit")
    asks.add_argument("--image", metavar="I", help="base image")
    asks.add_argument("--queue", metavar="Q", help="queue or partition")
    asks.add_argument("--scheduler", metavar="S", help="local, or another that is installed")
    data = parser.add_argument_group("data")
    data.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="an input (s3://, http(s)://, or a path), in the run as J2C_INPUT_<NAME>",
    )
    data.add_argument(
        "--output", action="append", default=[], metavar="GLOB", help="files to bring back"
    )
    data.add_argument(
        "--save-every",
        metavar="10m",
        help="save them on the way too, so that a next attempt goes on from there",
    )
    add_store(data)
    data.add_argument(
        "--split-streams",
        action="store_const",
        const=True,
        help="keep stdout and stderr apart (their order is then not exact)",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--detach", action="store_true", help="do not follow the run")
    how.add_argument(
        "--dry-run",
        action="store_true",
        help="show what would be sent and submitted; write nothing",
    )
    again = verb(
        verbs, "resume", "go on with an interrupted run, or run a failed one again", _resume
    )
    add_run(again)
    again.add_argument("--detach", action="store_true", help="do not follow the run")


def _submit(namespace: argparse.Namespace) -> int:
    project = locate_project(_file(namespace), namespace.project)
    settings = load_settings(_flags(namespace), project, os.environ)
    request = _request(namespace, settings, project)

    told = _Told()

    async def work(ledger: Ledger, output: Output) -> int:
        if namespace.dry_run:
            shown = await dry_run(ledger, request, output.event)
            _show_dry_run(shown, output)
            return 0
        submitted = await submit(ledger, request, told.reporting(ledger, output))
        return await _after(ledger, submitted, output, namespace.detach)

    return _stoppable(namespace, told, lambda: run_async(namespace, work, settings))


def _resume(namespace: argparse.Namespace) -> int:
    told = _Told()

    async def work(ledger: Ledger, output: Output) -> int:
        run_id = await ledger.resolve(namespace.reference)
        submitted = await resume(ledger, run_id, told.reporting(ledger, output))
        return await _after(ledger, submitted, output, namespace.detach)

    return _stoppable(namespace, told, lambda: run_async(namespace, work))


class _Told:
    """What the user has been told: it decides what is true after Ctrl-C."""

    def __init__(self) -> None:
        #: Whether the scheduler may have the job.
        self.submitting = False
        #: The run's id, once it is submitted.
        self.submitted = ""

    def reporting(self, ledger: Ledger, output: Output) -> Callable[[dict[str, Any]], None]:
        """Return what shows events, and takes note."""

        def report(event: dict[str, Any]) -> None:
            self.submitting |= event.get("stage") == "submit"
            output.event(event)
            if event["event"] == "submitted":
                self.submitted = event["run"]
                # From here on the same command means another run.
                ledger.pending.release(self.submitted)

        return report


def _stoppable(namespace: argparse.Namespace, told: _Told, whole: Callable[[], int]) -> int:
    """Run the whole verb; Ctrl-C before the run is followed stops it, and says what remains."""
    try:
        return whole()
    except KeyboardInterrupt:
        if told.submitted:
            tell_detached(told.submitted, open_output(namespace.json), again=False)
            return 130
        if getattr(namespace, "dry_run", False):
            raise
        when = "while the run was being submitted" if told.submitting else "before it was submitted"
        raise _StoppedError(f"stopped {when}", "the same command goes on from here") from None


class _StoppedError(J2CError):
    code = "interrupted"
    exit_code = 130


async def _after(ledger: Ledger, submitted: Submitted, output: Output, detach: bool) -> int:
    run_id = submitted.run.id
    # Also of a run that was submitted before, of which nothing was reported.
    ledger.pending.release(run_id)
    if detach:
        output.say(f"j2c logs -f {run_id} follows it")
        if not output.json:
            output.print(run_id)
        return 0
    start = Position(submitted.submission.attempts_before + 1)
    return await follow_to_end(ledger, run_id, output, start)


def _file(namespace: argparse.Namespace) -> str | None:
    given = [namespace.entry, namespace.module, namespace.cell_file]
    if sum(value is not None for value in given) != 1:
        raise UsageError(
            "give one thing to run", "a script or notebook, or -m MODULE, or --cell-file FILE"
        )
    return namespace.entry if namespace.entry != "-" else None


def _flags(namespace: argparse.Namespace) -> dict[str, Any]:
    names = ("store", "venv", "base", "name", "gpus", "cpus", "memory", "nodes", "time", "image")
    flags = {name: getattr(namespace, name) for name in (*names, "queue", "scheduler")}
    flags["split_streams"] = namespace.split_streams
    flags["save_every"] = namespace.save_every
    flags["env"] = pairs(namespace.env, "--env")
    flags["inputs"] = pairs(namespace.input, "--input")
    flags["outputs"] = namespace.output or None
    return flags


def _request(namespace: argparse.Namespace, settings: Settings, project: str) -> Request:
    cell = None
    if namespace.entry == "-":
        cell = sys.stdin.read()
    elif namespace.cell_file is not None:
        try:
            cell = Path(namespace.cell_file).read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{namespace.cell_file} cannot be read: {error.strerror}") from None
    return make_request(
        project=project,
        prefix=settings.venv or default_prefix(os.environ),
        user=settings.user,
        entry=namespace.entry if namespace.entry != "-" else None,
        module=namespace.module,
        cell=cell,
        args=namespace.args,
        **settings.for_request(),
    )


def _show_dry_run(shown: dict[str, Any], output: Output) -> None:
    if output.json:
        output.event(shown)
        return
    import json

    from j2c_lab.cli.text import count, size

    output.print(json.dumps(shown["job"], indent=2, ensure_ascii=False))
    for layer in shown["layers"]:
        action = "send " if layer["send"] else "there"
        output.say(f"{action} {size(layer['bytes']):>8}  {layer['name']}")
    for what, sums in (("would send", shown["send"]), ("there already", shown["reuse"])):
        output.say(f"{what}: {count(sums['layers'], 'layer')}, {size(sums['bytes'])}")
