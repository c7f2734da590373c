"""The user's process: signals, ends of all kinds, what it leaves behind, and its output."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from unpack_tools import RUN_ID, USER, Item, Prepare, make_layer

from j2c_lab.formats.run import Cancellation, EntryPoint
from j2c_lab.store import layout
from j2c_lab.store.local import LocalStore

READY_THEN_SLEEP = "print('ready', flush=True)\nimport time\ntime.sleep(60)\n"
IGNORE = "import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_signal_that_ended_the_process_is_passed_on(prepare: Prepare, number: int) -> None:
    unpack = prepare(f"import os; print('last words'); os.kill(os.getpid(), {int(number)})")
    code, errors = unpack.run()
    assert code == -number
    outcome = unpack.outcome()
    assert (outcome.state, outcome.exit_code, outcome.signal) == ("failed", None, number)
    assert f"killed by {signal.Signals(number).name}" in outcome.reason
    assert ("out of memory" in outcome.reason) == (number == signal.SIGKILL)
    assert errors == f"j2c unpack: {outcome.reason}\n"
    assert unpack.log() == b"last words\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ending_signals_reach_the_process_and_outputs_are_saved(
    prepare: Prepare, number: int
) -> None:
    unpack = prepare(
        "import os, signal, sys, time\n"
        "def end(number, frame):\n"
        "    open(os.environ['J2C_OUTPUT_DIR'] + '/checkpoint', 'w').write(str(number))\n"
        "    print('saved', flush=True); sys.exit(3)\n"
        "for s in (1, 2, 15): signal.signal(s, end)\n" + READY_THEN_SLEEP
    )
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 3
    outcome = unpack.outcome()
    assert outcome.state == "cancelled"
    assert signal.Signals(number).name in outcome.reason
    assert [output.path for output in outcome.outputs] == ["checkpoint"]
    assert unpack.log() == b"ready\nsaved\n"


def test_usr2_is_passed_on_and_ends_nothing(prepare: Prepare) -> None:
    unpack = prepare(
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR2, lambda *a: print('warned', flush=True))\n"
        "print('ready', flush=True)\nsignal.pause()\n"
    )
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    process.send_signal(signal.SIGUSR2)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert unpack.log() == b"ready\nwarned\n"
    assert unpack.outcome().state == "succeeded"


def test_process_that_ignores_term_is_killed_within_the_grace_time(prepare: Prepare) -> None:
    unpack = prepare(IGNORE + READY_THEN_SLEEP, grace=1.0)
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    outcome = unpack.outcome()
    assert (outcome.state, outcome.signal) == ("cancelled", signal.SIGKILL)
    assert "did not end by itself within 1 s and was killed" in outcome.reason


def test_second_term_kills_at_once(prepare: Prepare) -> None:
    unpack = prepare(IGNORE + READY_THEN_SLEEP, grace=3600.0)
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    process.terminate()
    time.sleep(0.3)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL


def test_cancel_in_the_store_ends_the_run_and_names_who(prepare: Prepare) -> None:
    unpack = prepare(READY_THEN_SLEEP)
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    cancel = Cancellation(by="grace", at=1.0)
    asyncio.run(unpack.store.put(layout.cancellation(USER, RUN_ID), cancel.to_json()))
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert (unpack.outcome().state, unpack.outcome().reason) == (
        "cancelled",
        "cancelled by grace",
    )


def test_cancel_before_the_start_runs_nothing(prepare: Prepare) -> None:
    unpack = prepare("print('never')")
    cancel = Cancellation(by="grace", at=1.0)
    asyncio.run(unpack.store.put(layout.cancellation(USER, RUN_ID), cancel.to_json()))
    code, _ = unpack.run()
    assert code == 125
    assert unpack.outcome().state == "cancelled"
    assert unpack.outcome().reason == "cancelled by grace, before it was started"
    assert unpack.log() == b""


def test_background_processes_are_ended_and_their_output_kept(prepare: Prepare) -> None:
    unpack = prepare(
        "import subprocess, sys\n"
        "code = 'import time, os; os.write(1, str(os.getpid()).encode() + bytes([32])); '\n"
        "code += 'time.sleep(60)'\n"
        "subprocess.Popen([sys.executable, '-c', code])\n"
        "subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "import time; time.sleep(0.5); print('done')\n"
    )
    assert unpack.run() == (0, "")
    *pids, last = unpack.log().split()
    assert last == b"done"
    assert len(pids) == 2
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_process_that_closes_its_output_runs_on(prepare: Prepare) -> None:
    unpack = prepare(
        "import os, time\nprint('before', flush=True)\nos.close(1); os.close(2)\n"
        "time.sleep(0.5)\nopen(os.environ['J2C_OUTPUT_DIR'] + '/after', 'w')\nos._exit(4)\n"
    )
    code, _ = unpack.run()
    assert code == 4
    assert unpack.log() == b"before\n"
    assert [output.path for output in unpack.outcome().outputs] == ["after"]


def test_works_as_pid_1_and_reaps(prepare: Prepare) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    probe = subprocess.run([*unshare, "true"], capture_output=True)
    if probe.returncode:
        pytest.skip(f"no new PID namespace here: {probe.stderr.decode().strip()}")
    unpack = prepare(
        "import os, subprocess, sys, time\n"
        "subprocess.Popen(['sh', '-c', 'sleep 0.2 & sleep 0.1 & exit'])\n"
        "time.sleep(1)\n"
        "states = [open(f'/proc/{p}/stat').read().split()[2] for p in os.listdir('/proc')\n"
        "          if p.isdigit() and p != str(os.getpid())]\n"
        "print(os.getppid(), states.count('Z'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    result = subprocess.run([*unshare, *unpack.command()], capture_output=True, cwd="/", timeout=60)
    # The one zombie may be the shell, whose parent is the script itself; orphans are reaped.
    assert unpack.log().split()[0] == b"1"
    assert int(unpack.log().split()[1]) <= 1
    assert result.returncode == 128 + signal.SIGKILL
    assert unpack.outcome().signal == signal.SIGKILL


def test_killed_unpack_leaves_no_worker_or_lock(prepare: Prepare) -> None:
    unpack = prepare(READY_THEN_SLEEP)
    process = unpack.start()
    unpack.wait_for_log(b"ready")
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    for child in children:
        child.kill()
    second = prepare("print('again')")
    assert second.run() == (0, "")
    # The next attempt on this node says what became of the first.
    assert unpack.outcome(1).state == "failed"
    assert "j2c unpack was killed" in unpack.outcome(1).reason
    assert unpack.log(2) == b"again\n"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (EntryPoint(kind="module", target="pack.tool"), b"tool ['a', 'b c']\n"),
        (
            EntryPoint(kind="cell", target="In [3]", source="import sys; print('é', sys.argv[1:])"),
            "é ['a', 'b c']\n".encode(),
        ),
    ],
)
def test_modules_and_cells(prepare: Prepare, entry: EntryPoint, expected: bytes) -> None:
    tool = "import sys; print('tool', sys.argv[1:])"
    unpack = prepare("", files={"pack/tool.py": tool}, entry=entry, args=["a", "b c"])
    assert unpack.run() == (0, "")
    assert unpack.log() == expected


def test_cell_runs_in_its_directory_and_the_traceback_names_it(prepare: Prepare) -> None:
    source = "import helper\nraise KeyError(helper.x)"
    entry = EntryPoint(kind="cell", target="train.ipynb cell 3", source=source)
    unpack = prepare("", files={"nb/helper.py": "x = 7"}, entry=entry, cwd="nb")
    assert unpack.run()[0] == 1
    assert (
        b'.train-ipynb-cell-3.py", line 2, in <module>\n    raise KeyError(helper.x)'
        in unpack.log()
    )
    assert unpack.outcome().reason == "exit code 1: KeyError: 7"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"entry": "gone.py"}, "gone.py is not in the bundle"),
        ({"cwd": "gone"}, "the run's directory 'gone' is not there"),
        ({"cwd": "../.."}, "is not in the project"),
        ({"inputs": {"DATA": "/no/such"}}, "input DATA: /no/such is not there on"),
        ({"inputs": {"DATA": "s3://x/y"}}, "no credentials for the store s3://x"),
        ({"inputs": {"DATA": "data"}}, "'data' is relative"),
        ({"bundle_missing": True}, "the store has no bundle"),
        ({"layer_missing": True}, "the store has no layers/"),
    ],
)
def test_failure_before_the_start_is_said_in_one_line(
    prepare: Prepare, options: dict, says: str
) -> None:
    missing = {name for name in ("bundle_missing", "layer_missing") if options.get(name)}
    unpack = prepare("", **{k: v for k, v in options.items() if k not in missing})
    if missing:
        kind = "bundles" if "bundle_missing" in missing else "layers"
        for path in (unpack.store.directory / kind).rglob("*.*"):
            path.unlink()
    code, errors = unpack.run()
    assert code == 125
    assert says in errors
    assert errors.count("\n") == 1
    outcome = unpack.outcome()
    assert (outcome.state, outcome.exit_code, outcome.signal) == ("failed", None, None)
    assert says in outcome.reason
    assert [e["message"] for e in unpack.events() if e["event"] == "error"]
    assert unpack.records()[-1].number == outcome.journal_records


def test_inputs_are_given_as_local_paths(prepare: Prepare, tmp_path: Path) -> None:
    data = tmp_path / "a b"
    data.write_text("x")
    show = "import os; print(os.environ['J2C_INPUT_DATA'] == os.environ['J2C_INPUT_PLAIN'])"
    unpack = prepare(show, inputs={"DATA": data.as_uri(), "PLAIN": str(data)})
    assert unpack.run() == (0, "")
    assert unpack.log() == b"True\n"


def test_links_among_outputs(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    unpack = prepare(
        "import os\nos.chdir(os.environ['J2C_OUTPUT_DIR'])\n"
        "open('epoch3', 'w').write('3'); os.symlink('epoch3', 'best')\n"
        f"os.symlink({str(tmp_path / 'secret')!r}, 'out'); os.symlink('gone', 'dangling')\n"
        f"os.symlink({str(tmp_path)!r}, 'dir'); os.mkfifo('fifo')\n"
        "open(b'\\xff', 'w')\n"
    )
    assert unpack.run() == (0, "")
    outputs = {output.path: output.size for output in unpack.outcome().outputs}
    assert outputs == {"epoch3": 1, "best": 1, "\udcff": 0}
    warnings = [e["message"] for e in unpack.events() if e["event"] == "warning"]
    assert len(warnings) == 4


def test_hostile_workdirs(prepare: Prepare, tmp_path: Path) -> None:
    """HOME=/, umask 077, a relative workdir, foreign files in it, and no cache."""
    where = tmp_path / "cwd"
    (where / "rel").mkdir(parents=True)
    (where / "rel" / "mine.txt").write_text("mine")
    unpack = prepare("import os; print(os.path.expanduser('~'))")
    command = [sys.executable, "-m", "j2c_lab.unpack", unpack.url, "--workdir", "rel", "--cache="]
    result = subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", *command],
        cwd=where,
        env={"HOME": "/", "PATH": os.defpath},
        capture_output=True,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert unpack.log() == b"/\n"
    assert (where / "rel" / "mine.txt").read_text() == "mine"
    assert (where / "rel" / RUN_ID / "project/main.py").stat().st_mode & 0o777 == 0o644


def test_temporary_workdir_is_removed_at_the_end(prepare: Prepare, tmp_path: Path) -> None:
    unpack = prepare("import os; print(os.getcwd())")
    command = [sys.executable, "-m", "j2c_lab.unpack", unpack.url, "--cache="]
    env = {k: v for k, v in os.environ.items() if k != "J2C_WORKDIR"}
    subprocess.run(command, check=True, cwd="/", env={**env, "TMPDIR": str(tmp_path)})
    place = Path(unpack.log().decode().strip())
    assert place == tmp_path / f"j2c-{os.geteuid()}" / RUN_ID / "project"
    assert not place.parent.exists()


def test_non_root_user_with_nothing_but_a_store_and_tmp(prepare: Prepare) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    other = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    try:
        subprocess.run([sys.executable, "-c", "import j2c_lab"], check=True, **other)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"another user cannot run this Python: {error}")
    unpack = prepare("import os; print(os.getuid())")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        shutil.copytree(unpack.store.directory, place / "store")
        subprocess.run(["chown", "-R", "65534", place / "store"], check=True)
        moved = LocalStore(place / "store")
        url = layout.run_url(moved.url, USER, RUN_ID)
        command = [sys.executable, "-m", "j2c_lab.unpack", url]
        env = {"HOME": "/", "PATH": os.defpath}
        result = subprocess.run(command, env=env, capture_output=True, **other)
        assert (result.returncode, result.stderr) == (0, b"")
        assert unpack._replace(store=moved).log() == b"65534\n"


def test_full_disk_is_said_and_the_exit_code_is_125(prepare: Prepare, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        unpack = prepare("", files={"big": os.urandom(6 << 20)})._replace(workdir=small)
        code, errors = unpack.run()
        assert code == 125
        assert "No space left on device" in errors
        assert unpack.outcome().state == "failed"
    finally:
        subprocess.run(["umount", small], check=True)


def test_notebook_is_executed_and_saved_even_when_a_cell_fails(prepare: Prepare) -> None:
    nbformat = pytest.importorskip("nbformat")
    cells = ["import json, helper; print('cell', helper.x)", "raise KeyError('late')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    # Its own json.py must not be what j2c's Python imports.
    files = {
        "nb/train.ipynb": nbformat.writes(notebook),
        "nb/helper.py": "x = 7",
        "nb/nbclient.py": "raise SystemExit('the wrong one')",
    }
    entry = EntryPoint(kind="notebook", target="nb/train.ipynb")
    unpack = prepare("", files=files, entry=entry, cwd="nb")
    assert unpack.run()[0] == 1
    assert b"cell 7\n" in unpack.log()
    (output,) = unpack.outcome().outputs
    assert output.path == "train.ipynb"
    saved = unpack.store.local_path(layout.output(USER, RUN_ID, output.sha256))
    assert saved is not None
    executed = nbformat.reads(saved.read_text(), as_version=4)
    assert executed.cells[0].outputs[0].text == "cell 7\n"
    assert executed.cells[1].outputs[-1].ename == "KeyError"
    assert "train.ipynb failed: KeyError: 'late'" in unpack.outcome().reason


@pytest.mark.parametrize("how", ["signal", "cancel.json"])
def test_cancel_while_a_layer_is_fetched(prepare: Prepare, how: str) -> None:
    # Large enough for worker processes; the store's file never gives a byte.
    layer = make_layer([Item(b"project/big", os.urandom(5 << 20))])
    unpack = prepare("print('never')", layer)
    path = unpack.store.local_path(layout.layer(layer.ref.digest))
    assert path is not None
    path.unlink()
    os.mkfifo(path)
    process = unpack.start()
    until = time.monotonic() + 30
    while not psutil.Process(process.pid).children() and time.monotonic() < until:
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    if how == "signal":
        process.terminate()
    else:
        cancel = Cancellation(by="grace", at=1.0)
        asyncio.run(unpack.store.put(layout.cancellation(USER, RUN_ID), cancel.to_json()))
    process.communicate(timeout=30)
    assert process.returncode == (-signal.SIGTERM if how == "signal" else 125)
    assert unpack.outcome().state == "cancelled"
    assert unpack.outcome().reason.endswith(", before it was started")
    assert not any(worker.is_running() for worker in workers)
    stages = [e for e in unpack.events() if e["event"] == "stage"]
    assert stages[-2]["stage"] == "fetching"
    assert stages[-2]["state"] == "failed"


def test_workdir_that_cannot_be_made_still_gives_an_outcome(prepare: Prepare) -> None:
    unpack = prepare("print('never')")
    unpack.workdir.write_text("a file")
    code, errors = unpack.run()
    assert code == 125
    assert "give a writable directory with --workdir" in errors
    assert unpack.outcome().state == "failed"
    assert unpack.outcome().journal_records == 0
