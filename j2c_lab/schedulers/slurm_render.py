"""From a job to what Slurm is given: sbatch's arguments and the batch script. Pure.

The script carries the environment itself, quoted by bash's own rules: `--export` splits at commas,
and takes the last of several. It is pure ASCII, since sbatch refuses scripts with `\\r\\n`.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from typing import NamedTuple

from j2c_lab.errors import UsageError
from j2c_lab.formats.run import Job
from j2c_lab.schedulers.slurm_script import SCRIPT, SRUN_TASK, TELL_ALL, TELL_ONE, TOLD

#: What `[tool.j2c.schedulers.slurm]` may hold.
OPTIONS = {
    "partition": "partition, when no queue is asked for",
    "account": "account to charge",
    "qos": "quality of service",
    "constraint": "features that nodes must have",
    "gpu_type": "type of GPU, as in --gres=gpu:TYPE:N",
    "options": "further options of sbatch, as on a command line",
    "setup": "lines of shell before the run: module load …",
    "container": "command that starts a container, {image} in it: apptainer exec --nv {image}",
    "j2c": "the j2c command on the nodes",
}
#: Seconds that Slurm may be late with a warning, as its manual says.
_LATE = 60
#: Longest part of a job's name that is the run's.
_NAME_LENGTH = 40


class Batch(NamedTuple):
    """What sbatch is called with: arguments after its name, and the script on its input."""

    arguments: list[str]
    script: str


def render(job: Job, directory: str, kill_after: int | None = None) -> Batch:
    """Return the batch job.

    Parameters
    ----------
    job : Job
    directory : str
        Where the job's log and marks go; login and compute nodes share it.
    kill_after : int, optional
        Seconds from the wish to end until everything is killed; by default the run's grace time
        and a minute, in which outputs and the journal are sent.

    Raises
    ------
    UsageError
        An option is unknown, or an image is asked for and nothing is known to start it.
    """
    check_options(job)
    return Batch(_arguments(job, directory), _script(job, directory, kill_after))


def check_options(job: Job) -> None:
    """Raise `UsageError` when the job's options are none of Slurm's, or do not fit together."""
    for name in job.options:
        if name not in OPTIONS:
            raise UsageError(
                f"{name!r} is no option of the Slurm scheduler",
                f"known are {', '.join(sorted(OPTIONS))}",
            )
    if job.image and "container" not in job.options:
        raise UsageError(
            f"the run asks for the image {job.image}, and Slurm is not told how to start it",
            "set container in [tool.j2c.schedulers.slurm], empty to go without, or no --image",
        )
    for name in ("options", "container", "j2c"):
        try:
            shlex.split(job.options.get(name, ""))
        except ValueError as error:
            raise UsageError(f"the Slurm option {name} cannot be read: {error}") from None


def key_of(run_id: str, submission: int) -> str:
    """Return what the names of a run's jobs end with."""
    return run_id if submission == 1 else f"{run_id}.{submission}"


def job_name(job: Job) -> str:
    """Return a name for people that ends with the run's key, by which the job is found again."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", job.name)[:_NAME_LENGTH].strip("-.")
    return f"{words or 'run'}-{key_of(job.run_id, job.submission)}"


def quote(text: str) -> str:
    """Return the text as one word of bash, in ASCII on one line; bytes arrive as they are."""
    data = text.encode("utf-8", "surrogateescape")
    if re.fullmatch(rb"[ -~]*", data):
        return shlex.quote(text)
    out = []
    for byte in data:
        if byte in b"'\\":
            out.append("\\" + chr(byte))
        else:
            # Three digits always, so that a digit that follows is no part of it.
            out.append(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
    return "$'" + "".join(out) + "'"


def warning_lead(job: Job) -> int:
    """Return how many seconds before the end of its time the job is warned."""
    lead = math.ceil(job.grace) + _LATE
    limit = job.resources.time
    # A warning must not come before a short job has begun.
    return lead if limit is None else max(1, min(lead, _minutes(limit) * 60 // 3))


def _arguments(job: Job, directory: str) -> list[str]:
    asked, options = job.resources, job.options
    given: dict[str, object] = {
        "job-name": job_name(job),
        "output": _mark(job, directory).replace("%", "%%") + ".log",
        "open-mode": "append",
        "chdir": "/",
        "input": "/dev/null",
        "export": "ALL",
        "signal": f"B:TERM@{warning_lead(job)}",
        "nodes": asked.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": asked.cpus,
        "mem": None if asked.memory is None else f"{math.ceil(asked.memory / (1 << 20))}M",
        "time": None if asked.time is None else _minutes(asked.time),
        "gres": _gres(job),
        "partition": job.queue or options.get("partition"),
        "account": options.get("account"),
        "qos": options.get("qos"),
        "constraint": options.get("constraint"),
    }
    fixed = [f"--{name}={value}" for name, value in given.items() if value not in (None, "")]
    # What the site or the user wrote comes last: sbatch takes the last of two.
    return ["--parsable", "--requeue", *fixed, *shlex.split(options.get("options", ""))]


def _script(job: Job, directory: str, kill_after: int | None) -> str:
    environment = {"J2C_SIGNAL_ECHO": "5", **job.env}
    exports = [f"export {name}={quote(value)}" for name, value in sorted(environment.items())]
    lead = warning_lead(job)
    return SCRIPT.format(
        run=key_of(job.run_id, job.submission),
        mark=quote(_mark(job, directory)),
        setup=job.options.get("setup", "").replace("\r\n", "\n"),
        exports="\n".join(exports),
        before=job.attempts_before,
        kill_after=math.ceil(job.grace) + 60 if kill_after is None else kill_after,
        linger=lead + 2 * _LATE,
        tell=_tell(job, directory),
        command=" ".join(_words(job, directory)),
    )


def _mark(job: Job, directory: str) -> str:
    """Return what the names of the job's files begin with.

    Its key, not Slurm's number: two clusters may share a home directory.
    """
    return f"{directory}/{key_of(job.run_id, job.submission)}"


def _tell(job: Job, directory: str) -> str:
    nodes = job.resources.nodes
    if nodes == 1:
        return TELL_ONE
    told = f"{quote(TOLD)} j2c {quote(_mark(job, directory))}"
    return TELL_ALL.format(nodes=nodes, told=told)


def _words(job: Job, directory: str) -> list[str]:
    """Return the command's words, quoted: srun on many nodes, container, j2c."""
    command = [*_container(job), *_command(job)]
    words = [quote(word) for word in command]
    nodes = job.resources.nodes
    if nodes == 1:
        return words
    srun = [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
        "--export=ALL",
    ]
    if job.resources.cpus is not None:
        # Since 22.05 srun does not take it from sbatch any more.
        srun.append(f"--cpus-per-task={job.resources.cpus}")
    return [*srun, "/bin/bash", "-c", quote(SRUN_TASK), "j2c", quote(_mark(job, directory)), *words]


def _command(job: Job) -> list[str]:
    if job.command[0] != "j2c":
        return job.command
    if "j2c" in job.options:
        return [*shlex.split(job.options["j2c"]), *job.command[1:]]
    if _container(job):
        return job.command
    # Login and compute nodes nearly always share the directory that this j2c lives in.
    return [sys.executable, "-m", "j2c_lab", *job.command[1:]]


def _container(job: Job) -> list[str]:
    if not job.image:
        return []
    words = shlex.split(job.options.get("container", ""))
    return [word.replace("{image}", job.image) for word in words]


def _gres(job: Job) -> str | None:
    if not job.resources.gpus:
        return None
    kind = job.options.get("gpu_type")
    return f"gpu:{kind}:{job.resources.gpus}" if kind else f"gpu:{job.resources.gpus}"


def _minutes(seconds: int) -> int:
    return max(1, math.ceil(seconds / 60))
