"""Shebangs that lead to the right Python, whatever its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from j2c_lab.installed.scripts import (
    EntryScript,
    entry_script,
    parse_entry_scripts,
    shebang,
    with_place,
    without_place,
)

NAMES = [
    "plain",
    "with space",
    "tab\there",
    "l" * 200,
    "quote's",
    'double"quote',
    "dollar$HOME`id`;&|",
    "back\\slash",
    "üñí",
    "{brace}%",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs_with_a_python_at_any_path(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    (directory / "python").symlink_to(sys.executable)
    (tmp_path / "module_of_test.py").write_text(
        "import sys\nclass main:\n    @staticmethod\n    def run():\n        print(sys.argv[1:])\n"
    )
    script = tmp_path / "script"
    script.write_bytes(entry_script(os.fspath(directory / "python"), "module_of_test:main.run"))
    script.chmod(0o755)
    arguments = ["", "a b", "$x", "'\"", "ü"]

    done = subprocess.run(
        [script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.fspath(tmp_path), "PYTHONWARNINGS": "ignore"},
    )

    assert done.stdout == f"{arguments}\n", done.stderr


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r/"), min_size=1, max_size=150),
    st.sampled_from(["", "-E", "-I"]),
    st.binary(max_size=50),
)
@example("a b", "-E", b"")
def test_what_names_a_place_comes_back_without_it(name: str, options: str, body: bytes) -> None:
    directory = f"/opt/{name}/bin"
    script = shebang(f"{directory}/python3.11", options) + body

    neutral = without_place(script, [os.fsencode(directory)])

    if "'" in name:  # quoted for the shell in more than one way: left as it is
        return
    expected = f"#!python {options}".rstrip().encode() + b"\n" + body
    assert neutral == expected
    assert with_place(expected, f"{directory}/python3.11") == script


def test_a_python_of_another_place_is_left_alone() -> None:
    assert without_place(b"#!/usr/bin/python3\n", [b"/venv/bin"]) is None
    assert without_place(b"#!/bin/sh\n", [b"/venv/bin"]) is None
    assert with_place(b"#!/usr/bin/env python\n", "/venv/bin/python") is None


def test_entry_points_are_read_with_their_quirks() -> None:
    text = (
        b"[other]\nnot = this:one\n\n[ console_scripts ]\r\nplain=a.b:c\n"
        b"  spaced  =  a : c.d [extra,two]\n# comment = a:b\n; comment = a:b\n"
        b"no-attribute = a\nbad/name = a:b\n[gui_scripts]\ngui = g:ui\n[more]\nx = y:z\n"
    )
    assert parse_entry_scripts(text) == [
        EntryScript("plain", "a.b:c"),
        EntryScript("spaced", "a:c.d"),
        EntryScript("gui", "g:ui"),
    ]
