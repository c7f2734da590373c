"""A SeaweedFS on loopback for `make demo STORE=s3`: its own keys, its data below .demo."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

BUCKET = "demo"
#: Runs a server until its standard input ends: when the demo is killed, it goes too.
_WITH_US = 'exec 3<&0; "$@" 3<&- & server=$!; { read _ <&3; kill $server; } & wait $server'


@contextlib.contextmanager
def seaweed(directory: Path) -> Iterator[dict[str, str]]:
    """Run the server; gives the variables that lead j2c to it."""
    (directory / "data").mkdir(parents=True, exist_ok=True)
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    user = {
        "name": "demo",
        "credentials": [{"accessKey": key, "secretKey": secret}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }
    configuration = directory / "s3.json"
    configuration.touch(mode=0o600)
    configuration.write_text(json.dumps({"identities": [user]}))
    master, volume, filer, s3, admin = _free_ports(5)
    command = [
        *(os.path.join(sysconfig.get_path("scripts"), "weed"), "-logtostderr=true", "mini"),
        *("-dir=data", "-s3.config=s3.json", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *(f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-admin.port={admin}"),
        *("-master.telemetry=false", "-webdav=false", "-admin.ui=false"),
    ]
    settings = {
        "J2C_STORE": f"s3://{BUCKET}/j2c",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{s3}",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    log = directory / "server.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", _WITH_US, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=directory,
            start_new_session=True,
        )
    try:
        print(f"SeaweedFS serves S3 at {settings['AWS_ENDPOINT_URL_S3']}; its log is {log}")
        _make_bucket(settings, process, log)
        yield settings
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def _make_bucket(settings: dict[str, str], process: subprocess.Popen[bytes], log: Path) -> None:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import Session

    client = Session().create_client(
        "s3",
        endpoint_url=settings["AWS_ENDPOINT_URL_S3"],
        region_name=settings["AWS_REGION"],
        aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"],
        config=Config(connect_timeout=2, read_timeout=10, s3={"addressing_style": "path"}),
    )
    end = time.monotonic() + 60
    while True:
        try:
            with contextlib.suppress(client.exceptions.BucketAlreadyExists):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"yes")
            return
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"SeaweedFS did not start: {error}; see {log}") from None
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    """Return free ports whose gRPC companions, 10,000 above, are free too."""
    while True:
        ports = random.sample(range(20_000, 44_000), count)
        with contextlib.ExitStack() as stack:
            try:
                for port in (*ports, *(port + 10_000 for port in ports)):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return ports
