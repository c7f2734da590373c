"""The table in `docs/benchmarks.md`, between two markers; the rest is written by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from benchmarks.cases import CASES
from benchmarks.harness import Row

BEGIN = "<!-- begin: written by python -m benchmarks -->"
END = "<!-- end -->"

_VERDICTS = {True: "holds", False: "**falls short**", None: ""}


def remember(directory: Path, name: str, rows: Iterable[Row], machine: str) -> None:
    """Keep a case's rows, so that single cases can be run again."""
    values = [vars(row) for row in rows]
    entry = {"machine": machine, "day": date.today().isoformat(), "rows": values}
    (directory / f"{name}.json").write_text(json.dumps(entry, indent=1))


def write(directory: Path, page: Path) -> str:
    """Put the table of all cases that were measured into the page; return the table."""
    table = render(directory)
    text = page.read_text() if page.exists() else "# Benchmarks\n"
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    page.write_text(f"{head}{BEGIN}\n{table}{END}{rest.partition(END)[2]}")
    return table


def render(directory: Path) -> str:
    """Return the table, what each case compares, and why a figure falls short."""
    lines = [
        "| case | at most | measured (smallest to largest) | |",
        "|---|---|---|---|",
    ]
    figures, notes, machines = [], [], []
    for name, case in CASES.items():
        path = directory / f"{name}.json"
        if not path.exists():
            continue
        entry = json.loads(path.read_text())
        rows = [Row(**values) for values in entry["rows"]]
        machines.append(f"{entry['machine']} ({entry['day']})")
        lines += [
            f"| {row.case} | {row.target} | {row.measured} | {_VERDICTS[row.holds]} |"
            for row in rows
        ]
        figures += [f"- {row.case}, {row.target}: {row.figures}." for row in rows]
        notes.append(f"- `{name}`: {case.about}")
        if case.why and not all(row.holds for row in rows):
            notes.append(f"  Why it falls short: {case.why}")
    parts = [
        "\n".join(lines),
        "Measured on " + "; ".join(dict.fromkeys(machines)) + ".",
        "Medians of paired repeats: the two sides run in turn, the ratio is taken pair by pair. "
        "Everything both sides read is in the page cache, and what was written before is on disk "
        "before each timed command.",
        "Absolute figures, median (smallest to largest):\n\n" + "\n".join(figures),
        "What is compared:\n\n" + "\n".join(notes),
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"
