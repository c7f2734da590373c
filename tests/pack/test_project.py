"""What of a project travels, and what is said of the rest."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from environment_tools import make_venv
from pack_tools import extract, files_opened, listing, pack_tree, settle, write_tree

from j2c_lab.errors import PackError, UsageError
from j2c_lab.pack.plan import ProjectPlan
from j2c_lab.pack.project import cut_into_layers, find_project, plan_project
from j2c_lab.store.local import LocalStore


class TestFindProject:
    def test_the_nearest_settings_win_over_a_nearer_repository(self, tmp_path: Path):
        write_tree(tmp_path, {"pyproject.toml": "[tool.j2c]\n", "a/.git/": "", "a/b/": ""})
        assert find_project(str(tmp_path / "a" / "b")) == str(tmp_path)

    def test_a_pyproject_of_others_is_no_mark(self, tmp_path: Path):
        write_tree(tmp_path, {".git/": "", "a/pyproject.toml": "[tool.ruff]\n# j2c\n", "a/b/": ""})
        assert find_project(str(tmp_path / "a" / "b")) == str(tmp_path)

    def test_without_any_mark_it_is_the_entry_directory(self, tmp_path: Path):
        write_tree(tmp_path, {"a/b/": ""})
        assert find_project(str(tmp_path / "a" / "b")) == str(tmp_path / "a" / "b")

    def test_what_is_asked_for_wins(self, tmp_path: Path):
        write_tree(tmp_path, {"pyproject.toml": "[tool.j2c]\n", "a/b/": ""})
        found = find_project(str(tmp_path / "a" / "b"), explicit=str(tmp_path / "a"))
        assert found == str(tmp_path / "a")

    def test_a_repository_of_dotfiles_at_home_is_no_project(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        write_tree(tmp_path, {".git/": "", "home/.git/": "", "home/work/": ""})
        assert find_project(str(tmp_path / "home" / "work")) == str(tmp_path / "home" / "work")

    def test_the_root_of_the_file_system_is_refused(self):
        with pytest.raises(UsageError, match="--project"):
            find_project("/")

    def test_broken_settings_are_named(self, tmp_path: Path):
        write_tree(tmp_path, {"pyproject.toml": "[tool.j2c\n"})
        with pytest.raises(UsageError, match=r"pyproject\.toml is not valid TOML"):
            find_project(str(tmp_path))


class TestLeftOut:
    def test_each_built_in_rule_is_listed_once_a_directory(self, root: Path):
        write_tree(
            root,
            {
                "train.py": "",
                "__pycache__/train.cpython-311.pyc": "",
                "src/.ipynb_checkpoints/x.ipynb": "",
                "web/node_modules/a/b.js": "",
                ".git/HEAD": "",
                ".mypy_cache/x/y": "",
                "j2c_outputs/r/model.bin": "",
                "conda/conda-meta/history": "",
                "conda/lib/x.so": "",
            },
        )
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(root / "my env")], check=True
        )
        assert rules(plan_project(str(root))) == {
            "__pycache__/": "built-in: __pycache__",
            "src/.ipynb_checkpoints/": "built-in: .ipynb_checkpoints",
            "web/node_modules/": "built-in: node_modules",
            ".git/": "built-in: .git",
            ".mypy_cache/": "built-in: .mypy_cache",
            "j2c_outputs/": "built-in: j2c_outputs",
            "conda/": "built-in: virtual environment",
            "my env/": "built-in: virtual environment",
        }

    def test_secrets_stay_behind_and_their_examples_travel(self, root: Path):
        secrets = [".env", ".env.local", "a/id_rsa", "a/id_ed25519", ".netrc", ".pypirc",
                   ".git-credentials", ".bash_history"]  # fmt: skip
        write_tree(root, dict.fromkeys(secrets, "s"))
        write_tree(root, {".aws/credentials": "s", ".env.example": "", "id_rsa.pub": "", "x": ""})
        plan = plan_project(str(root))
        assert rules(plan) == dict.fromkeys([*secrets, ".aws/"], "built-in: secrets")
        assert places(plan) == {".env.example", "id_rsa.pub", "x"}

    def test_a_negated_line_in_j2cignore_takes_a_secret_along(self, root: Path):
        write_tree(root, {".j2cignore": "!.env\n!.aws/\n", ".env": "", ".aws/config": ""})
        assert places(plan_project(str(root))) == {".j2cignore", ".env", ".aws/config"}

    def test_neither_a_broad_negation_nor_gitignore_takes_a_secret_along(self, root: Path):
        write_tree(
            root, {".j2cignore": "*\n!*/\n!*.py\n!*\n", ".env": "", "a/__pycache__/x.py": ""}
        )
        assert places(plan_project(str(root))) == {".j2cignore"}
        (root / ".j2cignore").unlink()
        write_tree(root, {".gitignore": "!.env\n"})
        assert places(plan_project(str(root))) == {".gitignore"}

    def test_j2cignore_replaces_gitignore(self, root: Path):
        write_tree(root, {".j2cignore": "*.log\n", ".gitignore": "*.ckpt\n", "a/.gitignore": "*\n"})
        write_tree(root, {"a/x.ckpt": "", "b.log": ""})
        plan = plan_project(str(root))
        assert rules(plan) == {"b.log": ".j2cignore:1: *.log"}
        assert "a/x.ckpt" in places(plan)

    def test_rules_of_gitignore_are_listed_with_file_and_line(self, root: Path):
        write_tree(root, {".gitignore": "# big\n\n*.ckpt\n/data/\n", "sub/.gitignore": "tmp\n"})
        write_tree(root, {"x.ckpt": "12345", "data/a": "", "data/b": "", "sub/tmp": "1"})
        plan = plan_project(str(root))
        assert rules(plan) == {
            "x.ckpt": ".gitignore:3: *.ckpt",
            "data/": ".gitignore:4: /data/",
            "sub/tmp": "sub/.gitignore:1: tmp",
        }
        assert [(e.path, e.size) for e in plan.left_out if e.path == "x.ckpt"] == [("x.ckpt", 5)]

    def test_settings_and_given_directories_leave_out_too(self, root: Path):
        write_tree(root, {"store/x": "", "a.tmp": "", "a.py": ""})
        plan = plan_project(str(root), exclude=["*.tmp"], extra_exclude_dirs=[str(root / "store")])
        assert rules(plan) == {
            "store/": "not the project: the environment, or j2c's own",
            "a.tmp": "[tool.j2c] exclude:1: *.tmp",
        }

    def test_sockets_and_fifos_are_listed(self, root: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(root)
        os.mkfifo("pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("listener")
            assert rules(plan_project(str(root))) == {"pipe": "FIFO", "listener": "socket"}

    def test_what_is_hidden_in_a_home_directory_stays_there(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("HOME", str(root))
        write_tree(root, {".config/gcloud/token": "", ".bash_history": "", ".gitignore": ""})
        write_tree(root, {"a.py": "", "src/.hidden": ""})
        plan = plan_project(str(root))
        assert places(plan) == {".gitignore", "a.py", "src/.hidden"}
        assert "whole home directory" in plan.warnings[0]
        assert rules(plan)[".config/"] == "built-in: hidden in the home directory"

    @pytest.mark.parametrize("tool", ["venv", "virtualenv", "uv"])
    def test_a_project_that_is_an_environment_travels_without_it(self, root: Path, tool: str):
        root.rmdir()
        make_venv(root, tool)
        write_tree(root, {"train.py": ""})
        plan = plan_project(str(root))
        assert places(plan) == {"train.py"}
        assert "virtual environment" in plan.warnings[0]


class TestNamedByTheCode:
    def test_a_left_out_file_that_the_code_names_gives_a_warning(self, root: Path):
        write_tree(
            root,
            {
                ".gitignore": "*.ckpt\ndata/\nunused\n",
                "m/best.ckpt": "",
                "data/x.csv": "",
                "data/y.csv": "",
                "unused": "",
                "train.py": "open('data/x.csv')\nload(\"m/best.ckpt\")\nprint('data/none.csv')\n",
                "n.ipynb": '{"cells": [{"source": ["read(\\"data/y.csv\\")\\n"]}]}',
                "conf.yaml": "model: m/best.ckpt\n",
            },
        )
        assert plan_project(str(root)).warnings == [
            "train.py names data/x.csv, which is left out by the rule '.gitignore:2: data/'",
            "n.ipynb names data/y.csv, which is left out by the rule '.gitignore:2: data/'",
            "conf.yaml names m/best.ckpt, which is left out by the rule '.gitignore:1: *.ckpt'",
        ]

    def test_unchanged_code_is_not_read_for_it_again(self, root: Path):
        write_tree(root, {".gitignore": "*.ckpt\n", "a.ckpt": "", "t.py": "load('a.ckpt')\n"})
        settle()
        first = plan_project(str(root))
        with files_opened(root) as opened:
            second = plan_project(str(root))
        assert first.warnings == second.warnings and len(first.warnings) == 1
        assert opened == [os.fsencode(root / ".gitignore")]


class TestLinks:
    def test_links_inside_are_kept(self, root: Path):
        write_tree(root, {"src/a.py": "", "data/v1/": ""})
        (root / "latest").symlink_to("data/v1")
        (root / "src" / "b.py").symlink_to("../src/a.py")
        (root / "loop").symlink_to(".")
        assert links(plan_project(str(root))) == {
            "latest": "data/v1",
            "src/b.py": "../src/a.py",
            "loop": ".",
        }

    def test_an_absolute_link_into_the_project_becomes_a_relative_one(self, root: Path):
        write_tree(root, {"src/a.py": "", "deep/er/": ""})
        (root / "deep" / "er" / "a").symlink_to(root / "src" / "a.py")
        assert links(plan_project(str(root))) == {"deep/er/a": "../../src/a.py"}

    def test_links_out_are_followed(self, root: Path, tmp_path: Path, store: LocalStore):
        write_tree(tmp_path, {"data/x/a.csv": "1", "data/b.csv": "2", "one.csv": "3"})
        (tmp_path / "data" / "again").symlink_to("x/a.csv")
        (tmp_path / "data" / "out").symlink_to("../one.csv")
        (root / "data").symlink_to(tmp_path / "data")
        (root / "one.csv").symlink_to("../one.csv")
        extract(pack_tree(root, store), store, tmp_path / "out")
        assert listing(tmp_path / "out" / "project") == {
            "data/x/a.csv": "1",
            "data/b.csv": "2",
            "data/again": "-> x/a.csv",
            "data/out": "3",
            "one.csv": "3",
        }

    def test_directories_that_link_to_each_other_end(self, root: Path, tmp_path: Path):
        for name in "abc":
            write_tree(tmp_path, {f"out/{name}/file": name})
        for one in "abc":
            for other in "abc":
                (tmp_path / "out" / one / f"to_{other}").symlink_to(tmp_path / "out" / other)
            (root / one).symlink_to(tmp_path / "out" / one)
        plan = plan_project(str(root))
        assert len([p for p in places(plan) if p.endswith("/file")]) == 3
        assert links(plan)["b/to_c"] in ("../c", "../a/to_c")

    def test_a_link_to_a_directory_around_the_project_is_not_followed(self, root: Path):
        (root / "up").symlink_to("..")
        assert rules(plan_project(str(root))) == {
            "up": "link to a directory that holds the project"
        }

    def test_a_link_to_a_secret_is_not_followed(self, root: Path, tmp_path: Path):
        write_tree(tmp_path, {".aws/credentials": "s"})
        (root / "creds").symlink_to(tmp_path / ".aws" / "credentials")
        assert rules(plan_project(str(root))) == {"creds": "built-in: secrets"}

    def test_dangling_links_inside_are_kept_and_those_out_are_set_apart(self, root: Path):
        (root / "later").symlink_to("outputs/model.bin")
        (root / "gone").symlink_to("/nowhere/at all")
        (root / "self").symlink_to("self")
        plan = plan_project(str(root))
        assert links(plan) == {"later": "outputs/model.bin", "self": "self"}
        assert [(d.path, d.target) for d in plan.dangling] == [("project/gone", "/nowhere/at all")]


class TestNames:
    NAMES = (b"\xff\xfe", b"new\nline", "é".encode(), b" ", b"a" * 255, b"-rf", b"\\x", b"*")

    @pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX"])
    def test_any_bytes_in_any_locale(self, root: Path, tmp_path: Path, locale: str):
        for name in self.NAMES:
            if sys.platform == "darwin" and name == b"\xff\xfe":
                continue  # APFS stores UTF-8 names only.
            directory = os.path.join(os.fsencode(root), name)
            os.mkdir(directory)
            with open(os.path.join(directory, name), "wb") as file:
                file.write(name)
        script = (
            "import asyncio, sys; from pathlib import Path\n"
            "from j2c_lab.pack.bundle import pack_bundle\n"
            "from j2c_lab.pack.project import plan_project\n"
            "from j2c_lab.store.local import LocalStore\n"
            "store = LocalStore(Path(sys.argv[2]))\n"
            "result = asyncio.run(pack_bundle(plan_project(sys.argv[1]), None, store))\n"
            "print(result.digest, result.manifest.layers[0].files)\n"
        )
        outcome = subprocess.run(
            [sys.executable, "-c", script, str(root), str(tmp_path / "store")],
            env={**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
        digest, count = outcome.stdout.split()
        assert int(count) == len(os.listdir(root))
        assert digest == pack_tree(root, LocalStore(tmp_path / "other")).digest

    def test_long_paths_and_link_targets(self, root: Path, tmp_path: Path, store: LocalStore):
        deep = root.joinpath(*["d" * 60] * 8)
        write_tree(root, {str(deep.relative_to(root) / "file"): "x"})
        (root / "link").symlink_to(deep.relative_to(root) / "file")
        extract(pack_tree(root, store), store, tmp_path / "out")
        assert listing(tmp_path / "out" / "project") == listing(root)


class TestUnreadable:
    def test_all_unreadable_files_are_named_at_once(self, root: Path, tmp_path: Path):
        write_tree(root, {"a": "", "b/c": "", "d/e": "", "ok": ""})
        (root / "a").chmod(0)
        (root / "b" / "c").chmod(0)
        (root / "d").chmod(0)
        script = (
            "import sys; from j2c_lab.errors import PackError\n"
            "from j2c_lab.pack.project import plan_project\n"
            "try: plan_project(sys.argv[1])\n"
            "except PackError as error: print(error.message); print(*error.details, sep='\\n')\n"
        )
        command = [sys.executable, "-c", script, str(root)]
        if os.geteuid() == 0:
            for directory in (tmp_path, *tmp_path.parents):
                if directory != Path("/"):
                    directory.chmod(directory.stat().st_mode | 0o055)
            drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            command = [*drop, "--inh-caps=-all", *command]
            if (
                not shutil.which("setpriv")
                or subprocess.run([*command[:6], sys.executable, "-c", ""]).returncode
            ):
                pytest.skip("runs as root, and nobody else can use this Python")
        done = subprocess.run(command, capture_output=True, text=True)
        (root / "d").chmod(0o755)
        assert done.stderr == "" and done.stdout.splitlines() == [
            "3 files of what is to be packed cannot be read",
            f"{root}/a: Permission denied",
            f"{root}/b/c: Permission denied",
            f"{root}/d: Permission denied",
        ]

    def test_a_file_that_vanished_since_it_was_planned_is_an_error(
        self, root: Path, store: LocalStore
    ):
        from pack_tools import pack

        write_tree(root, {"a": "1"})
        plan = plan_project(str(root))
        (root / "a").unlink()
        with pytest.raises(PackError, match="/a changes while it is read"):
            pack(plan, store)


class TestLayers:
    def test_one_more_file_among_many_changes_one_group(self, root: Path):
        write_tree(root, {f"d{n % 50}/{n}.txt": "" for n in range(6000)})
        before = plan_project(str(root))
        assert len(before.layers) > 2
        assert max(len(layer.files) for layer in before.layers) < 6000
        write_tree(root, {"d7/new.txt": ""})
        after = plan_project(str(root))
        old = {tuple(f.path for f in layer.files) for layer in before.layers}
        new = {tuple(f.path for f in layer.files) for layer in after.layers}
        assert len(new - old) <= 2
        assert sorted(f for group in new for f in group) == sorted(
            [f for group in old for f in group] + [b"project/d7/new.txt"]
        )

    def test_no_files_make_no_layer(self):
        assert cut_into_layers([]) == []

    def test_an_empty_project_has_no_layer(self, root: Path):
        assert plan_project(str(root)).layers == []

    def test_directories_without_packed_content_travel_as_empty_ones(self, root: Path):
        write_tree(root, {".gitignore": "*.log\n", "logs/a.log": "", "empty/deep/": ""})
        kinds = {f.path: f.type for f in plan_project(str(root)).layers[0].files}
        assert kinds == {
            b"project/.gitignore": "f",
            b"project/logs": "d",
            b"project/empty/deep": "d",
        }


def rules(plan: ProjectPlan) -> dict[str, str]:
    return {entry.path: entry.rule for entry in plan.left_out}


def places(plan: ProjectPlan) -> set[str]:
    return {
        os.fsdecode(file.path.removeprefix(b"project/"))
        for layer in plan.layers
        for file in layer.files
        if file.type == "f"
    }


def links(plan: ProjectPlan) -> dict[str, str]:
    return {
        os.fsdecode(file.path.removeprefix(b"project/")): os.fsdecode(file.data)
        for layer in plan.layers
        for file in layer.files
        if file.type == "l"
    }
