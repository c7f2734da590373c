"""`j2c base`, `j2c unpack` (parsed by itself, see `main`) and `j2c completion`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from j2c_lab.cli import completion
from j2c_lab.cli.common import verb
from j2c_lab.cli.output import open_output
from j2c_lab.errors import J2CError


def add(verbs: Any) -> None:
    """Add the verbs."""
    base = verb(verbs, "base", "write the inventory of this image", _base)
    completion.mark(
        base.add_argument("-o", "--output", metavar="FILE", help="into a file (standard output)"),
        completion.FILE,
    )
    verbs.add_parser("unpack", help="the cluster side: fetch, unpack and execute a run")
    shell = verb(verbs, "completion", "print a script that completes j2c", _completion)
    shell.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def _base(namespace: argparse.Namespace) -> int:
    from j2c_lab.pack.base_image import take_inventory

    data = take_inventory().to_json()
    if namespace.output is None:
        sys.stdout.buffer.write(data)
        return 0
    try:
        Path(namespace.output).write_bytes(data)
    except OSError as error:
        raise J2CError(f"{namespace.output} cannot be written: {error.strerror}") from None
    open_output(namespace.json).say(f"wrote {namespace.output}")
    return 0


def _completion(namespace: argparse.Namespace) -> int:
    import shtab

    from j2c_lab.cli.main import make_parser

    # The annotation of `preamble` forgets the mapping that its documentation asks for.
    script = shtab.complete(make_parser(), namespace.shell, preamble=completion.PREAMBLE)  # type: ignore[arg-type,unused-ignore]
    print(script)
    return 0
