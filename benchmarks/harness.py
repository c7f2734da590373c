"""Running commands, comparing them pair by pair, and the rows that come of it."""

from __future__ import annotations

import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.workspace import Workspace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """Something to run and to time.

    Attributes
    ----------
    argv : list of str
        The program and its arguments; a pipeline goes through `shell`.
    env : dict
        Added to the environment of this process.
    before : callable
        Makes the same starting point for every repeat; not timed.
    output : Path, optional
        Where standard output goes; nowhere if not given.
    """

    name: str
    argv: Sequence[str | os.PathLike[str]]
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    output: Path | None = None


class Timing(NamedTuple):
    """One execution of a command."""

    #: Wall time and CPU time (user and system, children included), in seconds.
    seconds: float
    cpu: float


class Pairs(NamedTuple):
    """Repeats of two commands, alternating."""

    ours: list[Timing]
    peer: list[Timing]

    def ratios(self) -> list[float]:
        """Ours through the peer's wall time, pair by pair."""
        return [a.seconds / b.seconds for a, b in zip(self.ours, self.peer, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table."""

    case: str
    #: What is asked, as the table says it: `0.9 × tar | zstd`.
    target: str
    measured: str
    #: None where nothing is asked or nothing could be measured.
    holds: bool | None
    #: Absolute figures: medians, smallest and largest, counts.
    figures: str = ""


class Case(NamedTuple):
    """One benchmark: `run` measures and returns rows; `notes` say why a figure falls short."""

    name: str
    run: Callable[[Workspace, int], list[Row]]
    #: Repeats of each side unless the command line says otherwise.
    repeats: int
    #: What is compared, and what is the same on both sides.
    about: str
    #: Why it falls short and what was tried; shown only when it does.
    why: str = ""


def shell(script: str) -> list[str]:
    """Return an argv for a pipeline that fails when any part of it does."""
    return ["bash", "-euo", "pipefail", "-c", script]


def environment(command: Command) -> dict[str, str]:
    """Return the command's whole environment: this process's, as a user has it.

    Without settings of Python: where bytecode may not be written (usual in containers), every
    start of j2c would compile it anew.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**own, **command.env}


def timed(command: Command) -> Timing:
    """Run once, from its starting point.

    Raises
    ------
    RuntimeError
        It exited with an error; what it wrote to standard error is in the message.
    """
    command.before()
    # What earlier commands left to be written must not slow this one down.
    os.sync()
    with open(command.output or os.devnull, "wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env=environment(command),
        )
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        text = errors.decode(errors="replace")[-2000:]
        raise RuntimeError(f"{command.name} exited with {process.returncode}:\n{text}")
    return Timing(seconds, usage.ru_utime + usage.ru_stime)


def paired(ours: Command, peer: Command, repeats: int, *, warm_up: bool = True) -> Pairs:
    """Run both in turn, `repeats` times, after one run of each that does not count."""
    pairs = Pairs([], [])
    for number in range(-1 if warm_up else 0, repeats):
        pair = timed(ours), timed(peer)
        say(f"    {ours.name} {pair[0].seconds:.3f} s, {peer.name} {pair[1].seconds:.3f} s")
        if number >= 0:
            pairs.ours.append(pair[0])
            pairs.peer.append(pair[1])
    return pairs


def ratio_row(case: str, peer: str, limit: float, pairs: Pairs, figures: str = "") -> Row:
    """Return the row of a comparison whose median ratio may be `limit` at most."""
    ratios = pairs.ratios()
    median = statistics.median(ratios)
    absolute = f"j2c {spread([t.seconds for t in pairs.ours])}, "
    absolute += f"{peer} {spread([t.seconds for t in pairs.peer])}"
    absolute += f"; CPU {cpu(pairs.ours)} and {cpu(pairs.peer)}"
    return Row(
        case=case,
        target=f"{limit:g} × {peer}",
        measured=f"**{median:.3g}** ({min(ratios):.3g} to {max(ratios):.3g})",
        holds=median <= limit,
        figures="; ".join(filter(None, (absolute, figures))),
    )


def cpu(timings: list[Timing]) -> str:
    """Median CPU time, for people."""
    return f"{statistics.median(t.cpu for t in timings):.3g} s"


def spread(seconds: list[float]) -> str:
    """Median, smallest and largest, for people: milliseconds below a second."""
    median, low, high = statistics.median(seconds), min(seconds), max(seconds)
    if median < 1:
        return f"{median * 1e3:.0f} ms ({low * 1e3:.0f} to {high * 1e3:.0f})"
    return f"{median:.2f} s ({low:.2f} to {high:.2f})"


def megabytes(size: int) -> str:
    """10^6 bytes, for people."""
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.3g} MB"


def say(line: str) -> None:
    """Tell what goes on, on standard error."""
    print(line, file=sys.stderr, flush=True)
