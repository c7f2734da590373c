"""A whole run by the command, with SeaweedFS as the store."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import Lab, lab, venv

from tests.faults.proxy import Fault, FaultProxy, Request
from tests.real.s3_servers import BUCKET, S3Server

__all__ = ["lab", "venv"]


@pytest.fixture
def proxy(seaweed: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint) as proxy:
        yield proxy


@pytest.fixture
def remote(lab: Lab, proxy: FaultProxy, seaweed: S3Server) -> Lab:
    """A lab whose store is far away."""
    lab.environ.update(seaweed.settings(proxy.endpoint))
    lab.environ["J2C_STORE"] = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
    lab.script(
        "import os, sys\n"
        "from pathlib import Path\n"
        "print('learning'); print('badly', file=sys.stderr)\n"
        "Path(os.environ['J2C_OUTPUT_DIR'], 'model.bin').write_bytes(b'weights')\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    return lab


def test_a_run_goes_there_and_comes_back(remote: Lab, proxy: FaultProxy) -> None:
    done = remote("submit", "train.py", "--output", "*.bin", "--", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"learning\nbadly\n"
    fetched = remote("fetch", "last", "-o", "here")
    assert fetched.returncode == 0, fetched.stderr
    assert (remote.project / "here/model.bin").read_bytes() == b"weights"
    assert remote("submit", "train.py", "--", "3").returncode == 3
    # And a dry run only looks.
    seen = []
    proxy.schedule = lambda request: seen.append(request)  # type: ignore[func-returns-value]
    assert remote("submit", "train.py", "--dry-run", "--", "3").returncode == 0
    assert [r for r in seen if r.method not in ("GET", "HEAD")] == []


def test_a_third_of_all_requests_may_fail(remote: Lab, proxy: FaultProxy) -> None:
    faults = [Fault("reset"), Fault("answer", 503, "SlowDown"), Fault("lose-answer")]

    def schedule(request: Request) -> Fault | None:
        return faults[request.number // 3 % 3] if request.number % 3 == 0 else None

    proxy.schedule = schedule
    done = remote("submit", "train.py", "--output", "*.bin", "--", "5")
    assert done.returncode == 5, done.stderr
    assert done.stdout == b"learning\nbadly\n"
    assert proxy.faults.total() > 10
    assert len(remote.jobs()) == 1


def test_credentials_appear_in_nothing_that_is_stored_or_said(
    remote: Lab, seaweed: S3Server
) -> None:
    secret = remote.environ["AWS_SECRET_ACCESS_KEY"]
    plan = remote("submit", "train.py", "--dry-run", "--json", "--", "0")
    done = remote("submit", "train.py", "--json", "--", "0")
    assert done.returncode == 0
    assert secret.encode() not in plan.stdout + plan.stderr + done.stdout + done.stderr
    client = seaweed.client()
    prefix = remote.environ["J2C_STORE"].rsplit("/", 1)[1] + "/runs/"
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]
    assert len(listed) > 3
    for item in listed:
        body = client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"]
        assert secret.encode() not in body.read()
        body.close()
    client.close()


def test_inputs_come_from_s3_and_from_paths_that_the_cluster_has_elsewhere(
    remote: Lab, seaweed: S3Server, tmp_path: Path
) -> None:
    client = seaweed.client()
    prefix = uuid.uuid4().hex[:8]
    files = {"a.txt": b"1", "deep/b c.txt": b"22", "deep/ж.txt": b"3" * 3_000_000}
    for name, content in files.items():
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=content)
    client.close()
    (tmp_path / "mnt").mkdir()
    (tmp_path / "mnt/local").write_bytes(b"4")
    (remote.project / "pyproject.toml").write_text(
        f'[tool.j2c.paths]\n"{tmp_path}/home" = "{tmp_path}/mnt"\n'
    )
    remote.script(
        "import os\n"
        "from pathlib import Path\n"
        "root = Path(os.environ['J2C_INPUT_ALL'])\n"
        "for path in sorted(p for p in root.rglob('*') if p.is_file()):\n"
        "    print(path.relative_to(root), path.stat().st_size)\n"
        "print(Path(os.environ['J2C_INPUT_ONE']).read_text())\n"
        "print(Path(os.environ['J2C_INPUT_HERE']).read_text())\n"
    )
    done = remote(
        "submit",
        "train.py",
        f"--input=ALL=s3://{BUCKET}/{prefix}/",
        f"--input=ONE=s3://{BUCKET}/{prefix}/deep/b c.txt",
        f"--input=HERE={tmp_path}/home/local",
    )
    assert done.returncode == 0, done.stderr
    expected = "a.txt 1\ndeep/b c.txt 2\ndeep/ж.txt 3000000\n22\n4\n"
    assert done.stdout.decode() == expected
    done = remote("submit", "train.py", f"--input=ALL=s3://{BUCKET}/{prefix}/none")
    assert done.returncode == 125
    assert f"there is nothing at s3://{BUCKET}/{prefix}/none".encode() in done.stderr


def test_a_killed_run_is_gone_on_with_from_its_last_save(remote: Lab) -> None:
    remote.script(
        "import os, time\n"
        "from pathlib import Path\n"
        "path = Path(os.environ['J2C_OUTPUT_DIR'], 'step')\n"
        "if path.exists():\n"
        "    print('goes on after', path.read_text()); raise SystemExit\n"
        "parent = os.getppid()\n"
        "path.with_name('pid').write_text(str(parent))\n"
        "path.write_text('7')\n"
        "while os.getppid() == parent: time.sleep(0.05)\n"
    )
    done = remote("submit", "train.py", "--detach", "--save-every", "1s")
    assert done.returncode == 0, done.stderr
    end = time.monotonic() + 60
    # Of a run that goes on.
    while remote("fetch", "last", "-o", "saved").returncode:
        assert time.monotonic() < end
        time.sleep(0.5)
    assert (remote.project / "saved/step").read_text() == "7"
    os.kill(int((remote.project / "saved/pid").read_text()), signal.SIGKILL)
    assert remote("logs", "-f", "last").returncode != 0
    done = remote("resume", "last")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"goes on after 7\n"
