"""What Slurm says, in plain words."""

from __future__ import annotations

import pytest

from j2c_lab.schedulers.base import ENDED, PENDING, RUNNING
from j2c_lab.schedulers.slurm_states import explain, parse_job


def said(state: str, reason: str = "None", status: str = "0", restarts: int = 0, **rest: str):
    start, nodes = rest.get("start", "N/A"), rest.get("nodes", "n1")
    return parse_job(f"7|{state}|{status}|{restarts}|{start}|{nodes}|train-x|{reason}|")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "free (Resources)"),
        ("Priority", "higher priority are before it (Priority)"),
        ("QOSMaxGRESPerUser", "as many GPUs as your quality of service allows"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "UnavailableNodes:n[1-2])"),
        ("SomethingNew", "Slurm's reason: SomethingNew"),
    ],
)
def test_a_waiting_job_says_why(reason: str, words: str) -> None:
    state = explain(said("PENDING", reason))
    assert state.phase == PENDING
    assert words in state.reason


def test_a_requeued_job_says_so() -> None:
    state = explain(said("PENDING", "BeginTime", restarts=1))
    assert state.reason.startswith("requeued, attempt 2 will follow")


def test_the_expected_start_is_told_when_it_is_known() -> None:
    assert explain(said("PENDING", start="N/A")).expected_start is None
    expected = explain(said("PENDING", start="2026-12-01T04:22:04")).expected_start
    assert expected is not None
    assert abs(expected - 1796098924) <= 86400


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"])
def test_a_job_that_has_its_node_runs(state: str) -> None:
    assert explain(said(state)).phase == RUNNING


@pytest.mark.parametrize(
    ("state", "status", "words", "code"),
    [
        ("COMPLETED", "0", "", 0),
        ("FAILED", "1792", "", 7),
        ("FAILED", "7:0", "", 7),
        ("FAILED", "9", "", 137),
        ("FAILED", "0:53", "J2C_SLURM_DIR", 125),
        ("TIMEOUT", "0:15", "time limit", 143),
        ("OUT_OF_MEMORY", "0:125", "more memory than it had asked for", 137),
        ("NODE_FAIL", "0", "its node failed (n1)", 0),
        ("PREEMPTED", "0:15", "preempted for a job of higher priority", 143),
        ("CANCELLED by 0", "0:15", "cancelled", 143),
        ("CANCELLED", "0", "cancelled", 0),
        ("NEW_STATE", "0", "Slurm says NEW_STATE", 0),
    ],
)
def test_an_ended_job_says_how(state: str, status: str, words: str, code: int) -> None:
    told = explain(said(state, status=status))
    assert (told.phase, told.exit_code) == (ENDED, code)
    assert words in told.reason


def test_a_job_cancelled_before_it_ran_says_so_and_by_whom() -> None:
    told = explain(said("CANCELLED", nodes=""), "ada")
    assert (told.reason, told.exit_code) == ("cancelled by ada while it waited", None)
