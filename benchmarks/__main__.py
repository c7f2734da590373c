"""Run the cases that are named, or all; write `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import machine, report
from benchmarks.cases import CASES
from benchmarks.harness import say
from benchmarks.workspace import HERE, Workspace

PAGE = HERE.parent / "docs" / "benchmarks.md"


def main() -> int:
    """Return 0 when every case could be measured, whatever the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, help="of each side, instead of the case's own")
    parser.add_argument("--dry-run", action="store_true", help="print; leave the page alone")
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where the environments are made"
    )
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")

    space = Workspace(options.work.resolve())
    space.prepare(say)
    results = space.root / "results"
    results.mkdir(exist_ok=True)
    where = machine.describe(space.root)
    failed = []
    for name in options.cases or CASES:
        case = CASES[name]
        say(f"{name} …")
        try:
            rows = case.run(space, options.repeats or case.repeats)
        except RuntimeError as error:
            say(f"  could not be measured: {error}")
            failed.append(name)
            continue
        report.remember(results, name, rows, where)
        for row in rows:
            say(f"  {row.case}: {row.measured}, at most {row.target}; {row.figures}")
    space.empty_trash()
    if not options.dry_run:
        report.write(results, PAGE)
    if failed:
        say(f"not measured: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
