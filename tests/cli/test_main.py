"""The command itself: errors in one line, exit codes, help, completion, what it loads."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from cli_tools import Lab

VERBS = (
    "submit",
    "resume",
    "list",
    "status",
    "logs",
    "cancel",
    "fetch",
    "pack",
    "store",
    "gc",
    "rm",
    "base",
    "unpack",
    "completion",
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(lab: Lab, verb: str) -> None:
    done = lab(verb, "--help")
    assert done.returncode == 0, done.stderr
    assert b"--json" in done.stdout


def test_help_names_every_verb(lab: Lab) -> None:
    shown = lab("--help").stdout.decode()
    assert all(re.search(rf"^    {verb}\s", shown, re.MULTILINE) for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submit"], "give one thing to run"),
        (["submit", "none.py"], "there is no file none.py"),
        (["submit", "train.py", "--lr", "3"], "put the script's own arguments after --"),
        (["submit", "train.py", "--gpus", "99"], "this machine has 2"),
        (["submit", "train.py", "--gpus", "-1"], "gpus is -1"),
        (["submit", "train.py", "--memory", "much"], "no amount of memory"),
        (["submit", "train.py", "--env", "NAME"], "write --env NAME=VALUE"),
        (["submit", "train.py", "--scheduler", "none"], "there is no scheduler 'none'"),
        (["submit", "train.py", "--store", "ftp://x/y"], "no store this j2c can open"),
        (["submit", "/dev/null"], "there is no file /dev/null"),
        (["list", "--", "x"], "takes nothing after --"),
        (["logs", "last", "--tail", "x"], "invalid int value"),
        (["nonsense"], "j2c --help shows the verbs"),
        (["sumbit", "train.py"], "did you mean j2c submit?"),
        (["submit", "train.py", "--gpu", "1"], "did you mean --gpus?"),
        (["list", "--state", "broken"], "give one of: packing"),
    ],
)
def test_wrong_usage_is_one_line_with_a_remedy_and_code_2(
    lab: Lab, arguments: list[str], says: str
) -> None:
    lab.script("")
    done = lab(*arguments)
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_a_run_that_is_not_there_is_code_125(lab: Lab) -> None:
    for verb in ("status", "logs", "cancel", "fetch", "resume"):
        done = lab(verb, "nothing")
        assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)
        assert b"j2c list shows the runs" in done.stderr


def test_an_error_in_json_is_an_event(lab: Lab) -> None:
    (event,) = lab.events("status", "nothing")
    assert event["event"] == "error"
    assert (event["code"], event["exit_code"]) == ("not-found", 125)


def test_debug_shows_where_an_error_came_from(lab: Lab) -> None:
    assert b"Traceback" in lab("status", "nothing", "--debug").stderr


def test_an_unknown_setting_of_the_project_is_named_with_what_was_meant(lab: Lab) -> None:
    lab.script("")
    (lab.project / "pyproject.toml").write_text("[tool.j2c]\ngpu = 1\n")
    done = lab("submit", "train.py")
    assert done.returncode == 2
    assert "did you mean 'gpus'?" in done.stderr.decode()


def test_without_a_verb_the_help_is_shown(lab: Lab) -> None:
    done = lab()
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"usage: j2c" in done.stderr


def test_fetching_tells_what_came_now_and_what_never_was(lab: Lab) -> None:
    lab.script("import os; open(os.environ['J2C_OUTPUT_DIR'] + '/a', 'w').write('x')")
    assert lab("submit", "train.py").returncode == 0
    assert b"fetched 1 file (1 B) into out\n" in lab("fetch", "last", "-o", "out").stderr
    again = lab("fetch", "last", "-o", "out").stderr
    assert b"fetched 0 files (0 B) into out; 1 had been fetched before" in again
    again = lab("resume", "last").stderr
    assert b"nothing to resume" in again
    assert b"goes on" not in again
    lab.script("")
    assert lab("submit", "train.py").returncode == 0
    assert b"saved no outputs" in lab("fetch", "last").stderr
    assert b"no run is like that" in lab("list", "--state", "failed").stderr


def test_an_empty_list_says_what_to_do(lab: Lab) -> None:
    done = lab("list")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"j2c submit train.py" in done.stderr
    assert lab("list", "--json").stdout == b""


def test_a_waiting_run_is_cancelled_and_never_runs(lab: Lab) -> None:
    lab.script("import time; time.sleep(60)")
    environ = {"J2C_LOCAL_CPUS": "1"}
    first = lab("submit", "train.py", "--detach", environ=environ).stdout.decode().strip()
    lab.script("print('ran')")
    second = lab("submit", "train.py", "--detach", environ=environ).stdout.decode().strip()
    assert json.loads(lab("status", second, "--json").stdout)["state"] == "queued"
    assert lab("cancel", second).returncode == 0
    seen = json.loads(lab("status", second, "--json").stdout)
    assert (seen["state"], seen["reason"]) == ("cancelled", "cancelled by ada")
    assert lab("cancel", first).returncode == 0
    assert lab("logs", "-f", first).returncode in (125, 143)
    assert json.loads(lab("status", first, "--json").stdout)["state"] == "cancelled"
    assert lab("logs", second).stdout == b""


def test_the_log_is_read_from_its_end_and_from_any_record(lab: Lab) -> None:
    lab.script("import sys\nfor i in range(100): print(i, flush=True)\nprint('ж' * 50)")
    assert lab("submit", "train.py", "--detach").returncode == 0
    assert lab("logs", "-f", "last").returncode == 0
    assert lab("logs", "last", "--tail", "2").stdout.decode() == "99\n" + "ж" * 50 + "\n"
    state, *events = lab.events("logs", "last")
    assert (state["event"], state["state"]) == ("state", "succeeded")
    numbers = [event["n"] for event in events]
    assert numbers == list(range(1, len(numbers) + 1))
    for since in (0, 3, numbers[-1]):
        assert lab.events("logs", "last", "--since", str(since)) == [state, *events[since:]]


def test_streams_that_are_kept_apart_go_where_they_belong(lab: Lab) -> None:
    lab.script("import sys; print('out'); print('err', file=sys.stderr)")
    done = lab("submit", "train.py", "--split-streams")
    assert done.stdout == b"out\n"
    assert b"err\n" in done.stderr


def test_what_is_left_out_is_listed_before_anything_is_sent(lab: Lab) -> None:
    lab.script("")
    (lab.project / "big.csv").touch()
    (lab.project / ".j2cignore").write_text("*.csv\n")
    for call in (["submit", "train.py", "--dry-run"], ["pack"]):
        assert b"left out big.csv (.j2cignore:1: *.csv)\n" in lab(*call).stderr


def test_a_bundle_goes_into_one_file(lab: Lab) -> None:
    lab.script("print('hello')")
    done = lab("pack", "-o", str(lab.home / "exp.tar.zst"))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 64
    assert (lab.home / "exp.tar.zst").stat().st_size > 100


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_is_a_script_for_the_shell(lab: Lab, shell: str) -> None:
    done = lab("completion", shell)
    assert done.returncode == 0, done.stderr
    assert b"submit" in done.stdout


def test_run_names_are_completed_by_bash(lab: Lab) -> None:
    lab.script("")
    assert lab("submit", "train.py", "--name", "completed-name").returncode == 0
    script = lab("completion", "bash").stdout.decode()
    asked = f'{script}\nj2c() {{ "{sys.executable}" -m j2c_lab "$@"; }}\n'
    asked += 'COMP_WORDS=(j2c logs comp); COMP_CWORD=2; COMP_LINE="j2c logs comp"; _shtab_j2c; '
    asked += 'echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", asked], env=lab.environ, cwd=lab.project, capture_output=True, text=True
    )
    assert "completed-name" in done.stdout, done.stderr


def test_a_pack_that_waits_for_nothing_loads_no_asyncio(lab: Lab) -> None:
    lab.script("x = 1")
    code = (
        "import sys; from j2c_lab.cli import main; code = main(sys.argv[1:]);"
        "print(code, 'asyncio' in sys.modules, file=sys.stderr)"
    )
    for text in ("x = 1", "x = 1", "x = 2"):
        lab.script(text)
        done = subprocess.run(
            [sys.executable, "-c", code, "pack"],
            env=lab.environ,
            cwd=lab.project,
            capture_output=True,
        )
        assert done.stderr.endswith(b"0 False\n"), done.stderr


def test_what_starts_often_loads_little(lab: Lab) -> None:
    heavy = {"rich", "traitlets", "shtab", "tornado", "IPython", "jupyter_core"}
    code = (
        "import sys; from j2c_lab.cli import main; code = main(sys.argv[1:]);"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "list"], env=lab.environ, cwd=lab.project, capture_output=True
    )
    assert done.returncode == 0
    assert not heavy & set(done.stderr.decode().split())


def test_importing_the_package_loads_nothing() -> None:
    code = (
        "import sys, __future__; before = set(sys.modules); import j2c_lab;"
        "print(set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'j2c_lab'}"


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def test_names_that_the_terminal_cannot_say_are_escaped(lab: Lab) -> None:
    lab.script("")
    done = lab("submit", "train.py", "--name", "a€\n\x1b[31m", "--detach")
    assert done.returncode == 0, done.stderr
    for verb in (["list"], ["status", "last"]):
        done = lab(*verb, environ=ASCII)
        assert (done.returncode, done.stderr) == (0, b"")
        assert rb"a\u20ac\n\x1b[31m" in done.stdout


def test_a_state_directory_that_cannot_be_written_is_one_sentence(lab: Lab) -> None:
    lab.script("")
    done = lab("submit", "train.py", environ={"XDG_STATE_HOME": "/dev/null"})
    assert (done.returncode, done.stderr.count(b"\n")) == (125, 1)
    assert b"set XDG_STATE_HOME" in done.stderr


def test_relative_xdg_directories_are_passed_over(lab: Lab) -> None:
    lab.script("print('ran')")
    names = ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
    before = sorted(os.listdir(lab.project))
    done = lab("submit", "train.py", environ=dict.fromkeys(names, "here"))
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr
    assert sorted(os.listdir(lab.project)) == before


@pytest.mark.parametrize(
    ("call", "code", "says"),
    [
        ("mkdir gone; cd gone; rmdir ../gone; {} list", 2, b"current directory is not there"),
        ("{} list --json >&-", 0, b""),
        ("{} submit train.py 2>&-", 0, b""),
        ("{} submit train.py <&-", 0, b"succeeded"),
    ],
)
def test_odd_places_to_be_called_from(lab: Lab, call: str, code: int, says: bytes) -> None:
    lab.script("print('hello')")
    command = shlex.join([sys.executable, "-c", "import sys, j2c_lab.cli as c; sys.exit(c.main())"])
    done = subprocess.run(
        ["/bin/sh", "-c", call.format(command)],
        cwd=lab.project,
        env=lab.environ,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done
    assert says in done.stderr
    assert b"bug" not in done.stderr
    if "submit" in call:
        assert done.stdout == b"hello\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_behind_standard_output_is_no_bug_of_ours(lab: Lab) -> None:
    lab.script("")
    assert lab("submit", "train.py").returncode == 0
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "j2c_lab", "list"],
            cwd=lab.project, env=lab.environ, stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert b"No space left on device" in done.stderr
    assert b"bug" not in done.stderr


def test_modules_on_the_users_pythonpath_are_not_j2cs(lab: Lab) -> None:
    lab.script("import os; print(os.environ.get('PYTHONPATH'))")
    theirs = lab.home / "theirs"
    theirs.mkdir()
    for name in ("zstandard", "pathspec", "rich", "asyncio", "tomllib"):
        (theirs / f"{name}.py").write_text("raise SystemError('not for this Python')")
    done = lab("submit", "train.py", environ={"PYTHONPATH": str(theirs)})
    assert (done.returncode, done.stdout) == (0, b"None\n"), done.stderr
