"""The magics in a real kernel, in front of a `j2c` that says what docs/events.md allows."""

import json
import re
import sys

import pytest

RUN = "20261201-025028-7f3a9c"

GOOD = f"""
emit("run", run="{RUN}", name="train", adopted=False)
emit("stage", stage="pack", at=0)
emit("progress", stage="pack", bytes=5_000_000, total_bytes=5_000_000, files=12, total_files=12)
emit("packed", bundle="ab", sent={{"layers": 1, "bytes": 1200}}, left_out=0,
     reused={{"layers": 60, "bytes": 850_000_000}}, seconds=0.2)
emit("stage", stage="submit", at=0)
emit("submitted", run="{RUN}", scheduler="local", handle="1", url="file:///x")
emit("state", run="{RUN}", state="running", reason="", attempt=1)
emit("stage", stage="running", at=0)
emit("log", n=1, at=0, stream="output", text="<b>epoch</b> 1\\n 10%\\r100%\\n")
emit("log", n=2, at=9, stream="output", data="/w==")
emit("metrics", n=3, step=1, values={{"loss": 0.5}})
emit("metrics", n=4, step=2, values={{"loss": 0.25}})
emit("result", run="{RUN}", state="succeeded", exit_code=0, signal=None, reason="",
     duration=3.2, outputs=1)
"""


def html(outputs):
    (found,) = [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
    return found


def text(outputs):
    return "".join(o["text"] for o in outputs if "text" in o)


def test_submit_is_one_output_that_ends_with_the_outcome(start_kernel, speak):
    kernel = start_kernel(J2C_COMMAND=speak(GOOD))
    outputs, reply = kernel.run("run = %j2c submit train.py")
    assert reply["status"] == "ok"
    shown = html(outputs)
    assert len(outputs) == 1
    for part in (RUN, "train", "succeeded after 3.2 s", "5 MB, 12 files", "850 MB already there"):
        assert part in shown
    assert "&lt;b&gt;epoch&lt;/b&gt; 1\n100%\n\ufffd" in shown
    assert "<b>epoch" not in shown
    assert "<code>0.25</code>" in shown
    assert "<script" not in shown
    plain = outputs[0]["data"]["text/plain"]
    assert plain.startswith(f"run {RUN}: succeeded after 3.2 s\n")
    assert "| 100%" in plain and "loss = 0.25" in plain
    outputs, _ = kernel.run("print(run.id, run, run.state, run.metrics, run.exit_code); run")
    assert text(outputs) == f"{RUN} {RUN} succeeded {{'loss': 0.25}} 0\n"
    assert outputs[-1]["data"]["text/plain"] == f"<run {RUN}: succeeded after 3.2 s>"


def test_what_the_command_is_given(start_kernel, speak, tmp_path):
    project = tmp_path / "my project"
    project.mkdir()
    lines = """
    emit("log", text=json.dumps([arguments, os.getcwd(), sys.stdin.read(),
                                 os.environ.get("MPLBACKEND"),
                                 os.environ.get("J2C_VENV")]) + "\\n")
    """
    kernel = start_kernel(cwd=project, J2C_COMMAND=speak(lines))
    cell = "%%j2c submit --gpus 1 -- '' {x!r} {lr} {\"a\": 1}\nprint('''\\n$lr''')\n"
    outputs, reply = kernel.run("lr = 'a b'\nget_ipython().user_ns['lr']")
    outputs, reply = kernel.run(cell)
    assert reply["status"] == "ok", outputs
    line = re.search(r"^\| (.*)", outputs[0]["data"]["text/plain"], re.MULTILINE)[1]
    argv, cwd, stdin, backend, environment = json.loads(line)
    assert argv == [
        *("submit", "--json", "-", "--gpus", "1", "--"),
        *("", "{x!r}", "a b", '{"a": 1}'),
    ]
    assert cwd == str(project)
    assert stdin == "print('''\\n$lr''')\n"
    assert backend is None
    assert environment == sys.prefix


def test_names_of_a_function_are_seen(start_kernel, speak):
    kernel = start_kernel(J2C_COMMAND=speak("print(arguments)"))
    outputs, _ = kernel.run(
        "def go(rate):\n    %j2c submit t.py --dry-run -- --lr {rate * 2}\ngo(0.5)"
    )
    assert text(outputs) == ("['submit', 't.py', '--dry-run', '--', '--lr', '1.0']\n")


def test_a_failed_run_stops_run_all_in_one_line(start_kernel, speak):
    kernel = start_kernel(
        J2C_COMMAND=speak(
            f"""
            emit("run", run="{RUN}", name="t")
            emit("result", run="{RUN}", state="failed", exit_code=3, reason="exit code 3",
                 duration=1.0)
            sys.exit(3)
            """
        )
    )
    outputs, reply = kernel.run("%j2c submit t.py")
    assert reply["status"] == "error"
    line = f"RunFailedError: run {RUN} failed after 1.0 s: exit code 3"
    assert outputs[-1]["traceback"] == [line]
    assert "failed after 1.0 s: exit code 3" in html(outputs)
    outputs, reply = kernel.run(
        "from j2c_lab.magics.result import RunFailedError\n"
        "try:\n    %j2c submit t.py\nexcept RunFailedError as error:\n"
        "    print(error.run.exit_code, error.run.state)"
    )
    assert text(outputs) == "3 failed\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            'emit("error", code="usage", message="there is no t.py", remedy="name a file", '
            'details=["a", "b"]); sys.exit(2)',
            "there is no t.py; name a file",
        ),
        ("sys.stderr.write('Traceback\\nImportError: no rich\\n'); sys.exit(1)", "no rich"),
        ("os.kill(os.getpid(), 9)", "ended with exit code 137"),
    ],
)
def test_an_error_of_the_command_is_said(start_kernel, speak, lines, said):
    kernel = start_kernel(J2C_COMMAND=speak(lines))
    outputs, reply = kernel.run("%j2c submit t.py")
    assert reply["status"] == "error"
    assert said in outputs[-1]["traceback"][0]
    assert said in html(outputs)


def test_an_interrupt_detaches_and_says_how_to_come_back(start_kernel, speak):
    kernel = start_kernel(
        J2C_COMMAND=speak(
            f"""
            def detach(*_):
                emit("detached", run="{RUN}", remedy="j2c logs {RUN} -f")
                sys.exit(130)
            signal.signal(signal.SIGINT, detach)
            emit("run", run="{RUN}", name="t")
            emit("log", text="ready\\n")
            time.sleep(100)
            """
        )
    )
    sent = []

    def interrupt(message):
        if not sent and "| ready" in str(message["content"]):
            sent.append(True)
            kernel.manager.interrupt_kernel()

    outputs, reply = kernel.run("%j2c submit t.py", on_message=interrupt)
    assert reply["status"] == "error" and reply["ename"] == "RunDetachedError"
    assert "detached, the run goes on" in html(outputs)
    assert outputs[-1]["traceback"] == [
        f"RunDetachedError: detached, the run goes on; j2c logs {RUN} -f"
    ]
    assert kernel.run("print('alive')")[0][0]["text"] == "alive\n"


def test_a_restart_of_the_kernel_leaves_the_command_alone(start_kernel, speak, tmp_path):
    import time

    done = tmp_path / "done"
    kernel = start_kernel(
        J2C_COMMAND=speak(
            f"""
            # A restart interrupts before it kills; j2c ends itself after an interrupt, and is not
            # ended by it. Whether the magic passes it on before the kernel dies is a race.
            signal.signal(signal.SIGINT, lambda *_: None)
            emit("log", text="ready\\n")
            time.sleep(2)
            open({str(done)!r}, "w").close()
            """
        )
    )

    def kill(message):
        if "| ready" in str(message["content"]):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        kernel.run("%j2c submit t.py", on_message=kill)
    kernel.manager.shutdown_kernel(now=True)
    deadline = time.monotonic() + 60
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert done.exists()


def test_a_flood_of_output_is_drawn_a_few_times_and_stays_small(start_kernel, speak):
    kernel = start_kernel(
        J2C_COMMAND=speak(
            f"""
            emit("run", run="{RUN}", name="t")
            for n in range(1000):
                emit("log", n=n, text=("\\x1b[31m&\\x1b[32m<" * 200 + "\\n") * 4)
            """
        )
    )
    outputs, _ = kernel.run(
        "import time; start = time.time()\n_ = get_ipython().run_line_magic("
        "'j2c', 'logs x'); print(time.time() - start)"
    )
    seconds = float(text(outputs))
    assert kernel.updates <= seconds * 5 + 2
    shown = html(outputs)
    assert len(shown) < 200_000
    assert f"3,976 earlier lines: <code>%j2c logs {RUN}</code>" in shown


def test_other_verbs_print_what_the_command_prints(start_kernel, speak):
    kernel = start_kernel(J2C_COMMAND=speak("print(arguments, 'é'); sys.stderr.write('note\\n')"))
    outputs, _ = kernel.run("%j2c list --all")
    assert [(o["name"], o["text"]) for o in outputs] == [
        ("stdout", "['list', '--all'] é\n"),
        ("stderr", "note\n"),
    ]
    outputs, _ = kernel.run("%j2c")
    assert "['--help']" in text(outputs)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%j2c submit 'a", "no closing quotation mark"),
        ("%%j2c list\nx", "only %%j2c submit takes a cell"),
        ("%%j2c submit\nif x\n", "line 1 of the cell: expected ':'"),
        ("%%j2c submit\n!pip install x\n", "a plain Python script, without % and ! lines"),
        ("x = {}\n%j2c submit {x['a']}", "{x['a']} failed: KeyError: 'a'"),
    ],
)
def test_wrong_usage_is_one_line_before_anything_starts(start_kernel, speak, cell, said):
    kernel = start_kernel(J2C_COMMAND=speak("raise SystemExit('started')"))
    outputs, reply = kernel.run(cell)
    assert reply["status"] == "error"
    assert re.fullmatch(rf"UsageError: .*{re.escape(said)}.*\n?", text(outputs))


@pytest.mark.parametrize("value", ["[1]", "[", "/no/such/j2c"])
def test_a_wrong_command_is_said(start_kernel, value):
    outputs, reply = start_kernel(J2C_COMMAND=value).run("%j2c list")
    assert reply["status"] == "error"
    assert text(outputs).startswith("UsageError: J2C_COMMAND ")


def test_text_can_be_asked_for(start_kernel, speak):
    kernel = start_kernel(J2C_COMMAND=speak(GOOD), J2C_DISPLAY="text")
    outputs, _ = kernel.run("run = %j2c submit train.py")
    assert "✓ pack  5 MB, 12 files" in text(outputs)
    assert "10%\r100%\n" in text(outputs)
    assert text(outputs).rstrip().endswith(f"run {RUN}: succeeded after 3.2 s")
