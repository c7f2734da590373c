"""What Slurm is given for a job: sbatch's arguments, and a script that bash reads as meant."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from j2c_lab.errors import UsageError
from j2c_lab.formats.run import Job, Resources
from j2c_lab.schedulers.slurm_render import job_name, quote, render, warning_lead

RUN_ID = "20261201-025028-7f3a9c"


def job(**values: Any) -> Job:
    resources = Resources(**values.pop("resources", {}))
    given = {
        "run_id": RUN_ID,
        "name": "train",
        "user": "ada",
        "run_url": f"file:///store/runs/ada/{RUN_ID}",
        "command": ["j2c", "unpack", f"file:///store/runs/ada/{RUN_ID}"],
        "resources": resources,
        "options": {"j2c": "/opt/j2c"},
        **values,
    }
    return Job(**given)


def test_resources_and_options_are_slurms_own() -> None:
    asked = {"gpus": 2, "cpus": 8, "memory": 3 * (1 << 30) + 1, "nodes": 2, "time": 5401}
    options = {
        "j2c": "/opt/j2c",
        "partition": "gpu",
        "account": "lab",
        "qos": "normal",
        "constraint": "a100|h100",
        "gpu_type": "h100",
        "options": "--exclusive --comment='a b'",
    }
    batch = render(job(resources=asked, options=options), "/home/ada/logs")
    assert batch.arguments == [
        "--parsable",
        "--requeue",
        f"--job-name=train-{RUN_ID}",
        f"--output=/home/ada/logs/{RUN_ID}.log",
        "--open-mode=append",
        "--chdir=/",
        "--input=/dev/null",
        "--export=ALL",
        "--signal=B:TERM@90",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=8",
        "--mem=3073M",
        "--time=91",
        "--gres=gpu:h100:2",
        "--partition=gpu",
        "--account=lab",
        "--qos=normal",
        "--constraint=a100|h100",
        "--exclusive",
        "--comment=a b",
    ]


def test_what_is_not_asked_for_is_left_to_slurm() -> None:
    arguments = " ".join(render(job(), "/logs").arguments)
    for option in ("--mem", "--time", "--gres", "--partition", "--cpus-per-task"):
        assert option not in arguments


def test_the_queue_of_a_run_wins_over_the_partition_of_the_options() -> None:
    arguments = render(job(queue="short", options={"partition": "gpu"}), "/logs").arguments
    assert "--partition=short" in arguments
    assert "--partition=gpu" not in arguments


def test_an_image_is_started_by_the_sites_own_template() -> None:
    options = {"container": "apptainer exec --nv '{image}'"}
    script = render(job(image="docker://x/y z:1", options=options), "/logs").script
    assert "apptainer exec --nv 'docker://x/y z:1' j2c unpack" in script


def test_an_image_that_nothing_is_known_to_start_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="how to start it"):
        render(job(image="x"), "/logs")


@pytest.mark.parametrize("options", [{"partion": "x"}, {"options": "--comment='"}])
def test_options_that_cannot_be_meant_are_wrong_usage(options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        render(job(options=options), "/logs")


def test_attempts_go_on_counting_after_those_of_earlier_submissions() -> None:
    script = render(job(attempts_before=3, submission=2), "/logs").script
    assert "J2C_ATTEMPT_NUMBER=$((3 + ${SLURM_RESTART_COUNT:-0} + 1))" in script


@pytest.mark.parametrize(("seconds", "lead"), [(None, 90), (86400, 90), (60, 20), (180, 60)])
def test_a_warning_never_comes_before_a_short_job_has_begun(seconds: int | None, lead: int) -> None:
    assert warning_lead(job(resources={"time": seconds})) == lead


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.integers(1, 12))
def test_a_name_is_short_plain_and_ends_with_the_runs_key(name: str, submission: int) -> None:
    made = job_name(job(name=name, submission=submission))
    key = RUN_ID if submission == 1 else f"{RUN_ID}.{submission}"
    assert made.endswith(f"-{key}")
    assert len(made) < 80
    assert made.isascii()
    assert not set(made) & set(" |;'\"$`\n")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40).filter(lambda data: b"\0" not in data), max_size=8))
def test_bash_reads_every_quoted_word_as_it_was(words: list[bytes]) -> None:
    texts = [word.decode("utf-8", "surrogateescape") for word in words]
    quoted = " ".join(map(quote, texts))
    assert quoted.isascii()
    assert "\n" not in quoted
    assert "\r" not in quoted
    script = f"printf '%s\\0' {quoted} end".encode()
    done = subprocess.run(["bash"], input=script, capture_output=True, check=True)
    assert done.stdout.split(b"\0") == [*words, b"end", b""]


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_script_is_bash(nodes: int) -> None:
    odd = {"A": "new\r\nline", "B": "{x} 'y' ${z}"}
    script = render(job(env=odd, resources={"nodes": nodes}), "/a dir/l'ogs").script
    done = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
