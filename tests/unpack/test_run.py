"""`j2c unpack` as a whole, as a process: what the user's code sees, and what the store gets."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

from unpack_tools import RUN_ID, USER, Prepare

from j2c_lab.store import layout

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


def test_json_tells_the_journal_and_the_result_one_object_a_line(prepare: Prepare) -> None:
    unpack = prepare(
        "import os, sys; os.write(1, 'h\\xfc\\n'.encode() + b'\\xff\\xfe'); sys.exit(3)"
    )
    process = unpack.start("--json", stdout=subprocess.PIPE)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    *told, result = [json.loads(line) for line in out.splitlines()]
    assert [event["n"] for event in told] == list(range(1, len(told) + 1))
    written = [
        event["text"].encode() if "text" in event else base64.b64decode(event["data"])
        for event in told
        if event["event"] == "log"
    ]
    assert b"".join(written) == unpack.log() == "h\xfc\n".encode() + b"\xff\xfe"
    assert [event["stage"] for event in told if event["event"] == "stage"][-1] == "finished"
    assert (result["event"], result["state"], result["exit_code"]) == ("result", "failed", 3)


def test_json_reader_that_goes_away_does_not_end_the_run(prepare: Prepare) -> None:
    unpack = prepare("for number in range(100): print(number)")
    reading, writing = os.pipe()
    os.close(reading)
    process = unpack.start("--json", stdout=writing)
    os.close(writing)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert unpack.outcome().state == "succeeded"


def test_json_of_a_run_that_cannot_be_read_is_an_error_event(prepare: Prepare) -> None:
    unpack = prepare("")
    os.unlink(unpack.store.local_path(layout.run(USER, RUN_ID)))
    done = subprocess.run(unpack.command("--json"), capture_output=True, timeout=60, check=False)
    (event,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (event["event"], event["code"], done.stderr) == ("error", "not-found", b"")
    assert done.returncode == event["exit_code"] == 125


def test_run_that_deletes_its_own_directory_keeps_its_log_and_outcome(prepare: Prepare) -> None:
    unpack = prepare(
        "import os, shutil, time\n"
        "root = os.path.dirname(os.environ['J2C_OUTPUT_DIR'])\n"
        "print('before', flush=True)\n"
        "time.sleep(0.5)\n"
        "print('at once', flush=True)\n"
        "shutil.rmtree(root, ignore_errors=True)\n"
        "print('after')\n"
    )
    code, errors = unpack.run()
    assert code == 0, errors
    assert unpack.log() == b"before\nat once\nafter\n"
    assert unpack.outcome().state == "succeeded"
