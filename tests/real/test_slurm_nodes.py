"""One run on two nodes of a real Slurm: one unpack a node, one log, one outcome."""

from __future__ import annotations

import json
import time

from cli_tools import Lab, venv
from slurm_tools import slurm_lab, until

__all__ = ["slurm_lab", "venv"]

#: Meets the other nodes at the address that torchrun's variables name, and adds up their ranks.
MEET = """
import json, os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
names = ("NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "J2C_ATTEMPT")
print(json.dumps([rank, world, *(os.environ[n] for n in names)]), flush=True)
if rank == 0:
    server = socket.create_server(place)
    total = 0
    for _ in range(world - 1):
        peer, _ = server.accept()
        total += int(peer.recv(10))
        peer.close()
    open(os.environ["J2C_OUTPUT_DIR"] + "/total", "w").write(str(total))
else:
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(str(rank).encode())
    peer.close()
"""


def test_two_nodes_meet_and_are_shown_as_one_run(slurm_lab: Lab) -> None:
    lab = slurm_lab
    lab.script(MEET)
    events = lab.events("submit", "train.py", "--nodes", "2", "--gpus", "2", "--cpus", "2")
    said = {0: "", 1: ""}
    for event in events:
        if event["event"] == "log":
            said[event["rank"]] += event["text"]
    assert {rank: json.loads(text) for rank, text in said.items()} == {
        0: [0, 2, "0", "0", "1", "0,1", "1"],
        1: [1, 2, "1", "0", "1", "0,1", "1"],
    }
    assert (events[-1]["event"], events[-1]["state"]) == ("result", "succeeded")
    assert json.loads(lab("logs", "last", "--rank", "1").stdout)[0] == 1
    lab("fetch", "last", "-o", "out")
    assert (lab.project / "out/total").read_text() == "1"


def test_the_first_failure_ends_the_others_and_is_the_runs(slurm_lab: Lab) -> None:
    lab = slurm_lab
    lab.script(
        "import os, sys, time\nprint('up', flush=True)\n"
        "sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(300)\n"
    )
    started = time.monotonic()
    done = lab("submit", "train.py", "--nodes", "2")
    assert done.returncode == 7, done.stderr.decode()
    assert time.monotonic() - started < 60
    (shown,) = lab.events("status", "last")
    assert (shown["state"], shown["reason"], shown["exit_code"]) == ("failed", "exit code 7", 7)


def test_cancelling_reaches_all_nodes_and_saves_their_outputs(slurm_lab: Lab) -> None:
    lab = slurm_lab
    lab.script(
        "import os, signal, sys, time\n"
        "def end(number, frame):\n"
        "    open(os.environ['J2C_OUTPUT_DIR'] + '/' + os.environ['RANK'], 'a').write('x')\n"
        "    sys.exit(9)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(300)\n"
    )
    lab("submit", "train.py", "--nodes", "2", "--detach")
    until(lambda: lab("logs", "last").stdout == b"up\nup\n")
    lab("cancel", "last")
    lab("logs", "-f", "last")
    (shown,) = lab.events("status", "last")
    assert (shown["state"], shown["reason"]) == ("cancelled", "cancelled by ada"), shown
    lab("fetch", "last", "-o", "out")
    saved = {path.name: path.read_text() for path in (lab.project / "out").iterdir()}
    assert saved == {"0": "x", "1": "x"}
