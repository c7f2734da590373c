"""`j2c pack`: into the store, or into one file."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from j2c_lab.cli.common import add_store, run_async, verb
from j2c_lab.cli.output import Output
from j2c_lab.cli.submit_verb import add_sources, source_settings
from j2c_lab.config import default_prefix
from j2c_lab.runs.ask import locate_project, make_request
from j2c_lab.runs.ledger import Ledger
from j2c_lab.runs.packing import pack


def add(verbs: Any) -> None:
    """Add the verb."""
    parser = verb(verbs, "pack", "pack a project and its environment", _pack)
    what = parser.add_argument_group("what to pack")
    what.add_argument("directory", metavar="PROJECT", nargs="?", help="the project (found upwards)")
    add_sources(what)
    where = parser.add_argument_group("where to")
    where.add_argument("-o", "--output", metavar="FILE.tar.zst", help="write one file instead")
    add_store(where)


def _pack(namespace: argparse.Namespace) -> int:
    project = locate_project(None, namespace.directory or namespace.project)
    flags = {"store": namespace.store, "venv": namespace.venv, "base": namespace.base}
    settings = source_settings(flags, project)
    request = make_request(
        project=project,
        prefix=settings.venv or default_prefix(os.environ),
        user=settings.user,
        cell="",
        **settings.for_request(),
    )

    async def work(ledger: Ledger, output: Output) -> int:
        result = (await pack(request, ledger.store, output.event)).result
        for left in result.left_out:
            if output.json:
                output.event(
                    {"event": "left_out", "path": left.path, "rule": left.rule, "size": left.size}
                )
            else:
                output.say(f"left out {left.path} ({left.rule})")
        if namespace.output:
            from j2c_lab.pack.archive import write_archive

            size = await write_archive(result.manifest, ledger.store, Path(namespace.output))
            output.event({"event": "archive", "file": namespace.output, "bytes": size})
        if not output.json:
            output.print(result.digest)
        return 0

    return run_async(namespace, work, settings)
