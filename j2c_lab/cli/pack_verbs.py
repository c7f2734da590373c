"""`j2c pack`: into the store, or into one file."""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path
from typing import Any

from j2c_lab.cli.common import add_sources, add_store, run_with_store, verb
from j2c_lab.cli.output import Output
from j2c_lab.config import default_prefix, load_settings
from j2c_lab.runs.packing import Sources, pack
from j2c_lab.store.base import Store


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
    from j2c_lab.pack.project import find_project

    # 13,000 files make 100,000 records, none of them garbage before the end of this short process.
    gc.disable()
    project = find_project(os.getcwd(), namespace.directory or namespace.project)
    flags = {"store": namespace.store, "venv": namespace.venv, "base": namespace.base}
    settings = load_settings(flags, project, os.environ)
    sources = Sources(
        project=project,
        prefix=settings.venv or default_prefix(os.environ),
        exclude=settings.exclude,
        base=os.path.abspath(settings.base) if settings.base else "",
    )

    async def work(store: Store, output: Output) -> int:
        result = (await pack(sources, store, output.event)).result
        for left in result.left_out:
            output.event(
                {"event": "left_out", "path": left.path, "rule": left.rule, "size": left.size}
            )
        if namespace.output:
            from j2c_lab.pack.archive import write_archive

            size = await write_archive(result.manifest, store, Path(namespace.output))
            output.event({"event": "archive", "file": namespace.output, "bytes": size})
        if not output.json:
            output.print(result.digest)
        return 0

    return run_with_store(namespace, work, settings)
