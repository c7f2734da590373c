"""How fast the cluster side comes up."""

from __future__ import annotations

import sys

from benchmarks import ours
from benchmarks.harness import Case, Command, Row, paired, ratio_row
from benchmarks.workspace import Workspace


def run(space: Workspace, repeats: int) -> list[Row]:
    """`j2c unpack --help` against the interpreter doing nothing."""
    del space
    helping = Command(name="j2c unpack --help", argv=[ours.J2C, "unpack", "--help"])
    nothing = Command(name="python -c pass", argv=[sys.executable, "-c", "pass"])
    pairs = paired(helping, nothing, repeats)
    return [ratio_row("j2c unpack --help", "python -c pass", 5, pairs)]


CASE = Case(name="start", run=run, repeats=31, about="The same interpreter on both sides.")
