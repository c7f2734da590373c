"""The REST as a script uses it, against a real server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.lab_tools import LabServer

HELLO = "import sys; print('hello', *sys.argv[1:])"


def test_a_submitted_run_is_answered_at_once_and_found_at_its_location(lab: LabServer) -> None:
    entry = lab.script(HELLO)
    status, run, headers = lab.call("POST", "j2c/runs", {"entry": entry, "args": ["a b", "$x", ""]})
    assert status == 202
    assert headers["Location"] == f"/j2c/runs/{run['id']}"
    done = lab.wait(run["id"])
    assert (done["state"], done["exit_code"], done["reason"]) == ("succeeded", 0, "")
    assert lab.get(f"j2c/runs/{run['id']}/log") == b"hello a b $x \n"
    assert done["request"]["entry"] == entry
    assert done["request"]["args"] == ["a b", "$x", ""]
    assert done["line"] == "%j2c submit train.py -- 'a b' '$x' ''"


def test_the_same_key_makes_one_run_and_another_request_with_it_is_refused(lab: LabServer) -> None:
    entry = lab.script(HELLO)
    headers = {"Idempotency-Key": "key-1"}
    runs = [lab.call("POST", "j2c/runs", {"entry": entry}, headers)[1]["id"] for _ in range(3)]
    assert len(set(runs)) == 1
    status, error, _ = lab.call("POST", "j2c/runs", {"entry": entry, "gpus": 1}, headers)
    assert (status, error["code"]) == (409, "conflict")
    lab.wait(runs[0])


def test_the_same_request_without_a_key_makes_two_runs(lab: LabServer) -> None:
    entry = lab.script(HELLO)
    assert lab.wait(lab.submit(entry))["id"] != lab.wait(lab.submit(entry))["id"]


def test_pages_follow_each_other_without_gap_or_repeat(lab: LabServer) -> None:
    entry = lab.script(HELLO, "paged.py")
    made = [lab.submit(entry, f"page-{i}") for i in range(5)]
    for run_id in made:
        lab.wait(run_id)
    seen: list[str] = []
    cursor = ""
    while True:
        page = lab.get(f"j2c/runs?limit=2&text=paged.py%20page-{cursor}")
        assert len(page["runs"]) <= 2
        seen += [run["id"] for run in page["runs"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert seen == sorted(made, reverse=True)
    assert page["counts"]["succeeded"] >= 5


def test_a_failed_run_gives_its_reason_and_is_found_by_its_group(lab: LabServer) -> None:
    run_id = lab.submit(lab.script("raise SystemExit(3)", "fails.py"))
    done = lab.wait(run_id)
    assert (done["state"], done["exit_code"]) == ("failed", 3)
    assert "3" in done["reason"]
    found = lab.get("j2c/runs?group=failed&text=fails.py")["runs"]
    assert [run["id"] for run in found] == [run_id]
    assert lab.get("j2c/runs?group=active&text=fails.py")["runs"] == []


def test_a_run_is_cancelled_while_it_runs_and_can_then_be_deleted(lab: LabServer) -> None:
    run_id = lab.submit(lab.script("import time; print('up'); time.sleep(600)", "sleeps.py"))
    lab.wait(run_id, "running")
    status, error, _ = lab.call("DELETE", f"j2c/runs/{run_id}")
    assert (status, error["code"]) == (409, "conflict")
    assert lab.call("POST", f"j2c/runs/{run_id}/cancel")[0] == 202
    assert lab.wait(run_id)["state"] == "cancelled"
    assert lab.call("DELETE", f"j2c/runs/{run_id}")[0] == 204
    assert lab.call("GET", f"j2c/runs/{run_id}")[0] == 404
    assert lab.get("j2c/runs?text=sleeps.py")["runs"] == []
    assert f"j2c audit: delete run={run_id}" in lab.log()


def test_a_failed_run_is_resumed_as_another_attempt(lab: LabServer) -> None:
    run_id = lab.submit(lab.script("import os; raise SystemExit(int(os.environ['J2C_ATTEMPT']))"))
    assert lab.wait(run_id)["exit_code"] == 1
    assert lab.call("POST", f"j2c/runs/{run_id}/resume")[0] == 202
    deadline = time.monotonic() + 30
    while (run := lab.wait(run_id))["attempt"] == 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (run["attempt"], run["exit_code"]) == (2, 2)


def test_a_preview_says_what_would_be_sent_and_writes_nothing(lab: LabServer) -> None:
    entry = lab.script(HELLO, "fresh.py")
    (lab.project / ".j2cignore").write_text("*.big\n")
    (lab.project / "data.big").write_bytes(b"x" * 1000)
    before = lab.get("j2c/runs")["counts"]
    status, shown, _ = lab.call("POST", "j2c/preview", {"entry": entry, "gpus": 2, "args": ["{a}"]})
    assert status == 200, shown
    assert shown["send"]["layers"] == 1
    assert [item["name"] for item in shown["biggest"]] == ["project"]
    assert "data.big" in [item["path"] for item in shown["left_out"]]
    assert shown["line"] == "%j2c submit --gpus 2 fresh.py -- '{a}'"
    assert lab.get("j2c/runs")["counts"] == before
    (lab.project / ".j2cignore").unlink()


def test_outputs_are_listed_downloaded_and_fetched_into_the_project(lab: LabServer) -> None:
    run_id = lab.submit(
        lab.script(
            "import os, pathlib\n"
            "d = pathlib.Path(os.environ['J2C_OUTPUT_DIR'])\n"
            "(d / 'sub').mkdir()\n"
            "(d / 'sub' / 'a b%20é.txt').write_text('result')\n"
        )
    )
    assert lab.wait(run_id)["outputs"] == 1
    (file,) = lab.get(f"j2c/runs/{run_id}/files")["files"]
    assert (file["path"].endswith("sub/a b%20é.txt"), file["size"]) == (True, 6)
    from urllib.parse import quote

    status, data, headers = lab.call("GET", f"j2c/runs/{run_id}/files/{quote(file['path'])}")
    assert (status, data) == (200, b"result")
    assert "attachment" in headers["Content-Disposition"]
    status, done, _ = lab.call("POST", f"j2c/runs/{run_id}/fetch")
    assert (status, done["files"], done["directory"]) == (200, 1, f"project/j2c_outputs/{run_id}")
    assert Path(lab.root, done["directory"], file["path"]).read_text() == "result"
    again = lab.call("POST", f"j2c/runs/{run_id}/fetch")[1]
    assert (again["skipped"], again["bytes"]) == (1, 0)


def test_any_part_of_a_log_can_be_read(lab: LabServer) -> None:
    run_id = lab.submit(
        lab.script("import os\nfor i in range(400): print(i, 'x' * 5000)", "long.py")
    )
    lab.wait(run_id)
    whole = b"".join(b"%d %s\n" % (i, b"x" * 5000) for i in range(400))
    assert lab.get(f"j2c/runs/{run_id}/log") == whole
    for start, end in ((0, 10), (1_234_567, 1_300_000), (len(whole) - 5, 10**9), (10**9, 10**10)):
        part = lab.get(f"j2c/runs/{run_id}/log?start={start}&end={end}")
        assert part == whole[start:end]


def test_a_module_and_the_limits_of_this_lab(lab: LabServer) -> None:
    lab.script("print('as module')", "pkg/__main__.py")
    lab.script("", "pkg/__init__.py")
    run_id = lab.submit("pkg", kind="module", project="project")
    lab.wait(run_id)
    assert lab.get(f"j2c/runs/{run_id}/log") == b"as module\n"
    entry = lab.script(HELLO)
    for asked, word in (
        ({"gpus": 5}, "at most 4"),
        ({"gpus": 2, "nodes": 3}, "6 GPUs"),
        ({"queue": "day"}, "night"),
        ({"scheduler": "moon"}, "local"),
        ({"profile": "huge"}, "profile"),
        ({"entry": "project/none.py"}, "none.py"),
        ({"colour": "red"}, "colour"),
        ({"memory": "lots"}, "memory"),
        ({"env": {"A B": "c"}}, "env"),
    ):
        status, error, _ = lab.call("POST", "j2c/runs", {"entry": entry, **asked})
        text = f"{error['message']} {error.get('remedy', '')}"
        assert (status, error["code"], word in text) == (400, "usage", True), (asked, error)


def test_a_profile_gives_resources_and_the_request_may_change_them(lab: LabServer) -> None:
    entry = lab.script(HELLO)
    run = lab.get(f"j2c/runs/{lab.submit(entry, profile='small', time='30m')}")
    assert (run["resources"]["gpus"], run["resources"]["time"]) == (1, 1800)
    lab.wait(run["id"])


def test_config_names_environments_and_no_secret(lab: LabServer) -> None:
    config = lab.get("j2c/config")
    assert config["profiles"] == [{"name": "small", "gpus": 1, "time": "1h"}]
    assert config["environments"] == [{"name": "Python 3", "prefix": str(lab.home / "kernel-env")}]
    assert "token" not in json.dumps(config).lower()


def test_the_run_does_not_get_the_servers_token(lab: LabServer) -> None:
    run_id = lab.submit(lab.script("import os; print(sorted(os.environ))", "environ.py"))
    lab.wait(run_id)
    assert b"TOKEN" not in lab.get(f"j2c/runs/{run_id}/log")


def test_a_file_named_like_a_module_in_the_project_does_no_harm(lab: LabServer) -> None:
    entry = lab.script(HELLO, "odd/run.py")
    for name in ("queue.py", "json.py", "rich.py"):
        lab.script("raise RuntimeError('imported')", f"odd/{name}")
    run_id = lab.submit(entry)
    assert lab.wait(run_id)["state"] in ("succeeded", "failed")
    assert os.path.exists(lab.root / entry)
