"""Documents survive the way through JSON, with what this version does not know."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from j2c_lab.errors import FormatError
from j2c_lab.formats.manifest import EnvironmentRef, LayerRef, Manifest, Script
from j2c_lab.formats.run import EntryPoint, Outcome, Resources, Run

ENVIRONMENT = EnvironmentRef(
    kind="venv",
    python="3.11",
    python_full="3.11.7",
    implementation="cpython",
    platform="linux-x86_64",
    libc="glibc 2.36",
    system_site=True,
    distributions=[],
    scripts=[Script(name="tool", target="pkg.cli:main")],
)
MANIFEST = Manifest(
    project="p",
    layers=[
        LayerRef(
            digest="0" * 64, name="n", place="project", packed_size=1, unpacked_size=2, files=3
        )
    ],
    environment=ENVIRONMENT,
)


def run_values() -> dict[str, Any]:
    return Run(
        id="20261201-000000-abcdef",
        user="ann",
        name="train",
        created=1.5,
        bundle="0" * 64,
        entry=EntryPoint(kind="script", target="train.py"),
        args=["", "a b", "\udcff", 'q"\n;$'],
        resources=Resources(gpus=2),
    ).to_dict()


def test_round_trip_keeps_every_field() -> None:
    assert Manifest.from_json(MANIFEST.to_json()) == MANIFEST
    assert Run.from_dict(run_values()).to_dict() == run_values()


def test_same_content_gives_the_same_bytes_and_digest() -> None:
    again = Manifest.from_json(MANIFEST.to_json())
    assert again.to_json() == MANIFEST.to_json()
    assert again.digest() == MANIFEST.digest()
    assert dataclasses.replace(MANIFEST, project="q").digest() != MANIFEST.digest()


def test_unknown_fields_survive_at_every_depth() -> None:
    values = run_values()
    values["future"] = {"a": 1}
    values["resources"]["tpus"] = 4
    assert Run.from_dict(values).to_dict() == values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", 7),
        ("args", "train.py"),
        ("args", [1]),
        ("env", {"A": None}),
        ("created", "now"),
        ("grace", True),
        ("resources", "two"),
        ("format", 2),
    ],
)
def test_a_wrong_field_is_named(name: str, value: Any) -> None:
    with pytest.raises(FormatError, match=name):
        Run.from_dict({**run_values(), name: value})


def test_a_missing_field_is_named() -> None:
    values = run_values()
    del values["bundle"]
    with pytest.raises(FormatError, match="bundle"):
        Run.from_dict(values)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null"])
def test_bytes_that_are_no_document(data: bytes) -> None:
    with pytest.raises(FormatError):
        Run.from_json(data)


@pytest.mark.parametrize(
    ("exit_code", "signal", "reported"),
    [(0, None, 0), (3, None, 3), (None, 9, 137), (None, None, 125)],
)
def test_process_exit_code_is_what_a_shell_reports(
    exit_code: int | None, signal: int | None, reported: int
) -> None:
    outcome = Outcome(attempt=1, state="failed", exit_code=exit_code, signal=signal)
    assert outcome.process_exit_code() == reported
