"""The rules of gitignore: every verdict is git's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pack_tools import write_tree

from j2c_lab.pack.ignore import parse_rules
from j2c_lab.pack.project import plan_project

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

PATHS = [
    "a",
    "b.py",
    "A b",
    "a/b.py",
    "a/b/c.txt",
    "a/b/a",
    "ab/c",
    "ab/b.py",
    "b/a/b/c.txt",
    "b/ab",
    "b/a-b",
    "c[1]",
    "!a",
    "#a",
    "a\\b",
    "é/b.py",
]

_atoms = st.sampled_from(
    ["a", "b", "c", "ab", ".py", ".txt", "*", "**", "?", "/", "/**/", "**/", "/**", "[ab]", "[!a]",
     "[a-c]", "[[:alpha:]]", "[]a]", "[^b-]", "[\\]a]", "\\*", "\\a", "!", "#", "\\!", "\\#", " ",
     "\\ ", "é", "[", "[[:x:]]", "-", "\\"]
)  # fmt: skip
_lines = st.lists(_atoms, min_size=1, max_size=6).map("".join).filter(lambda line: "\0" not in line)
_negatable = st.tuples(st.sampled_from(["", "", "!"]), _lines).map("".join)
_files = st.lists(_negatable, min_size=1, max_size=5).map("\n".join)


@needs_git
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(top=_files, nested=st.none() | _files, exclude=st.none() | _files)
def test_generated_rules_leave_out_what_git_leaves_out(
    repository: Path, top: str, nested: str | None, exclude: str | None
):
    assert_same_as_git(
        repository, {".gitignore": top, "a/.gitignore": nested, ".git/info/exclude": exclude}
    )


@needs_git
@pytest.mark.parametrize(
    "rules",
    [
        "*\n!*/\n!*.py",
        "a/**\n!a/b.py",
        "a/*\n!a/b/",
        "/*\n!/a/",
        "a/**/c.txt",
        "**/b",
        "**b/",
        "a/",
        "*.py\n!a/b.py",
        "a/b\n!a/b/a",
        "b.py   ",
        "A\\ b",
        "\ufeffb.py",
        "b.py\r\n",
        "[[:upper:]]*",
        "?",
        "\\!a\n\\#a",
        "a\\\\b",
        "/é",
    ],
)
def test_well_known_rules_leave_out_what_git_leaves_out(repository: Path, rules: str):
    assert_same_as_git(repository, {".gitignore": rules})


@needs_git
def test_a_project_inside_a_repository_obeys_the_rules_above_it(repository: Path):
    (repository / ".gitignore").write_text("/a/b/\n*.py\n")
    assert left_out(repository / "a") == {"b", "b.py"}


@needs_git
def test_a_worktree_obeys_the_exclude_file_of_its_repository(repository: Path, tmp_path: Path):
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(tmp_path / "tree")], check=True)
    (repository / ".git" / "info" / "exclude").write_text("*.ckpt\n")
    write_tree(tmp_path / "tree", {"x.ckpt": ""})
    assert left_out(tmp_path / "tree") == {"x.ckpt", ".git"}


def test_a_rule_is_labelled_with_its_file_line_and_text():
    rules = parse_rules(b"# comment\n\n*.ckpt  \n!keep.ckpt\n", ".gitignore")
    assert [rule.label for rule in rules] == [".gitignore:3: *.ckpt", ".gitignore:4: !keep.ckpt"]


@pytest.fixture
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    write_tree(path, dict.fromkeys(PATHS[3:], ""))
    write_tree(path / "a", {})
    write_tree(path, {"b.py": "", "A b": ""})
    return path


def assert_same_as_git(repository: Path, rules: dict[str, str | None]) -> None:
    for name, content in rules.items():
        path = repository / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content)
    command = ["git", "-C", str(repository), "-c", "core.excludesFile=", "ls-files", "-o", "-z"]
    others = ["--exclude-standard"]
    listed = subprocess.run([*command, *others], capture_output=True, check=True).stdout
    assert packed(repository) == {os.fsdecode(name) for name in listed.split(b"\0") if name}


def packed(root: Path) -> set[str]:
    with tempfile.TemporaryDirectory() as cache:
        plan = plan_project(str(root), cache_directory=cache)
    files = [file for layer in plan.layers for file in layer.files if file.type == "f"]
    return {os.fsdecode(file.path.removeprefix(b"project/")) for file in files}


def left_out(root: Path) -> set[str]:
    return {entry.path.rstrip("/") for entry in plan_project(str(root)).left_out}
