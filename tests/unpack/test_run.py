"""`j2c unpack` as a whole, as a process: what the user's code sees, and what the store gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

from unpack_tools import RUN_ID, Prepare

SHOW = """
import json, os, sys
names = [n for n in os.environ if n.startswith("J2C_") or n == "PYTHONUNBUFFERED"]
print(json.dumps({
    "argv": sys.argv, "cwd": os.getcwd(), "path0": sys.path[0], "prefix": sys.prefix,
    "env": {n: os.environ[n] for n in names}, "stdin": sys.stdin.read(),
    "group": os.getpgid(0) == os.getpid(),
}))
"""


def test_script_sees_its_arguments_directory_and_variables(prepare: Prepare) -> None:
    unpack = prepare(
        "", files={"sub/show.py": SHOW}, entry="sub/show.py", args=["a b", "", "$x;\n"]
    )
    assert unpack.run() == (0, "")
    seen = json.loads(unpack.log())
    root = unpack.workdir / RUN_ID
    assert seen == {
        "argv": ["sub/show.py", "a b", "", "$x;\n"],
        "cwd": str(root / "project"),
        "path0": str(root / "project" / "sub"),
        "prefix": str(root / "env"),
        "env": {
            "J2C_ATTEMPT": "1",
            "J2C_DELIVERY_SECONDS": "20",
            "J2C_OUTPUT_DIR": str(root / "outputs"),
            "J2C_RUN_ID": RUN_ID,
            "J2C_RUN_NAME": "test",
            "PYTHONUNBUFFERED": "1",
        },
        "stdin": "",
        "group": True,
    }
    outcome = unpack.outcome()
    assert (outcome.state, outcome.exit_code, outcome.reason) == ("succeeded", 0, "")
    assert outcome.journal_records == len(unpack.records())
    assert not list((root / "spool").rglob("*.records"))


def test_stages_stand_in_the_journal_in_order(prepare: Prepare) -> None:
    unpack = prepare("print('hello')")
    assert unpack.run() == (0, "")
    stages = [(e["stage"], e["state"]) for e in unpack.events() if e["event"] == "stage"]
    assert stages == [
        (stage, state)
        for stage in ("fetching", "unpacking", "running", "saving")
        for state in ("started", "done")
    ] + [("finished", "done")]


def test_exit_code_is_passed_on_and_explained(prepare: Prepare) -> None:
    unpack = prepare("raise ValueError('no such thing')")
    code, errors = unpack.run()
    assert code == 1
    assert errors == "j2c unpack: exit code 1: ValueError: no such thing\n"
    assert unpack.outcome().reason == "exit code 1: ValueError: no such thing"
    assert unpack.outcome().state == "failed"


def test_outputs_are_saved_by_content(prepare: Prepare, tmp_path: Path) -> None:
    unpack = prepare(
        "import os\n"
        "open(os.path.join(os.environ['J2C_OUTPUT_DIR'], 'model.bin'), 'wb').write(b'weights')\n"
        "os.makedirs('logs/deep'); open('logs/deep/a.txt', 'w').write('a'); open('b.txt','w')\n",
        outputs=["logs/**/*.txt"],
    )
    assert unpack.run() == (0, "")
    outputs = {output.path: output for output in unpack.outcome().outputs}
    assert sorted(outputs) == ["logs/deep/a.txt", "model.bin"]
    saved = unpack.store.directory / f"runs/ada/{RUN_ID}/outputs/{outputs['model.bin'].sha256}"
    assert saved.read_bytes() == b"weights"


def test_second_attempt_starts_clean(prepare: Prepare) -> None:
    unpack = prepare("import os; print(sorted(os.listdir())); open('left', 'w')")
    for attempt in (1, 2):
        assert unpack.run() == (0, "")
        assert unpack.log(attempt) == b"['main.py']\n"
        assert unpack.outcome(attempt).attempt == attempt


def test_environment_values_arrive_byte_for_byte(prepare: Prepare) -> None:
    values = {"A": "", "B": " x\n'\"$`{}; ", "C": "\udcff\udc80é"}
    show = "import os; print(*(ascii(os.environb[n]) for n in (b'A', b'B', b'C')))"
    unpack = prepare(show, env=values)
    assert unpack.run(env={"LC_ALL": "C"}) == (0, "")
    expected = [ascii(v.encode("utf-8", "surrogateescape")) for v in values.values()]
    assert unpack.log().decode() == " ".join(expected) + "\n"


def test_run_of_another_user_is_refused(prepare: Prepare) -> None:
    unpack = prepare("print('never')")
    code, errors = unpack.run(env={"J2C_USER": "eve"})
    assert code == 2
    assert "this is a run of ada" in errors
    assert not os.path.exists(unpack.workdir)


def test_attempt_number_of_the_scheduler_wins_unless_it_is_taken(prepare: Prepare) -> None:
    unpack = prepare("import os; print(os.environ['J2C_ATTEMPT'])")
    for expected in (5, 6):
        assert unpack.run(env={"J2C_ATTEMPT_NUMBER": "5"}) == (0, "")
        assert unpack.log(expected) == b"%d\n" % expected
    assert unpack.run() == (0, "")
    assert unpack.outcome(7).state == "succeeded"


def test_many_outputs_tell_progress_now_and_then(prepare: Prepare) -> None:
    unpack = prepare(
        "import os\nfor n in range(300): open(f'{os.environ[\"J2C_OUTPUT_DIR\"]}/{n}', 'w')\n"
    )
    assert unpack.run() == (0, "")
    assert len(unpack.outcome().outputs) == 300
    progress = [e for e in unpack.events() if e["event"] == "progress" and e["stage"] == "saving"]
    assert progress[-1]["files"] == progress[-1]["total_files"] == 300
    assert len(progress) < 300


def test_delivery_with_nothing_to_deliver_is_fine(prepare: Prepare) -> None:
    unpack = prepare("print(1)")
    assert unpack.run("--deliver") == (0, "")
    assert unpack.run() == (0, "")
    assert unpack.run("--deliver") == (0, "")
