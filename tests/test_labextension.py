"""The front end's own tests and linters, where it was built with its dependencies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_the_front_end_passes_its_own_tests_and_linters() -> None:
    pytest.importorskip("jupyter_builder", reason="needs the extra test-lab")
    if not (ROOT / "labextension/node_modules/.bin/jest").exists():
        pytest.skip("the JupyterLab extension is not built (python scripts/labextension.py)")
    sys.path.insert(0, str(ROOT / "scripts"))
    from labextension import node_path

    path = os.pathsep.join([*node_path(), os.environ["PATH"]])
    for command in (
        ["jest", "--silent"],
        ["eslint", "src"],
        ["prettier", "--check", "src", "style"],
    ):
        done = subprocess.run(
            [str(ROOT / "labextension/node_modules/.bin" / command[0]), *command[1:]],
            cwd=ROOT / "labextension",
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
