"""The real command on a private Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_tools import Lab

from tests.real.slurm_cluster import SlurmCluster


@pytest.fixture
def slurm_lab(tmp_path: Path, venv: Path, slurm: SlurmCluster) -> Lab:
    """A lab whose scheduler is the private Slurm."""
    lab = Lab(tmp_path / "home", venv)
    lab.environ.update(slurm.environ)
    lab.environ["J2C_SCHEDULER"] = "slurm"
    return lab


def until(ready: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something to become so."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)
