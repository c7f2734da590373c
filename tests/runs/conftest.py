"""A ledger on a real directory store and the real local scheduler, and a way to write runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_tools import venv
from run_tools import Desk

__all__ = ["desk", "venv"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "J2C_LOCAL_CPUS": "2",
        "J2C_LOCAL_GPUS": "0",
    }
    return Desk(tmp_path, environ)
