"""Real S3 servers on loopback, one of each kind for a test session, stopped by process id."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BUCKET = "j2c-tests"
KEY, SECRET = "labadmin", "labadminsecret"


#: Runs a server until its standard input ends: when the tests are killed, it goes too.
_WITH_US = 'exec 3<&0; "$@" 3<&- & server=$!; { read _ <&3; kill -9 $server; } & wait $server'


@dataclass
class S3Server:
    """A server that can be asked, killed and started again.

    Attributes
    ----------
    kind : str
        `seaweed`, `moto` or `rclone`.
    endpoint : str
        Its address.
    command : list of str
        What starts it.
    """

    kind: str
    endpoint: str
    command: list[str]
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes objects."""
        with open(self.directory / "server.log", "ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", _WITH_US, "sh", *self.command],
                # Held open by this process alone; see `_WITH_US`.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        self._wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._signal(signal.SIGKILL)
        assert self.process is not None and self.process.stdin is not None
        self.process.wait()
        self.process.stdin.close()

    def freeze(self) -> None:
        """Stop it from moving, connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def settings(self, endpoint: str = "") -> dict[str, str]:
        """Return the standard variables that lead a client here, and nowhere else."""
        return {
            "AWS_ENDPOINT_URL_S3": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self):
        """Return a synchronous client of another make than the one under test."""
        from botocore.config import Config
        from botocore.session import Session

        return Session().create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(
                s3={"addressing_style": "path"},
                connect_timeout=2,
                read_timeout=10,
                retries={"total_max_attempts": 1},
                request_checksum_calculation="when_required",
            ),
        )

    def _signal(self, number: int) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _wait(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        client = self.client()
        last: Exception | None = None
        end = time.monotonic() + 30
        while time.monotonic() < end:
            assert self.process is not None and self.process.poll() is None, (
                f"{self.kind} ended: {(self.directory / 'server.log').read_text()[-2000:]}"
            )
            try:
                with contextlib.suppress(client.exceptions.ClientError):
                    client.create_bucket(Bucket=BUCKET)
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"yes")
                client.close()
                return
            except (BotoCoreError, ClientError) as error:
                last = error
                time.sleep(0.05)
        raise AssertionError(f"{self.kind} did not come up: {last}")


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS: checks signatures, honours preconditions, ETags are MD5."""
    with running(seaweed_server(tmp_path_factory.mktemp("seaweed"))) as server:
        yield server


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto's server: follows AWS's answers closely, checks no signature."""
    port = free_ports(1)[0]
    server = S3Server(
        kind="moto",
        endpoint=f"http://127.0.0.1:{port}",
        command=[
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "moto.server",
            "-H",
            "127.0.0.1",
            "-p",
            str(port),
        ],
        directory=tmp_path_factory.mktemp("moto"),
    )
    with running(server) as started:
        yield started


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """rclone's server: ignores preconditions, so it tests what stands in for them."""
    directory = tmp_path_factory.mktemp("rclone")
    (directory / "data").mkdir()
    port = free_ports(1)[0]
    server = S3Server(
        kind="rclone",
        endpoint=f"http://127.0.0.1:{port}",
        command=[
            *(program("rclone"), "serve", "s3", "data", "--config", os.devnull),
            *("--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"),
        ],
        directory=directory,
    )
    with running(server) as started:
        yield started


def seaweed_server(directory: Path) -> S3Server:
    """Return a SeaweedFS that keeps its data in `directory`, not started yet."""
    users = [
        {
            "name": "admin",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": "labreader", "secretKey": "labreadersecret"}],
            "actions": [f"Read:{BUCKET}", f"List:{BUCKET}"],
        },
    ]
    (directory / "s3.json").write_text(json.dumps({"identities": users}))
    (directory / "data").mkdir(exist_ok=True)
    master, volume, filer, s3, admin = free_ports(5, grpc=True)
    return S3Server(
        kind="seaweed",
        endpoint=f"http://127.0.0.1:{s3}",
        command=[
            *(program("weed"), "-logtostderr=true", "mini", "-dir=data", "-s3.config=s3.json"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
            *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
            *(f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-admin.port={admin}", "-webdav=false", "-admin.ui=false"),
        ],
        directory=directory,
        environment={"GOMEMLIMIT": "350MiB"},
    )


@contextlib.contextmanager
def running(server: S3Server) -> Iterator[S3Server]:
    """Start the server; at the end kill it and remove its data."""
    server.start()
    try:
        yield server
    finally:
        server.thaw()
        server.kill()
        shutil.rmtree(server.directory, ignore_errors=True)


def free_ports(count: int, grpc: bool = False) -> list[int]:
    """Return free ports; with `grpc` those 10,000 above are free too."""
    while True:
        ports = random.sample(range(20_000, 44_000), count)
        wanted = ports + [port + 10_000 for port in ports if grpc]
        with contextlib.ExitStack() as stack:
            try:
                for port in wanted:
                    listener = stack.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return ports


def program(name: str) -> str:
    """Return the path of a program that a test dependency has installed; skip without it."""
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
