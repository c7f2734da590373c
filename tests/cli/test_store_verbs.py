"""`j2c store check`, `j2c gc` and `j2c rm`."""

from __future__ import annotations

import json
from pathlib import Path

from cli_tools import Lab


def test_a_directory_passes_the_check(lab: Lab, tmp_path: Path) -> None:
    done = lab("store", "check", "--json", "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert [f["name"] for f in findings][:2] == ["write", "read"]
    assert {f["severity"] for f in findings} == {"ok"}


def test_a_store_that_cannot_be_written_says_so(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    done = lab("store", "check", "--store", str(tmp_path / "file" / "store"))
    assert done.returncode == 125
    assert done.stdout.startswith(b"error    write")
    assert len(done.stdout.splitlines()) == 1


def test_an_empty_store_has_nothing_to_collect(lab: Lab, tmp_path: Path) -> None:
    done = lab("gc", "--dry-run", "--store", str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"would remove 0 layers and 0 bundles (0 B); 0 layers stay\n"
    short = lab("gc", "--older-than", "1h", "--store", str(tmp_path / "store"))
    assert short.returncode == 2
    assert b"give 2d or more" in short.stderr


def test_a_run_that_is_over_can_be_removed(lab: Lab) -> None:
    lab.script("print('done')")
    done = lab("submit", "train.py", "--detach")
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.decode().split()[-1]
    lab("logs", "-f", run_id)
    removed = lab("rm", run_id)
    assert removed.returncode == 0, removed.stderr
    assert run_id.encode() not in lab("list").stdout
    assert lab("rm", run_id).returncode == 125
