"""The description is true: what it says is answered, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

yaml = pytest.importorskip("yaml", reason="needs the extra test-lab")

from tests.lab_tools import TOKEN, LabServer


def test_the_description_is_served_and_is_what_is_in_the_package(lab: LabServer) -> None:
    served = lab.get("j2c/openapi.yaml")
    document = yaml.safe_load(served)
    assert document["openapi"].startswith("3.1")
    operations = {
        operation["operationId"]
        for path in document["paths"].values()
        for name, operation in path.items()
        if name != "parameters"
    }
    assert {"listRuns", "submitRun", "cancelRun", "fetchFiles", "previewRun"} <= operations


def test_schemathesis_finds_no_answer_that_is_not_described(lab: LabServer) -> None:
    # So that there is something to find: ids that exist.
    run_id = lab.submit(lab.script("print('found')"))
    lab.wait(run_id)
    document = lab.get("j2c/openapi.yaml").decode()
    described = lab.home / "openapi.yaml"
    described.write_text(
        document.replace(
            'pattern: "^[0-9]{8}', f'example: "{run_id}"\n      pattern: "^[0-9]{{8}}', 1
        )
    )
    command = [
        *[sys.executable, "-m", "schemathesis.cli", "run", str(described)],
        *["--url", lab.url.rstrip("/"), "-H", f"Authorization: token {TOKEN}"],
        # Jupyter answers 403 to who is not signed in; test_security looks at that.
        # And a file that is not there is refused, however well its name is written.
        *["--exclude-checks", "missing_required_header,ignored_auth,positive_data_acceptance"],
        *["--phases", "examples,coverage,fuzzing"],
        *["-n", "15", "--seed", "1", "--no-color", "--workers", "1"],
    ]
    done = subprocess.run(
        command, cwd=lab.home, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Traceback" not in lab.log()
