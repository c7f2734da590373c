"""`j2c store check`, `j2c gc` and `j2c rm`: looking after the store."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from j2c_lab.cli import text
from j2c_lab.cli.common import add_run, add_store, run_async, verb
from j2c_lab.cli.output import Output
from j2c_lab.errors import FormatError, UsageError
from j2c_lab.runs.ledger import Ledger


def add(verbs: Any) -> None:
    """Add the verbs."""
    store = verb(verbs, "store", "find out whether the store can do what j2c needs", _check)
    store.add_argument("action", choices=("check",), help="try out everything that j2c does")
    add_store(store)
    collect = verb(verbs, "gc", "remove layers and bundles that no run needs", _collect)
    collect.add_argument(
        "--older-than",
        default="30d",
        metavar="TIME",
        help="not used for so long (30d; 2d at least)",
    )
    collect.add_argument("--dry-run", action="store_true", help="only say what would go")
    add_store(collect)
    remove = verb(verbs, "rm", "remove a run that is over, with its log and outputs", _remove)
    add_run(remove)


def _check(namespace: argparse.Namespace) -> int:
    async def work(ledger: Ledger, output: Output) -> int:
        from j2c_lab.store.check import ERROR, check

        bad = False
        async for finding in check(ledger.store):
            bad = bad or finding.severity == ERROR
            if output.json:
                output.event({"event": "check", **finding._asdict()})
                continue
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            output.print(f"{finding.severity:<8} {finding.name:<7} {finding.message}{remedy}")
        return 125 if bad else 0

    return run_async(namespace, work)


def _collect(namespace: argparse.Namespace) -> int:
    from j2c_lab.formats.run import parse_time

    older_than = parse_time(namespace.older_than)

    async def work(ledger: Ledger, output: Output) -> int:
        from j2c_lab.runs.gc import collect

        done = await collect(ledger.store, older_than, namespace.dry_run)
        if output.json:
            output.event(done.summary(namespace.dry_run))
        else:
            what = f"{text.count(done.layers, 'layer')} and {text.count(done.bundles, 'bundle')}"
            verb_ = "would remove" if namespace.dry_run else "removed"
            output.print(
                f"{verb_} {what} ({text.size(done.bytes)}); "
                f"{text.count(done.kept_layers, 'layer')} stay"
            )
        return 0

    return run_async(namespace, work)


def _remove(namespace: argparse.Namespace) -> int:
    async def work(ledger: Ledger, output: Output) -> int:
        from j2c_lab.runs.delete import delete
        from j2c_lab.runs.view import INTERRUPTED, view

        run_id = await ledger.resolve(namespace.reference)
        # A run whose documents are damaged can never go on: to remove it is all that is left.
        with contextlib.suppress(FormatError):
            seen = await view(ledger, run_id)
            if not seen.ended and seen.state != INTERRUPTED:
                raise UsageError(f"run {run_id} is not over", f"j2c cancel {run_id} ends it")
        await delete(ledger, run_id)
        if output.json:
            output.event({"event": "removed", "run": run_id})
        else:
            output.say(f"removed run {run_id}; j2c gc frees the layers that no other run needs")
        return 0

    return run_async(namespace, work)
