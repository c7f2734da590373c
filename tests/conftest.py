"""Fixtures that more than one room needs, and the account of what was left out.

A test that cannot run here skips itself with a reason. At the end of a run each reason has one
line; with `CI=true` only the reasons below are accepted, and any other fails the run.
"""

import os
import re
from collections import Counter

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("no deadline", parent=settings(), deadline=None)
settings.load_profile("no deadline")

# Wheels of this project that tests make need no front end; building it takes a minute and Node.
os.environ.setdefault("J2C_LABEXTENSION", "skip")

pytest_plugins = ["tests.real.s3_servers", "tests.real.slurm_cluster"]

#: What may be missing even where everything is installed.
ALLOWED = (
    r"this machine has no (second )?Python",
    r"only on macOS",
    # What a container may forbid, or a user who is not root.
    r"no new PID namespace here",
    r"a small file system cannot be mounted here",
    r"/dev/(shm|full)",
    r"only root can become another user",
    r"root may search every directory",
    r"(another user|nobody else) can(not)? (run|use) this Python",
    # A store that cannot do what the test is about; the other stores of the suite can.
    r"rclone answers with all keys at once, and slowly",
    r"no server answers a part with a body",
    # The moment to kill was missed; the other moments of the suite were hit.
    r"it was faster than the kill",
    r"it ran before the cancel was made",
    r"a cluster orders its jobs by its own rules",
)
_left_out: dict[str, str] = {}


def pytest_runtest_logreport(report):
    if report.skipped and not hasattr(report, "wasxfail"):
        _left_out[report.nodeid] = _reason(report)


def pytest_collectreport(report):
    if report.skipped:
        _left_out[report.nodeid] = _reason(report)


def pytest_sessionfinish(session):
    if _must_be_complete(session.config) and _forbidden() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    for reason, count in sorted(Counter(_left_out.values()).items()):
        tests = "1 test" if count == 1 else f"{count} tests"
        terminalreporter.write_line(f"left out: {tests}, because {reason}")
    if _must_be_complete(config):
        for reason in sorted(_forbidden()):
            terminalreporter.write_line(f"ERROR: nothing may be left out here: {reason}", red=True)


def _must_be_complete(config):
    return os.environ.get("CI") == "true" and not hasattr(config, "workerinput")


def _forbidden():
    return {r for r in _left_out.values() if not any(re.search(a, r) for a in ALLOWED)}


def _reason(report):
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ").strip()
