"""`j2c list | status | logs | cancel | fetch`: verbs on runs that were submitted."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from j2c_lab.cli import text
from j2c_lab.cli.common import add_run, add_store, run_async, verb
from j2c_lab.cli.following import PRIMED, follow_to_end
from j2c_lab.cli.output import JsonOutput, Output
from j2c_lab.errors import UsageError
from j2c_lab.runs.cancel import cancel
from j2c_lab.runs.follow import Position, records_so_far
from j2c_lab.runs.journal_reader import read_tail
from j2c_lab.runs.ledger import Ledger
from j2c_lab.runs.outputs import fetch
from j2c_lab.runs.view import STATES, RunView, listed_view, view


def add(verbs: Any) -> None:
    """Add the verbs."""
    lister = verb(verbs, "list", "list your runs, newest first", _list)
    add_store(lister)
    lister.add_argument("--limit", type=int, default=20, metavar="N", help="at most N (20)")
    lister.add_argument("--all", action="store_true", help="all of them")
    lister.add_argument("--after", metavar="ID", help="only runs older than this one")
    lister.add_argument("--state", metavar="STATE", help="only runs in this state, as failed")
    lister.add_argument("--names", action="store_true", help=argparse.SUPPRESS)
    status = verb(verbs, "status", "show what is known of a run", _status)
    add_run(status)
    logs = verb(verbs, "logs", "print a run's log", _logs)
    add_run(logs)
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")
    logs.add_argument("--tail", type=int, metavar="N", help="only the last N lines")
    logs.add_argument("--since", type=int, metavar="N", help="only what comes after record N")
    logs.add_argument("--rank", type=int, metavar="N", help="only what node N said (all)")
    logs.add_argument("--attempt", type=int, metavar="N", help="of this attempt (the last)")
    stop = verb(verbs, "cancel", "end a run, whatever it is doing", _cancel)
    add_run(stop)
    bring = verb(verbs, "fetch", "bring a run's outputs here", _fetch)
    add_run(bring)
    bring.add_argument(
        "-o", "--output", metavar="DIR", help="into this directory (j2c_outputs/<run id>)"
    )


def _list(namespace: argparse.Namespace) -> int:
    if namespace.state is not None and namespace.state not in STATES:
        raise UsageError(
            f"there is no state {namespace.state!r}", f"give one of: {', '.join(STATES)}"
        )

    async def work(ledger: Ledger, output: Output) -> int:
        if namespace.names:
            # For the shell's completion: no scheduler is asked.
            async for run_id, name in ledger.newest(50):
                output.print(f"{run_id}\n{name}")
            return 0
        ids = await ledger.ids()
        if namespace.after is not None:
            after = await ledger.resolve(namespace.after)
            ids = [run_id for run_id in ids if run_id < after]
        limit = len(ids) if namespace.all else namespace.limit
        shown: list[RunView] = []
        for run_id in ids:
            if len(shown) >= limit:
                break
            seen = await listed_view(ledger, run_id)
            if seen is None:
                continue
            if namespace.state is None or seen.state == namespace.state:
                shown.append(seen)
                if output.json:
                    output.document(seen.to_dict())
        if shown and not output.json:
            _print_list(shown, output)
        elif not ids and namespace.after is None:
            output.say("there are no runs here yet; j2c submit train.py makes one")
        elif not shown:
            output.say("no run is like that; j2c list --all shows all of them")
        return 0

    return run_async(namespace, work)


def _print_list(shown: list[RunView], output: Output) -> None:
    now = time.time()
    rows = []
    for run in shown:
        took = run.duration
        if took is None and run.started is not None and not run.ended:
            took = now - run.started
        rows.append(
            [
                run.id,
                run.state,
                run.name,
                text.moment(run.created, now),
                "" if took is None else text.duration(took),
                run.reason,
            ]
        )
    shown_as = text.table(rows, ["RUN", "STATE", "NAME", "CREATED", "TOOK", ""])
    if sys.stdout.isatty():
        # Wrapped lines are no table; `j2c status` shows the whole reason.
        width = shutil.get_terminal_size().columns
        shown_as = "\n".join(line[:width] for line in shown_as.splitlines())
    output.print(shown_as)


def _status(namespace: argparse.Namespace) -> int:
    async def work(ledger: Ledger, output: Output) -> int:
        run = await view(ledger, await ledger.resolve(namespace.reference))
        if output.json:
            output.document(run.to_dict(files=True))
        else:
            _print_status(run, output)
        return 0

    return run_async(namespace, work)


def _print_status(run: RunView, output: Output) -> None:
    now = time.time()
    state = run.state + (f": {run.reason}" if run.reason else "")
    lines = [
        ("run", run.id),
        ("name", run.name),
        ("state", state),
        ("entry", " ".join([run.entry, *run.args])),
        ("project", f"{run.project} on {run.host}"),
        ("created", text.moment(run.created, now)),
        ("started", "" if run.started is None else text.moment(run.started, now)),
        ("took", "" if run.duration is None else text.duration(run.duration)),
        ("exit code", "" if run.exit_code is None else str(run.exit_code)),
        ("attempt", str(run.attempt) if run.attempt > 1 else ""),
        ("asked for", _asked(run)),
        ("job", f"{run.scheduler} {run.handle}" if run.handle else ""),
        ("url", run.url),
    ]
    for label, value in lines:
        if value:
            output.print(f"{label:<10} {text.visible(value)}")
    for file in run.outputs:
        output.print(f"{'output':<10} {text.visible(file.path)} ({text.size(file.size)})")


def _asked(run: RunView) -> str:
    asked = run.resources
    parts = [
        text.count(asked.gpus, "GPU") if asked.gpus else "",
        text.count(asked.cpus, "CPU") if asked.cpus else "",
        f"{text.size(asked.memory)} of memory" if asked.memory else "",
        text.count(asked.nodes, "node") if asked.nodes > 1 else "",
        text.duration(asked.time) if asked.time else "",
    ]
    return ", ".join(part for part in parts if part)


def _logs(namespace: argparse.Namespace) -> int:
    for name in ("tail", "since"):
        if (getattr(namespace, name) or 0) < 0:
            raise UsageError(f"--{name} takes a number from 0 up")

    async def work(ledger: Ledger, output: Output) -> int:
        run_id = await ledger.resolve(namespace.reference)
        attempts = await ledger.attempts(run_id)
        attempt = namespace.attempt or max(attempts, default=1)
        if namespace.attempt is not None and attempt not in attempts:
            raise UsageError(f"run {run_id} has no attempt {attempt}")
        output.rank = namespace.rank
        since = namespace.since or 0
        if not namespace.follow and (output.json or not attempts):
            seen = await view(ledger, run_id)
            output.event(
                {
                    "event": "state",
                    "run": run_id,
                    "state": seen.state,
                    "reason": seen.reason,
                    "attempt": attempt,
                }
            )
        if namespace.tail is not None and attempts:
            since = await _print_tail(ledger, run_id, attempt, namespace.tail, output)
        if namespace.follow:
            return await follow_to_end(ledger, run_id, output, Position(attempt, since))
        if namespace.tail is None:
            await _print_all(ledger, run_id, attempt, since, output)
        return 0

    return run_async(namespace, work)


async def _print_all(ledger: Ledger, run_id: str, attempt: int, since: int, output: Output) -> None:
    async for rank, record in records_so_far(ledger, run_id, attempt, max(0, since - PRIMED)):
        if record.number > since:
            output.record(attempt, rank, record)
        elif isinstance(output, JsonOutput):
            output.prime(attempt, rank, record)


async def _print_tail(ledger: Ledger, run_id: str, attempt: int, lines: int, output: Output) -> int:
    """Print the last lines, and return the number of the last record that is shown."""
    last = 0
    for rank in await ledger.ranks(run_id, attempt):
        records = await read_tail(ledger.store, ledger.user, run_id, attempt, rank, lines)
        for record in last_lines(records, lines):
            output.record(attempt, rank, record)
        last = max([last, *(record.number for record in records)])
    return last


def last_lines(records: list[Any], lines: int) -> list[Any]:
    """Return the records from where the last `lines` lines begin; the first may be cut."""
    wanted = lines
    kept: list[Any] = []
    ended = False
    for record in reversed(records):
        if record.kind != "log":
            kept.append(record)
            continue
        payload = record.payload
        end = len(payload)
        if not ended and payload:
            # The newline at the very end closes the last line, and begins none.
            ended = True
            end -= payload.endswith(b"\n")
        place = end
        while wanted > 0 and (place := payload.rfind(b"\n", 0, place)) >= 0:
            wanted -= 1
        if wanted <= 0:
            if lines > 0:
                cut = place + 1
                kept.append(record._replace(payload=payload[cut:], at=record.at + cut))
            break
        kept.append(record)
    return kept[::-1]


def _cancel(namespace: argparse.Namespace) -> int:
    async def work(ledger: Ledger, output: Output) -> int:
        run_id = await ledger.resolve(namespace.reference)
        before = await cancel(ledger, run_id, by=ledger.user)
        if before.ended:
            output.say(f"run {run_id} had ended already: {before.state}")
            if output.json:
                output.event({"event": "warning", "message": f"run {run_id} had ended already"})
        else:
            output.event({"event": "cancelling", "run": run_id})
        return 0

    return run_async(namespace, work)


def _fetch(namespace: argparse.Namespace) -> int:
    async def work(ledger: Ledger, output: Output) -> int:
        run_id = await ledger.resolve(namespace.reference)
        directory = Path(namespace.output) if namespace.output else None
        fetched = await fetch(ledger, run_id, directory, output.event)
        output.close()
        output.event(
            {
                "event": "fetched",
                "run": run_id,
                "directory": str(fetched.directory),
                "files": fetched.files,
                "bytes": fetched.bytes,
                "skipped": fetched.skipped,
            }
        )
        return 0

    return run_async(namespace, work)
