"""What several verbs share: options, and the way to the store."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

from j2c_lab.cli import completion
from j2c_lab.cli.output import Output, open_output
from j2c_lab.config import Settings, load_settings
from j2c_lab.errors import UsageError
from j2c_lab.runs.ledger import Ledger
from j2c_lab.store.opener import open_store


def verb(
    verbs: Any, name: str, help: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a verb with the options that every verb has."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=help, description=f"{help[0].upper()}{help[1:]}.", allow_abbrev=False
    )
    parser.set_defaults(run=run)
    shown = parser.add_argument_group("output")
    shown.add_argument("--json", action="store_true", help="one JSON object a line")
    shown.add_argument("--debug", action="store_true", help="show where an error came from")
    return parser


def add_store(parser: Any) -> None:
    """Add `--store`."""
    parser.add_argument(
        "--store", metavar="URL", help="where layers and runs live (a directory or a URL)"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN and `--store`."""
    completion.mark(
        parser.add_argument("reference", metavar="RUN", help="id, part of one, name, or last"),
        completion.RUN,
    )
    add_store(parser)


def settings_of(namespace: argparse.Namespace, project: str | None = None) -> Settings:
    """Return the settings for a verb that is called in the current directory."""
    flags = {"store": getattr(namespace, "store", None)}
    return load_settings(flags, project or os.getcwd(), os.environ)


def open_ledger(settings: Settings) -> Ledger:
    """Return the ledger of the user in the store of these settings."""
    return Ledger(open_store(settings.store), settings.user)


def run_async(
    namespace: argparse.Namespace,
    work: Callable[[Ledger, Output], Coroutine[Any, Any, int]],
    settings: Settings | None = None,
) -> int:
    """Run a verb's work with its ledger and output, and close both."""

    async def whole() -> int:
        ledger = open_ledger(settings or settings_of(namespace))
        output = open_output(namespace.json)
        try:
            return await work(ledger, output)
        finally:
            output.close()
            await ledger.store.close()

    return asyncio.run(whole())


def pairs(given: list[str], option: str) -> dict[str, str]:
    """Return `K=V` options as a mapping; the value is everything after the first `=`."""
    found = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {item!r} has no value", f"write {option} NAME=VALUE")
        found[name] = value
    return found
