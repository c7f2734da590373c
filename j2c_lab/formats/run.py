"""What is stored of a run: what was asked, what was submitted, how it ended."""

from __future__ import annotations

import dataclasses
import os
import re
import time

from j2c_lab.errors import UsageError
from j2c_lab.formats.record import Record

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")


def new_run_id(now: float | None = None, token: str | None = None) -> str:
    """Return a run id that sorts by time: `20261201-025028-7f3a9c` (UTC).

    The last six digits are the fraction of the second, in 4096ths, and three random ones: of two
    runs within one second the later one is the last, and two of one moment still differ.

    Parameters
    ----------
    now : float, optional
        Seconds since the epoch; the clock's time if not given.
    token : str, optional
        The last six hexadecimal digits, if they are not to be made.
    """
    now = time.time() if now is None else now
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{token or f'{int(now % 1 * 4096):03x}{os.urandom(2).hex()[:3]}'}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources(Record):
    """What a run asks of the scheduler; None leaves it to the scheduler's default."""

    #: GPUs and CPUs are for each node, as memory is.
    gpus: int = 0
    cpus: int | None = None
    #: Bytes, for each node.
    memory: int | None = None
    nodes: int = 1
    #: Seconds.
    time: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntryPoint(Record):
    """What is executed.

    Attributes
    ----------
    kind : str
        `script` (a file in the project), `module` (as `python -m`), `notebook` (a file in the
        project), or `cell` (text that travels in `source`, run as a script of the directory
        `cwd`).
    target : str
        Path relative to the project for `script` and `notebook`, dotted name for `module`, a
        name for the traceback for `cell`.
    """

    kind: str
    target: str
    source: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Record):
    """`run.json`: written once, before anything is given to a scheduler."""

    FORMAT = 1

    format: int = 1
    id: str
    user: str
    name: str
    #: Seconds since the epoch.
    created: float
    #: Digest of the bundle.
    bundle: str
    entry: EntryPoint
    args: list[str] = dataclasses.field(default_factory=list)
    #: Directory to run in, relative to the project; empty for the project itself.
    cwd: str = ""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    #: From NAME to a URL or path that the cluster can read.
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Globs, relative to the output directory or the project, of what is brought back.
    outputs: list[str] = dataclasses.field(default_factory=list)
    resources: Resources = dataclasses.field(default_factory=Resources)
    scheduler: str = "local"
    image: str | None = None
    queue: str | None = None
    #: What its scheduler alone understands: an account, a container command, …
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Seconds between TERM and KILL, in which outputs are saved.
    grace: float = 30.0
    #: Seconds between two saves of the outputs while the run goes on; 0 saves at the end only.
    save_every: float = 0.0
    #: One pipe for both streams keeps their order exact; two keep them apart.
    split_streams: bool = False
    #: Where it came from, for people: the host's name and the project's path there.
    host: str = ""
    project: str = ""
    #: Interpreter below the environment there. Where both sides share an image, it is here too.
    python: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(Record):
    """What a scheduler is given. Its command is always `j2c unpack <run URL>`."""

    FORMAT = 1

    format: int = 1
    run_id: str
    name: str
    user: str
    run_url: str
    command: list[str]
    resources: Resources
    #: 1, and one more each time the run is given to the scheduler again after it had ended: the
    #: scheduler holds at most one job for a run id and this number.
    submission: int = 1
    image: str | None = None
    queue: str | None = None
    #: As in `Run`.
    options: dict[str, str] = dataclasses.field(default_factory=dict)
    #: As in `Run`: how long before its end a job should be warned.
    grace: float = 30.0
    #: As in `Submission`: a scheduler that counts attempts itself goes on from here.
    attempts_before: int = 0
    #: Environment of `j2c unpack` itself; the user's own `--env` travels in `run.json`.
    env: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission(Record):
    """`submission.json`, and `submission-2.json` …: the scheduler has the job."""

    scheduler: str
    #: What the scheduler calls the job; its meaning is the scheduler's own.
    handle: str
    #: Seconds since the epoch.
    submitted: float
    #: As in `Job`.
    number: int = 1
    #: The last attempt before this submission: later ones belong to it.
    attempts_before: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancellation(Record):
    """`cancel.json`: somebody asked for the end of the run, before the scheduler was told."""

    by: str
    #: Seconds since the epoch.
    at: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptStart(Record):
    """`attempts/<n>/<rank>/start.json`: `j2c unpack` came up; claims the attempt's number."""

    attempt: int
    rank: int = 0
    host: str = ""
    started: float = 0.0
    pid: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputFile(Record):
    """One file that was saved; `path` is relative to the directory it is fetched into."""

    path: str
    size: int
    sha256: str
    executable: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedOutputs(Record):
    """`attempts/<n>/<rank>/outputs.json`: the last saved state, written anew with each."""

    #: Seconds since the epoch.
    saved: float
    outputs: list[OutputFile] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome(Record):
    """`attempts/<n>/<rank>/outcome.json`: written last, once."""

    attempt: int
    rank: int = 0
    #: `succeeded`, `failed` or `cancelled`.
    state: str
    #: Exit code of the user's process, or None when a signal ended it or it never started.
    exit_code: int | None = None
    signal: int | None = None
    #: One line that says why, empty when it succeeded.
    reason: str = ""
    started: float = 0.0
    finished: float = 0.0
    outputs: list[OutputFile] = dataclasses.field(default_factory=list)
    #: Number of journal records, so that a reader knows when it has the last one.
    journal_records: int = 0

    def process_exit_code(self) -> int:
        """Return what a shell would report: the code, 128 + signal, or 125 if nothing started."""
        if self.signal is not None:
            return 128 + self.signal
        return 125 if self.exit_code is None else self.exit_code


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIME_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_memory(text: str) -> int:
    """Return bytes: `16G`, `512M`, `1.5T`, `16GiB`, or a plain number of bytes (1 K = 1024)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if not match or float(match[1]) <= 0:
        raise UsageError(f"{text!r} is no amount of memory", "write it like 16G or 512M")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_time(text: str) -> int:
    """Return seconds: `2h`, `90m`, `1h30m`, `3d`, `HH:MM:SS`, or a plain number of seconds."""
    text = text.strip().lower()
    if text.isdigit() and int(text) > 0:
        return int(text)
    if match := re.fullmatch(r"(\d+):([0-5]?\d):([0-5]?\d)", text):
        hours, minutes, seconds = (int(group) for group in match.groups())
        total: float = hours * 3600 + minutes * 60 + seconds
    elif re.fullmatch(r"(?:\d+(?:\.\d+)?[smhd])+", text):
        total = sum(
            float(number) * _TIME_UNITS[unit]
            for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
        )
    else:
        total = 0
    if total < 1:
        raise UsageError(f"{text!r} is no time", "write it like 2h, 90m or 1h30m")
    return int(total)
