"""What Slurm says of a job, in plain words. Pure."""

from __future__ import annotations

import calendar
import contextlib
import time
from typing import NamedTuple

from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING, JobState

#: Fields of `squeue -O`, in the order of `SlurmJob`; the last may hold anything.
FIELDS = ("JobID", "State", "exit_code", "RestartCnt", "StartTime", "NodeList", "Name", "Reason")

_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_AT_WORK = {
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
}
HELD_BY_USER = "JobHeldUser"

_WHY_IT_WAITS = {
    "None": "Slurm has not looked at it yet",
    "AssocGrpGRES": "the account's GPUs are all in use",
    "AssocGrpCpuLimit": "the account's CPUs are all in use",
    "AssocMaxJobsLimit": "the account has as many jobs running as it may",
    "BadConstraints": "no node has what its constraint asks for",
    "BeginTime": "it may not begin before its time; after a requeue Slurm waits a little",
    "Cleaning": "what its last attempt left is being cleaned up",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "it waits for a job that will never end as it should",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the quality of service is not valid",
    "JobArrayTaskLimit": "as many tasks of the array run as may",
    "JobHeldAdmin": "an administrator holds it back",
    "JobHeldUser": "its user holds it back",
    "JobLaunchFailure": "it could not be started on its node, and is held",
    "launch failed requeued held": "it could not be started on its node, and is held",
    "Licenses": "it waits for a license",
    "MaxJobsPerAccount": "the account has as many jobs running as it may",
    "NodeDown": "a node that it needs is down",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives",
    "PartitionTimeLimit": "it asks for more time than the partition gives",
    "Priority": "jobs of higher priority are before it",
    "QOSGrpGRES": "the GPUs of its quality of service are all in use",
    "QOSMaxCpuPerUserLimit": "you use as many CPUs as your quality of service allows",
    "QOSMaxGRESPerUser": "you use as many GPUs as your quality of service allows",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as your quality of service allows",
    "ReqNodeNotAvail": "a node that it needs is not available: down, drained or reserved",
    "Reservation": "it waits for its reservation",
    "Resources": "it waits for nodes, CPUs, memory or GPUs to become free",
}
_HOW_IT_ENDED = {
    "BOOT_FAIL": "its node could not be booted",
    "DEADLINE": "it could not have ended before its deadline",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "it was preempted for a job of higher priority",
    "TIMEOUT": "its time limit was reached",
    "REVOKED": "another cluster of the federation took it",
}
#: "Signals" that Slurm makes up: the job's log could not be opened, it was out of memory.
_OUTPUT_FAILED = 53
_OUT_OF_MEMORY = 125


class SlurmJob(NamedTuple):
    """One job as `squeue` tells it."""

    id: int
    state: str
    #: As `wait` gives it.
    status: int
    restarts: int
    start: str
    nodes: str
    name: str
    reason: str

    @property
    def held(self) -> bool:
        """Whether it waits for its user to let it go: so a submit begins."""
        return self.state == "PENDING" and self.reason == HELD_BY_USER

    @property
    def never_ran(self) -> bool:
        """Whether it was cancelled before it had a node."""
        return self.state.startswith("CANCELLED") and not self.nodes


def parse_job(line: str) -> SlurmJob:
    """Return the job of one line of `squeue -O` with `FIELDS`, ended by `|` each."""
    ident, state, status, restarts, start, nodes, name, reason = line.split("|", 7)
    return SlurmJob(
        int(ident.split("_")[0].split("+")[0]),
        state,
        _status(status),
        int(restarts or 0),
        start,
        nodes,
        name,
        reason.removesuffix("|"),
    )


def explain(job: SlurmJob, cancelled_by: str = "") -> JobState:
    """Return the state of a job for the engine.

    Parameters
    ----------
    job : SlurmJob
    cancelled_by : str
        Who cancelled it, where accounting knows.
    """
    state = job.state.split()[0]
    if state in _WAITING:
        return JobState(PENDING, _why_it_waits(job), None, _expected(job.start))
    if state in _AT_WORK:
        slept = "suspended by Slurm" if state in ("SUSPENDED", "STOPPED") else ""
        return JobState(RUNNING, slept)
    if state == "COMPLETED":
        return JobState(ENDED, "", 0)
    code = exit_code(job.status)
    if state == "CANCELLED":
        when = " while it waited" if job.never_ran else ""
        who = f" by {cancelled_by}" if cancelled_by else ""
        return JobState(ENDED, f"cancelled{who}{when}", None if job.never_ran else code)
    return JobState(ENDED, _how_it_ended(state, job), code)


def exit_code(status: int) -> int:
    """Return what a shell would report of a wait status: the code, or 128 + signal."""
    signal = status & 0x7F
    if signal == _OUTPUT_FAILED:
        return 125
    if signal == _OUT_OF_MEMORY:
        return 137
    return 128 + signal if signal else status >> 8


def _why_it_waits(job: SlurmJob) -> str:
    # ReqNodeNotAvail comes with the nodes: "ReqNodeNotAvail, UnavailableNodes:n[1-2]".
    word, _, rest = job.reason.partition(",")
    words = _WHY_IT_WAITS.get(word, "")
    again = f"requeued, attempt {job.restarts + 1} will follow; " if job.restarts else ""
    if not words:
        return f"{again}Slurm's reason: {job.reason}" if job.reason else again.rstrip("; ")
    more = f",{rest}" if rest else ""
    return f"{again}{words} ({word}{more})"


def _how_it_ended(state: str, job: SlurmJob) -> str:
    at = f" ({job.nodes})" if job.nodes and state == "NODE_FAIL" else ""
    if state in _HOW_IT_ENDED:
        return f"{_HOW_IT_ENDED[state]}{at} ({state})"
    if state == "FAILED":
        if job.status & 0x7F == _OUTPUT_FAILED:
            return (
                "Slurm could not open the job's log on the node: set J2C_SLURM_DIR to a "
                "directory that login and compute nodes share"
            )
        # An ordinary exit code or signal says more when it is told with what the run did.
        return ""
    return f"Slurm says {state}"


def _expected(start: str) -> float | None:
    with contextlib.suppress(ValueError, OverflowError):
        return time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%S"))
    return None


def run_id_time(run_id: str) -> str:
    """Return a day before the run was made, as Slurm's commands take a time."""
    made = calendar.timegm(time.strptime(run_id[:15], "%Y%m%d-%H%M%S"))
    return time.strftime("%Y-%m-%d", time.gmtime(made - 86400))


def _status(text: str) -> int:
    """Read a wait status, as Slurm 22.05 prints it, or `code:signal`, as others do."""
    code, colon, signal = text.partition(":")
    if colon:
        return int(code) << 8 | int(signal)
    return int(code) if code.isdigit() else 0
