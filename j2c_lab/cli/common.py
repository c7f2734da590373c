"""What several verbs share: options, and the way to the store."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from j2c_lab import loops
from j2c_lab.cli import completion
from j2c_lab.cli.output import Output, open_output
from j2c_lab.config import Settings, load_settings
from j2c_lab.errors import UsageError

if TYPE_CHECKING:
    from j2c_lab.runs.ledger import Ledger
    from j2c_lab.store.base import Store


def verb(
    verbs: Any, name: str, help: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a verb with the options that every verb has."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=help, description=f"{help[0].upper()}{help[1:]}.", allow_abbrev=False
    )
    parser.set_defaults(run=run, parser=parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
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


def add_sources(group: Any) -> None:
    """Add the options that say what is packed."""
    for option, metavar, help in (
        ("--project", "DIR", "the project (found upwards by default)"),
        ("--venv", "PREFIX", "the environment to pack (the active one by default)"),
    ):
        action = group.add_argument(option, metavar=metavar, help=help)
        completion.mark(action, completion.DIRECTORY)
    group.add_argument("--base", metavar="FILE", help="inventory of the base image (j2c base -o)")


def settings_of(namespace: argparse.Namespace, project: str | None = None) -> Settings:
    """Return the settings for a verb that is called in the current directory."""
    flags = {"store": getattr(namespace, "store", None)}
    return load_settings(flags, project or os.getcwd(), os.environ)


def run_async(
    namespace: argparse.Namespace,
    work: Callable[[Ledger, Output], Coroutine[Any, Any, int]],
    settings: Settings | None = None,
) -> int:
    """Run a verb's work with its ledger and output, and close both."""
    import asyncio

    from j2c_lab.runs.ledger import Ledger

    settings = settings or settings_of(namespace)
    user = settings.user
    whole = _with_store(
        namespace, settings, lambda store, output: work(Ledger(store, user), output)
    )
    return asyncio.run(whole)


def run_with_store(
    namespace: argparse.Namespace,
    work: Callable[[Store, Output], Coroutine[Any, Any, int]],
    settings: Settings,
) -> int:
    """Run a verb's work that needs the store alone; see `loops` for what `work` must heed."""
    return loops.run(_with_store(namespace, settings, work))


async def _with_store(
    namespace: argparse.Namespace,
    settings: Settings,
    work: Callable[[Store, Output], Coroutine[Any, Any, int]],
) -> int:
    from j2c_lab.store.opener import open_store

    output = open_output(namespace.json)
    store = open_store(settings.store)
    if store.local_path("") is None:
        # All but directories wait for answers.
        await loops.need_loop()
    try:
        return await work(store, output)
    finally:
        output.close()
        await store.close()


def pairs(given: list[str], option: str) -> dict[str, str]:
    """Return `K=V` options as a mapping; the value is everything after the first `=`."""
    found = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {item!r} has no value", f"write {option} NAME=VALUE")
        found[name] = value
    return found
