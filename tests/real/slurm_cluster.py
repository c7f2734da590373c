"""A private Slurm on loopback: munged, slurmctld and slurmds, without root's services or systemd.

Nodes n1 and n2 (8 CPUs, 4 GPUs that are /dev/null) make the partitions `main`, `warned` (whose jobs
are told before they are preempted) and, with precedence, `high`; n3 (2 CPUs, 2 GPUs) is `small`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_CONF = """\
ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={d}/munge/sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd.%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SwitchType=switch/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SlurmctldParameters=preempt_send_user_signal
EnforcePartLimits=ALL
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
MinJobAge=300
KillWait=3
MessageTimeout=3
TCPTimeout=1
SlurmdTimeout=60
SlurmdParameters=config_overrides
GresTypes=gpu
DefMemPerCPU=100
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=8 RealMemory=8000 Gres=gpu:h100:4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=8 RealMemory=8000 Gres=gpu:h100:4
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={n3} CPUs=2 RealMemory=8000 Gres=gpu:h100:2
PartitionName=main Nodes=n[1-2] Default=YES DefaultTime=10 PriorityTier=1
PartitionName=warned Nodes=n[1-2] DefaultTime=10 PriorityTier=1 GraceTime=8
PartitionName=high Nodes=n[1-2] DefaultTime=10 PriorityTier=10 PreemptMode=OFF
PartitionName=small Nodes=n3 DefaultTime=10 PriorityTier=1 PreemptMode=OFF
"""
_GRES = """\
NodeName=n[1-2] Name=gpu Type=h100 File={d}/dev/gpu[0-3]
NodeName=n3 Name=gpu Type=h100 File={d}/dev/gpu[0-1]
"""
NODES = ("n1", "n2", "n3")
PROGRAMS = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "squeue",
    "scancel",
    "scontrol",
    "sinfo",
    "srun",
)
_SBIN = "/usr/sbin"


class SlurmCluster:
    """See the module; starts in about 0.2 s. Daemons can be killed and started again."""

    def __init__(self, directory: Path, base_port: int) -> None:
        self.directory = directory
        self.port = base_port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # Jobs of other users must be able to pass through.
        directory.chmod(0o755)
        for name in ("munge", "state", "spool", "log", "run", "dev"):
            (directory / name).mkdir(exist_ok=True)
        key = directory / "munge/key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(64))
        for number in range(4):
            (directory / f"dev/gpu{number}").symlink_to("/dev/null")
        values = {
            "host": socket.gethostname().split(".")[0],
            "user": pwd.getpwuid(os.geteuid()).pw_name,
            "d": directory,
            "port": base_port,
            **{name: base_port + i for i, name in enumerate(NODES, 1)},
        }
        (directory / "slurm.conf").write_text(_CONF.format(**values))
        (directory / "gres.conf").write_text(_GRES.format(**values))
        (directory / "cgroup.conf").write_text("IgnoreSystemd=yes\n")
        #: What a submitter needs to find this cluster.
        self.environ = {"SLURM_CONF": str(directory / "slurm.conf")}

    def start(self) -> None:
        """Start all daemons and wait until all nodes are idle."""
        self.start_munge()
        self.start_controller()
        for name in NODES:
            self.start_node(name)
        _until(lambda: len(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()) >= 7)

    def start_munge(self) -> None:
        """Start munged and wait for its socket."""
        d = self.directory / "munge"
        # One that was killed has left its socket.
        (d / "sock").unlink(missing_ok=True)
        options = ("socket", "key-file", "log-file", "pid-file", "seed-file")
        files = ("sock", "key", "log", "pid", "seed")
        given = [f"--{option}={d}/{file}" for option, file in zip(options, files, strict=True)]
        self._spawn("munged", "munged", "-F", *given)
        _until((d / "sock").exists)

    def start_controller(self, *options: str) -> None:
        """Start slurmctld and wait until it listens, or slurmd's first call would be lost.

        With the option `-c` it remembers nothing.
        """
        self._spawn("slurmctld", "slurmctld", "-D", *options)
        _until(lambda: _listens(self.port))

    def start_node(self, name: str) -> None:
        """Start a node's slurmd."""
        self._spawn(name, "slurmd", "-D", "-N", name)

    def wait_for_nodes(self) -> None:
        """Wait until a controller that was started again has heard of its nodes."""
        _until(lambda: not {"unk", "down"} & set(self.run("sinfo", "-h", "-o", "%t").split()))

    def end(self, name: str) -> None:
        """End a daemon as an administrator does: slurmctld saves its state, which it else does
        only every few seconds."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(10)

    def kill(self, name: str) -> None:
        """Kill a daemon, as a machine that dies."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands and return what it wrote."""
        return subprocess.run(
            command, env=self._environ(), capture_output=True, text=True, timeout=60, cwd="/"
        ).stdout

    def stop(self) -> None:
        """End all jobs and daemons."""
        if "slurmctld" in self.processes:
            self.run("scancel", "--user", pwd.getpwuid(os.geteuid()).pw_name)
        for name in (*NODES, "slurmctld", "munged"):
            process = self.processes.pop(name, None)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(self, name: str, *command: str) -> None:
        with open(self.directory / "log" / f"{name}.out", "ab") as log:
            # Daemons of their own would be children of PID 1, which may never reap them.
            self.processes[name] = subprocess.Popen(
                command,
                env=self._environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environ(self) -> dict[str, str]:
        path = f"{os.environ['PATH']}:{_SBIN}"
        return {"HOME": os.environ["HOME"], **self.environ, "PATH": path}


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    """A private cluster for the session; skips where Slurm is not installed."""
    path = f"{os.environ['PATH']}:{_SBIN}"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"Slurm is not installed here (no {missing[0]})")
    # Its sockets' paths must be short, which pytest's own directories are not.
    directory = Path(tempfile.mkdtemp(prefix="j2c-slurm-"))
    cluster = SlurmCluster(directory, _free_ports(len(NODES) + 1))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _free_ports(count: int) -> int:
    """Return the first of some free ports; test processes look in ranges of their own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    first = 21000 + 1000 * (int(worker) % 8) + os.getpid() % 80 * 10
    for base in range(first, 30000, 10):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise RuntimeError("there are no free ports")


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _until(ready: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError("the private Slurm did not come up")
        time.sleep(0.02)
