"""Reading which libraries a compiled file asks for, damaged files included."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from j2c_lab.pack.elf import needed_libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF is Linux's format")

PROGRAM = Path("/bin/ls")


def test_a_program_asks_for_the_c_library() -> None:
    assert any(name.startswith("libc.") for name in needed_libraries(os.fsencode(PROGRAM)))


def test_what_is_no_program_asks_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n")
    (tmp_path / "empty").write_text("")
    for name in ("text", "empty", "nothing-there"):
        assert needed_libraries(os.fsencode(tmp_path / name)) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    at=st.integers(0, 2000), junk=st.binary(min_size=1, max_size=64), end=st.integers(0, 1 << 20)
)
def test_a_damaged_file_raises_nothing(tmp_path: Path, at: int, junk: bytes, end: int) -> None:
    content = PROGRAM.read_bytes()
    damaged = tmp_path / "damaged"
    damaged.write_bytes((content[:at] + junk + content[at + len(junk) :])[:end])

    names = needed_libraries(os.fsencode(damaged))

    assert all(isinstance(name, str) for name in names)
